"""Every manifest of every case is one that Kubernetes takes, by the schemas of nine versions."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import helm_python
import pytest

from tests.deploy.matrix import CASES
from tests.deploy.rendering import CHART, one, rendered
from tests.deploy.report import Report
from tests.deploy.validation import is_custom, problems, same, versions

Json = dict[str, Any]
LINT_ERROR, LINT_WARNING = 3, 2


@pytest.fixture(scope="module")
def judged() -> set[str]:
    """What was found valid in a case before."""
    return set()


@pytest.mark.parametrize("case", CASES)
def test_every_manifest_is_valid_in_every_version(
    case: str, judged: set[str], report: Report
) -> None:
    found = rendered(case)
    custom = Counter(manifest["kind"] for manifest in found if is_custom(manifest))
    native = [manifest for manifest in found if not is_custom(manifest)]
    wrong = [
        f"{version}: {problem}"
        for manifest in native
        if same(manifest) not in judged
        for version in versions()
        for problem in problems(manifest, version)
    ]

    assert wrong == []
    judged |= {same(manifest) for manifest in native}
    beside = "".join(f", {count} {kind}" for kind, count in sorted(custom.items()))
    report.executed(
        "The chart",
        f"{case}: rendered by Helm {helm_python.helm_sdk_version()}; {len(native)} objects valid,"
        f" strictly, by the schemas of {versions()[0]} to {versions()[-1]}"
        + (f"; without schema{beside[1:]}" if beside else ""),
    )


@pytest.mark.parametrize("case", CASES)
def test_names_are_unique_and_none_is_too_long(case: str) -> None:
    found = rendered(case)
    names = Counter((one["kind"], one["metadata"]["name"]) for one in found)

    assert [name for name, count in names.items() if count > 1] == []
    assert [name for _, name in names if len(name) > 63] == []


def test_the_schemas_refuse_what_kubernetes_would() -> None:
    stateful = one(rendered("defaults"), "StatefulSet")
    newest = versions()[-1]
    wrong_type, unknown = copy.deepcopy(stateful), copy.deepcopy(stateful)
    wrong_type["spec"]["replicas"] = "3"
    unknown["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}

    assert not list(problems(stateful, newest))
    assert list(problems(wrong_type, newest))
    assert list(problems(unknown, newest))
    assert len(versions()) >= 9


@pytest.mark.parametrize("case", CASES)
def test_helm_lint_finds_nothing(case: str, report: Report) -> None:
    found = helm_python.lint(CHART, CASES[case], strict=True, namespace="queues")

    assert found["errors"] == []
    assert [m for m in found["messages"] if m["severity"] >= LINT_WARNING] == []
    report.executed("The chart", f"helm lint --strict: {len(CASES)} cases, no warning")


def test_a_packaged_chart_renders_what_the_folder_does(tmp_path: Path, report: Report) -> None:
    archive = helm_python.package(CHART, destination=tmp_path)
    values = CASES["monitoring on"]
    with helm_python.Chart.load(archive) as chart:
        packed = chart.render(values, name="goqueue", namespace="queues")
    dashboards = packed["goqueue/templates/dashboards.yaml"]

    assert dashboards.count("kind: ConfigMap") == 6
    assert [m["kind"] for m in rendered("monitoring on")].count("ConfigMap") == 8
    assert len(dashboards) > 100_000
    report.executed("The chart", "packaged as an archive, and rendered from there")
