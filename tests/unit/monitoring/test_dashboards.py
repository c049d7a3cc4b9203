"""Dashboards are what the source says, complete, and drawn as Grafana draws them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from cli.local.generate import RUNBOOKS
from monitoring.alerts.catalogue import BY_NAME
from monitoring.dashboards.catalogue import DASHBOARDS, file_name, text_of
from monitoring.dashboards.model import COLUMNS, NORMAL, WORDS, Unit
from node.http.server.routes import ROUTES
from tests.unit.monitoring.expressions import ROOT

FOLDER = ROOT / "deploy" / "grafana"
UIDS = {
    "goqueue-overview",
    "goqueue-topics",
    "goqueue-consumers",
    "goqueue-timelines",
    "goqueue-lanes",
    "goqueue-cluster",
}
BUILT_IN = {"__rate_interval", "__range", "__interval", "__all"}
Json = dict[str, Any]


def loaded() -> list[Json]:
    return [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]


ALL = [pytest.param(one, id=one["uid"]) for one in loaded()]


def drawn(dashboard: Json) -> list[Json]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_what_is_checked_in_is_what_is_generated() -> None:
    found = {path.name: path.read_text() for path in FOLDER.iterdir()}

    assert found == {file_name(one): text_of(one, RUNBOOKS) for one in DASHBOARDS}, (
        "run: goqueue-cli generate grafana --output deploy/grafana"
    )


def test_uids_stay_as_they_are_because_links_and_bookmarks_name_them() -> None:
    assert {one["uid"] for one in loaded()} == UIDS


@pytest.mark.parametrize("dashboard", ALL)
def test_every_panel_says_what_is_normal_in_which_unit_from_the_chosen_source(
    dashboard: Json,
) -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in drawn(dashboard):
        where = panel["title"]
        said, normal = panel["description"].split(NORMAL)
        assert len(said) + len(normal) > 30 and normal.endswith("."), where
        assert panel["fieldConfig"]["defaults"]["unit"] in {unit.value for unit in Unit}, where
        assert panel["datasource"] == source, where
        assert panel["targets"], where
        for target in panel["targets"]:
            assert target["datasource"] == source, where
            assert target["legendFormat"], where
            assert target["range"] != target["instant"], where
        assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"]), where


@pytest.mark.parametrize("dashboard", ALL)
def test_ids_are_unique_and_no_panel_lies_on_another(dashboard: Json) -> None:
    panels = dashboard["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in drawn(dashboard)}) == len(drawn(dashboard))
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["w"] > 0 and place["h"] > 0, panel["title"]
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]
    for one, other in combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, f"{one['title']} lies on {other['title']}"


@pytest.mark.parametrize("dashboard", ALL)
def test_variables_are_all_declared_and_all_used(dashboard: Json) -> None:
    names = [one["name"] for one in dashboard["templating"]["list"]]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) - BUILT_IN

    assert names[:3] == ["datasource", "cluster", "namespace"]
    assert len(set(names)) == len(names)
    assert used == set(names)
    for one in dashboard["templating"]["list"]:
        if one["type"] == "query":
            assert one["allValue"] == ".*" and one["includeAll"], one["name"]


@pytest.mark.parametrize("dashboard", ALL)
def test_every_query_obeys_the_chosen_cluster_and_no_word_of_ours_is_left(dashboard: Json) -> None:
    chosen = WORDS["@all"]
    for panel in drawn(dashboard):
        for target in panel["targets"]:
            text = target["expr"]
            assert "@" not in text, panel["title"]
            selected = re.findall(r"(?:goqueue[_:][\w:]+|process_\w+)(\{[^}]*\})?", text)
            assert all(chosen in selector for selector in selected), f"{panel['title']}: {text}"
            windows = re.findall(r"\[([^\]]*)\]", re.sub(r'"[^"]*"', "", text))
            assert set(windows) <= {"$__rate_interval", "$__range"}, panel["title"]


def test_look_ups_are_all_counted_and_nothing_else() -> None:
    (panel,) = [one for found in loaded() for one in drawn(found) if one["title"] == "Look-ups"]
    told = re.search(r'route=~"([^"]+)"', panel["targets"][0]["expr"])
    assert told is not None
    routes = {route.path for route in ROUTES}

    counted = {path for path in routes if re.fullmatch(told[1], path)}

    assert counted == {
        "/messages",
        "/messages/{id}/timeline",
        "/messages/{id}/why",
        "/traces",
        "/traces/search",
        "/traces/stats",
        "/traces/{trace_id}",
    }


def test_a_share_of_failures_is_none_where_nothing_failed() -> None:
    shares = [
        target["expr"]
        for found in loaded()
        for panel in drawn(found)
        for target in panel.get("targets", ())
        if "status=~" in target["expr"] and " / " in target["expr"]
    ]

    assert shares
    assert all(" or 0 * " in share for share in shares)


@pytest.mark.parametrize("dashboard", ALL)
def test_links_lead_to_the_other_dashboards_and_to_runbooks(dashboard: Json) -> None:
    others = {link["url"].removeprefix("/d/") for link in dashboard["links"]}

    assert others == UIDS - {dashboard["uid"]}
    for panel in drawn(dashboard):
        for link in panel["links"]:
            name = link["url"].removeprefix("${runbooks}/").removesuffix(".md")
            assert name in BY_NAME, panel["title"]


def test_every_alert_but_those_of_windows_is_linked_from_a_panel() -> None:
    linked = {name for one in DASHBOARDS for panel in one.panels for name in panel.alerts}

    assert linked <= set(BY_NAME)
    assert set(BY_NAME) - linked == {"GoQueueLatencyBudgetBurnSlow"}


@pytest.mark.parametrize("dashboard", ALL)
def test_colours_change_in_order(dashboard: Json) -> None:
    for panel in drawn(dashboard):
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        values = [step["value"] for step in steps]
        assert values[0] is None, panel["title"]
        assert values[1:] == sorted(values[1:]), panel["title"]


def test_dashboards_are_of_the_schema_that_grafana_11_writes() -> None:
    for one in loaded():
        assert one["schemaVersion"] == 39
        assert one["editable"] is True and one["tags"] == ["goqueue"]
        assert "id" not in one and "__inputs" not in one, "those are of exports"
