"""Every panel and every rule is asked of a real Prometheus that scrapes three nodes under load.

An answer that is an error, empty, or zero where load must move it fails. The table goes to standard
output, and to the file that GOQUEUE_PROMETHEUS_REPORT names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from monitoring.dashboards.catalogue import DASHBOARDS
from monitoring.dashboards.model import NAMESPACE, Dashboard, Panel, Query, Row, Unit
from tests.cluster.processes import Cluster, eventually
from tests.cluster.prometheus import CLUSTER_LABEL, PROGRAM, Prometheus
from tests.cluster.prometheus_judge import Figure, Verdict, filled, judge, panels, report, rules
from tests.cluster.prometheus_load import SETTINGS, Load

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="prometheus is not installed (Debian: apt-get install prometheus)"
)
REPORT = os.environ.get("GOQUEUE_PROMETHEUS_REPORT", "")
SETTLED_S = 30.0
MISSED = (
    "max(goqueue_cluster_nodes_total) - max(goqueue_cluster_nodes_healthy) > 0"
    ' and on () ALERTS{alertname="GoQueueNodeDown"}'
    " and on () max(goqueue_partitions_under_way) > 0"
)
"""A node is down: nodes say so, the alert is on its way, and partitions wait for it."""


@dataclass
class Watched:
    """A cluster under load, and who watches it."""

    prometheus: Prometheus
    load: Load
    verdicts: list[Verdict]
    took_s: float


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Load of every kind, once; while it goes on, everything is asked until it moves."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    began_s = time.monotonic()
    with Cluster(folder / "cluster", 3, SETTINGS) as cluster:
        cluster.start()
        targets = [node.url.removeprefix("http://") for node in cluster.nodes]
        with Prometheus(folder / "prometheus", targets) as prometheus, Load(cluster) as load:
            eventually("all are scraped", lambda: len(prometheus.are_scraped()) == 3)
            load.change_members()
            load.move()
            load.compact()
            load.scrub()
            load.kill_and_restart(lambda: bool(prometheus.now(MISSED)))
            load.change_members()
            verdicts = judged(prometheus, load)
            print(report(verdicts))
            if REPORT:
                Path(REPORT).parent.mkdir(parents=True, exist_ok=True)
                Path(REPORT).write_text(_titled(verdicts, time.monotonic() - began_s))
            yield Watched(prometheus, load, verdicts, time.monotonic() - began_s)


def judged(prometheus: Prometheus, load: Load) -> list[Verdict]:
    """What each figure says of the whole time; those that fail are asked again, for a while."""
    end = time.monotonic() + SETTLED_S
    found = {one.where: judge(one, prometheus.since_start) for one in (*panels(), *rules())}
    while time.monotonic() < end:
        failed = [one.figure for one in found.values() if one.problem]
        if not failed:
            break
        load.once_more()
        time.sleep(1)
        found |= {one.where: judge(one, prometheus.since_start) for one in failed}
    return list(found.values())


def test_every_panel_and_every_rule_is_answered_and_moves_under_load(watched: Watched) -> None:
    failed = [one for one in watched.verdicts if one.problem]

    assert failed == [], report(failed)


def test_prometheus_evaluates_all_rules_without_an_error(watched: Watched) -> None:
    loaded = watched.prometheus.rules()

    assert {rule["name"] for rule in loaded} == {
        one.where.split()[1] for one in rules() if not one.where.startswith("record ")
    }
    assert [
        (rule["name"], rule.get("lastError")) for rule in loaded if rule["health"] != "ok"
    ] == []


def test_variables_find_what_there_is_to_choose(watched: Watched) -> None:
    for dashboard in DASHBOARDS:
        for variable in dashboard.chosen:
            where = filled(Query(variable.within, "").promql, dashboard)
            series = f"{variable.metric}{{{where}}}"
            values = watched.prometheus.label_values(variable.label, series)
            if variable is NAMESPACE:
                assert values == [], "the example's targets have no namespace"
            else:
                assert values, f"{dashboard.name}: {variable.name}"
    assert watched.prometheus.label_values("cluster", "goqueue_up") == [CLUSTER_LABEL]


def test_the_load_went_well(watched: Watched) -> None:
    assert watched.load.problems == [], "\n".join(watched.load.problems)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(rate(goqueue_no_such_thing_total{@all}[@rate]))", "empty"),
        ('goqueue_up{@all,cluster="another"}', "empty"),
        ("sum(goqueue_disk_stuck{@all})", "zero all the time"),
        ("0 * goqueue_up{@all} / 0", "never a number"),
        ("rate(goqueue_up{@all})", "error"),
        ("sum(goqueue_up{@all}) by", "error"),
    ],
)
def test_a_wrong_panel_is_found(watched: Watched, expression: str, problem: str) -> None:
    wrong = Panel("wrong", "Normal: never.", (Query(expression, ""),), Unit.number)
    dashboard = Dashboard("wrong", "wrong", "Wrong", "", (Row("wrong", (wrong,)),))

    [figure] = panels([dashboard])
    verdict = judge(figure, watched.prometheus.since_start)

    assert verdict.problem.startswith(problem)
    assert f"| ✗ | wrong / wrong / A | {verdict.series} |" in report([verdict])


def test_zeros_are_right_only_where_a_reason_is_given(watched: Watched) -> None:
    figure = Figure("wrong", "sum(goqueue_disk_stuck)")
    ask = watched.prometheus.since_start

    assert judge(figure, ask).problem == "zero all the time"
    assert judge(replace(figure, still="a test's disk is not full"), ask).problem == ""


def _titled(verdicts: list[Verdict], took_s: float) -> str:
    failed = sum(1 for one in verdicts if one.problem)
    return (
        "# Dashboards and rules, asked of a real Prometheus\n\n"
        f"{len(verdicts)} expressions, {failed} failed; three nodes under load of every kind,"
        f" {took_s:.0f} s.\n\n{report(verdicts)}"
    )
