"""All dashboards, in the order in which people look at them."""

from __future__ import annotations

import json

from monitoring.dashboards import groups, lanes, overview, raft, timelines, topics
from monitoring.dashboards.grafana import rendered
from monitoring.dashboards.model import Dashboard

DASHBOARDS: tuple[Dashboard, ...] = (
    overview.DASHBOARD,
    topics.DASHBOARD,
    groups.DASHBOARD,
    timelines.DASHBOARD,
    lanes.DASHBOARD,
    raft.DASHBOARD,
)
BY_NAME = {dashboard.name: dashboard for dashboard in DASHBOARDS}


def file_name(dashboard: Dashboard) -> str:
    return f"{dashboard.uid}.json"


def text_of(dashboard: Dashboard, runbooks: str) -> str:
    """The dashboard's file."""
    return (
        json.dumps(rendered(dashboard, DASHBOARDS, runbooks), indent=2, ensure_ascii=False) + "\n"
    )
