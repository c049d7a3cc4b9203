"""Dashboards as Grafana imports them: its JSON model, schema 39 (Grafana 11), laid out.

Ids and places follow from the order of the source, so that a change of one panel changes one panel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from monitoring.dashboards.model import COLUMNS, Dashboard, Kind, Panel, Query, Row, Variable

Json = dict[str, Any]
SCHEMA = 39
PLUGIN = "11.0.0"
TAG = "goqueue"
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, RED = "green", "yellow", "red"
CALCULATIONS = ["lastNotNull", "max"]
ROW_HEIGHT = 1


def rendered(dashboard: Dashboard, others: Sequence[Dashboard], runbooks: str) -> Json:
    """One dashboard, with links to the others; `runbooks` is the address that they stand under."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "fiscalYearStartMonth": 0,
        "annotations": {"list": []},
        "links": [_link(other) for other in others if other.uid != dashboard.uid],
        "templating": {"list": _variables(dashboard.chosen, runbooks)},
        "panels": list(_panels(dashboard.rows)),
    }


def _link(other: Dashboard) -> Json:
    return {
        "type": "link",
        "title": other.title.removeprefix("GoQueue "),
        "tooltip": other.text,
        "url": f"/d/{other.uid}",
        "icon": "dashboard",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "asDropdown": False,
        "tags": [],
    }


def _variables(chosen: Iterable[Variable], runbooks: str) -> list[Json]:
    source: Json = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
        "regex": "",
        "multi": False,
        "includeAll": False,
        "options": [],
    }
    address: Json = {
        "type": "constant",
        "name": "runbooks",
        "label": "Runbooks",
        "description": "The address that the runbooks stand under",
        "query": runbooks,
        "current": {"text": runbooks, "value": runbooks, "selected": False},
        "hide": 2,
        "skipUrlSync": True,
    }
    return [source, *map(_variable, chosen), address]


def _variable(variable: Variable) -> Json:
    """`All` is any value, and none at all: clusters may be scraped without such a label."""
    where = Query(variable.within, "").promql
    series = f"{variable.metric}{{{where}}}" if where else variable.metric
    query = f"label_values({series}, {variable.label})"
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.title,
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "Variable", "qryType": 1},
        "refresh": 2,
        "sort": 1,
        "regex": "",
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
        "hide": 0,
        "options": [],
    }


def _panels(rows: Iterable[Row]) -> Iterable[Json]:
    id, top = 1, 0
    for row in rows:
        place = {"x": 0, "y": top, "w": COLUMNS, "h": ROW_HEIGHT}
        yield {
            "type": "row",
            "id": id,
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        id, top = id + 1, top + ROW_HEIGHT
        left = line = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, line = top + line, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield _panel(panel, id, place)
            id, left, line = id + 1, left + panel.width, max(line, panel.height)
        top += line


def _panel(panel: Panel, id: int, place: Json) -> Json:
    return {
        "type": panel.kind.value,
        "id": id,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "pluginVersion": PLUGIN,
        "links": [
            {"title": f"Runbook: {name}", "url": f"${{runbooks}}/{name}.md", "targetBlank": True}
            for name in panel.alerts
        ],
        "targets": [
            _target(panel, query, chr(ord("A") + number))
            for number, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        "transformations": _TABLE if panel.kind is Kind.table else [],
    }


def _target(panel: Panel, query: Query, name: str) -> Json:
    is_series = panel.kind is Kind.graph
    return {
        "refId": name,
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.promql,
        "legendFormat": query.legend,
        "range": is_series,
        "instant": not is_series,
        "format": "table" if panel.kind is Kind.table else "time_series",
    }


def _defaults(panel: Panel) -> Json:
    found: Json = {
        "unit": panel.unit.value,
        "color": {"mode": "palette-classic" if panel.kind is Kind.graph else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": _steps(panel)},
        "mappings": [],
        "custom": _drawn(panel) if panel.kind is Kind.graph else {},
    }
    if panel.least is not None:
        found["min"] = panel.least
    if panel.most is not None:
        found["max"] = panel.most
    return found


def _steps(panel: Panel) -> list[Json]:
    """Colours from the lowest value upwards; the first has none."""
    if panel.falls:
        marks = [(None, RED), (panel.bad, YELLOW), (panel.warn, GREEN)]
        if panel.bad is None:
            marks = [(None, YELLOW), (panel.warn, GREEN)]
        elif panel.warn is None:
            marks = [(None, RED), (panel.bad, GREEN)]
    else:
        marks = [(None, GREEN), (panel.warn, YELLOW), (panel.bad, RED)]
    return [
        {"color": color, "value": value}
        for number, (value, color) in enumerate(marks)
        if number == 0 or value is not None
    ]


def _drawn(panel: Panel) -> Json:
    has_marks = panel.warn is not None or panel.bad is not None
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 20 if panel.stacked else 5,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if has_marks else "off"},
    }


_FIGURE: Json = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "orientation": "auto",
}
_OPTIONS: dict[Kind, Json] = {
    Kind.graph: {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": CALCULATIONS},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    Kind.figure: {**_FIGURE, "colorMode": "value", "graphMode": "area", "textMode": "auto"},
    Kind.gauge: {**_FIGURE, "showThresholdLabels": False, "showThresholdMarkers": True},
    Kind.table: {"showHeader": True, "cellHeight": "sm"},
}
_TABLE: list[Json] = [
    {"id": "merge", "options": {}},
    {"id": "organize", "options": {"excludeByName": {"Time": True, "__name__": True, "job": True}}},
]
