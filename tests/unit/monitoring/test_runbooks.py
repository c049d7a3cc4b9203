"""Every alert has a runbook, every runbook an alert, and each says what is needed at night."""

from __future__ import annotations

import re

import pytest

from monitoring.alerts.catalogue import BY_NAME
from tests.unit.monitoring.expressions import RUNBOOKS

SECTIONS = ("Meaning", "Impact", "How to look", "What to do", "When to escalate")


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0].strip()


def test_no_alert_without_a_runbook_and_no_runbook_without_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == set(BY_NAME)


def test_the_list_of_runbooks_names_each_once() -> None:
    listed = re.findall(r"\]\((GoQueue\w+)\.md\)", (RUNBOOKS / "README.md").read_text())

    assert sorted(listed) == sorted(BY_NAME)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_runbook_has_its_sections_in_order_with_commands_and_queries(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()

    assert text.startswith(f"# {name}\n")
    assert tuple(re.findall(r"^## (.*)$", text, re.M)) == SECTIONS
    for title in SECTIONS:
        assert len(section(text, title)) > 15, title
    look = section(text, "How to look")
    assert re.search(r"```sh\n.*goqueue-cli .*\n```", look, re.S), "a command"
    assert re.search(r"```promql\n.+\n```", look, re.S), "a query"


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_runbook_says_how_urgent_its_alert_is_as_the_rule_does(name: str) -> None:
    alert = BY_NAME[name]
    line = (RUNBOOKS / f"{name}.md").read_text().splitlines()[2]

    assert line.startswith(f"Severity {alert.severity.value}, after {alert.lasts}."), line
