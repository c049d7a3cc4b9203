"""All rules, by the files that hold them."""

from __future__ import annotations

from monitoring.alerts import cluster, deployment, groups, objectives, publishing, queue, storage
from monitoring.alerts.model import Alert, Group

RECORDS: tuple[Group, ...] = (objectives.RECORDS,)
ALERTS: tuple[Group, ...] = (
    cluster.GROUP,
    publishing.GROUP,
    groups.GROUP,
    queue.GROUP,
    storage.GROUP,
    deployment.GROUP,
    objectives.GROUP,
)
GROUPS = (*RECORDS, *ALERTS)
FILES = {"goqueue-records.yaml": RECORDS, "goqueue-alerts.yaml": ALERTS}
RESOURCE_FILE = "goqueue-prometheusrule.yaml"
BY_NAME: dict[str, Alert] = {alert.name: alert for group in ALERTS for alert in group.alerts}
