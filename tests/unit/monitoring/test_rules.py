"""Rules are what the source says, name only figures that nodes tell, and fire when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from cli.local.generate import RUNBOOKS
from goqueue.wire.errors import Busy, GoQueueError
from monitoring.alerts.catalogue import ALERTS, BY_NAME, FILES, GROUPS, RECORDS
from monitoring.alerts.model import Group
from monitoring.alerts.objectives import SERVER_FAULTS
from monitoring.alerts.rules import resource, rules
from tests.unit.monitoring import expressions
from tests.unit.monitoring.alert_cases import CASES, Case
from tests.unit.monitoring.expressions import ROOT, SCRAPED

FOLDER = ROOT / "deploy" / "prometheus" / "rules"
EXAMPLE = ROOT / "deploy" / "prometheus" / "prometheus.yaml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)


def promtool(*words: str | Path) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_checked_in_is_what_is_generated() -> None:
    found = {path.name: path.read_text() for path in FOLDER.iterdir()}

    assert found == {name: rules(groups, RUNBOOKS) for name, groups in FILES.items()}, (
        "run: goqueue-cli generate prometheus-rules --output deploy/prometheus/rules"
    )


def test_the_operators_resource_has_the_same_rules() -> None:
    found = yaml.safe_load(resource(GROUPS, RUNBOOKS))

    assert found["kind"] == "PrometheusRule"
    assert found["spec"] == yaml.safe_load(rules(GROUPS, RUNBOOKS))


def test_every_metric_that_is_named_is_declared_with_the_labels_that_are_asked_for() -> None:
    known = expressions.declared()
    wrong: list[str] = []
    for where, text in expressions.everything():
        for name, labels in expressions.metrics(text):
            if name not in known:
                wrong.append(f"{where}: no metric {name}")
                continue
            missing = labels - SCRAPED - set(known[name].label_names)
            wrong += [f"{where}: {name} has no label {label}" for label in sorted(missing)]

    assert wrong == []


def test_every_recording_rule_that_is_named_is_declared_and_none_twice() -> None:
    names = [record.name for group in RECORDS for record in group.records]
    used = {name for _, text in expressions.everything() for name in expressions.records(text)}

    assert len(set(names)) == len(names)
    assert used <= set(names)


def test_objectives_count_just_what_is_not_the_clients_mistake() -> None:
    def all_of(root: type[GoQueueError]) -> set[type[GoQueueError]]:
        return {root}.union(*(all_of(one) for one in root.__subclasses__()))

    codes = {one.code for one in all_of(GoQueueError) if one.http_status >= 500} - {"error"}
    ours = {code for code in codes if not code.startswith("test")} | {Busy.code}

    assert set(SERVER_FAULTS) <= ours
    assert {"no_quorum", "disk_full", "timeout", "internal", "outcome_unknown"} <= set(
        SERVER_FAULTS
    )


def test_every_alert_says_who_is_called_what_happened_and_where_to_read_on() -> None:
    loaded = yaml.safe_load(rules(ALERTS, RUNBOOKS))
    for group in loaded["groups"]:
        for rule in group["rules"]:
            said = rule["annotations"]
            assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
            assert 15 < len(said["summary"]) < 100, rule["alert"]
            assert len(said["description"]) > 20, rule["alert"]
            assert (ROOT / said["runbook_url"]).exists(), rule["alert"]


def test_clusters_are_told_apart_by_every_alert() -> None:
    for alert in BY_NAME.values():
        for condition in alert.conditions:
            text = condition.promql
            aggregated = re.findall(r"\b(?:sum|max|min|avg|quantile)\b(?: by \(([^)]*)\))?", text)
            assert all("cluster, namespace" in by for by in aggregated), f"{alert.name}: {text}"


@needs_promtool
def test_promtool_accepts_the_rules_and_the_example() -> None:
    promtool("check", "rules", *sorted(FOLDER.glob("*.yaml")))
    promtool("check", "config", EXAMPLE)


@needs_promtool
def test_promtool_accepts_every_expression_of_the_runbooks(tmp_path: Path) -> None:
    found = [
        {"record": f"runbook:{where}:{number}", "expr": text}
        for number, (where, text) in enumerate(expressions.runbooks())
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": found}]}))

    assert found
    promtool("check", "rules", path)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert sorted(CASES) == sorted(BY_NAME)


@needs_promtool
def test_alerts_fire_where_they_should_and_only_there(tmp_path: Path) -> None:
    """Series in, alerts out: by promtool, which runs each alert, and what it is made from."""
    promtool("test", "rules", *(_file(tmp_path, name, case) for name, case in CASES.items()))


@needs_promtool
def test_a_wrong_case_is_found(tmp_path: Path) -> None:
    name, case = next(iter(CASES.items()))
    turned = Case(bad=case.calm, calm=case.bad, minutes=case.minutes)

    with pytest.raises(AssertionError, match="FAILED"):
        promtool("test", "rules", _file(tmp_path, name, turned))


def _file(folder: Path, name: str, case: Case) -> Path:
    """A file of promtool's tests of one alert, and beside it the rules that these need."""
    needed = RECORDS if expressions.records(BY_NAME[name].promql) else ()
    loaded = folder / f"{name}-rules.yaml"
    loaded.write_text(rules([*needed, Group("one", (BY_NAME[name],))], RUNBOOKS))
    path = folder / f"{name}.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "rule_files": [loaded.name],
                "evaluation_interval": "30s",
                "tests": _tests(name, case),
            },
            sort_keys=False,
        )
    )
    return path


def _tests(name: str, case: Case) -> list[dict[str, object]]:
    """One test that it fires, with every label that its texts name, and one that it does not."""
    alert = BY_NAME[name]
    named = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    where = "".join(f',{label}!=""' for label in sorted(named))
    labels = f'alertname="{name}",alertstate="firing"'
    at = f"{case.minutes}m"
    return [
        {
            "name": f"{name} fires",
            "interval": "15s",
            "input_series": _series(case.bad),
            "promql_expr_test": [
                {
                    "expr": f'min(ALERTS{{{labels},cluster="c",namespace="n"{where}}})',
                    "eval_time": at,
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        },
        {
            "name": f"{name} does not fire",
            "interval": "15s",
            "input_series": _series(case.calm),
            "promql_expr_test": [
                {"expr": f"ALERTS{{{labels}}}", "eval_time": at, "exp_samples": []}
            ],
        },
    ]


def _series(found: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": _apart(name), "values": values} for name, values in found.items()]


def _apart(series: str) -> str:
    """With the labels that a scrape adds."""
    name, brace, labels = series.partition("{")
    added = 'cluster="c",namespace="n",job="goqueue"'
    added += "" if "instance=" in labels else ',instance="node-1:8080"'
    return f"{name}{{{added}{',' if brace and labels != '}' else ''}{labels if brace else '}'}"
