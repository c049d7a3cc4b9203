"""What a rule is made of. An alert's figure and its bound stand apart, so that the figure can be
looked at while all is well.

Expressions are PromQL; `@in` stands for the labels that tell clusters apart, which every result
keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

APART = "cluster, namespace"


class Severity(StrEnum):
    """Who is called: somebody now, somebody in working hours, nobody."""

    critical = "critical"
    warning = "warning"
    info = "info"


def promql(text: str) -> str:
    """With labels in the place of our word."""
    return text.replace("@in", APART)


@dataclass(frozen=True, slots=True)
class Condition:
    """A figure, and when it is bad: `> 0.1`. The figure always has a value while nodes are
    scraped."""

    figure: str
    bad: str
    still: str = ""
    """Why zeros are right under load; nothing: load of every kind must move it."""

    @property
    def promql(self) -> str:
        figure = promql(self.figure)
        return (
            f"({figure}) {self.bad}" if "\n" in figure or " " in figure else f"{figure} {self.bad}"
        )


@dataclass(frozen=True, slots=True)
class Alert:
    """Fires where all conditions hold for `lasts`. Its runbook is named like it.

    `summary` and `description` are Prometheus templates over the labels of the first condition.
    """

    name: str
    severity: Severity
    lasts: str
    conditions: tuple[Condition, ...]
    summary: str
    description: str
    on: str = ""
    """The labels by which further conditions meet the first; nothing: all of them."""

    @property
    def promql(self) -> str:
        joint = f"and on ({promql(self.on)})" if self.on else "and"
        return f"\n{joint}\n".join(condition.promql for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class Record:
    """A figure that others are made from, kept under a name of its own."""

    name: str
    expression: str
    still: str = ""

    @property
    def promql(self) -> str:
        return promql(self.expression)


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are looked at together, in this order."""

    name: str
    rules: tuple[Alert | Record, ...]
    every: str = ""
    """How often; nothing: as Prometheus is set to."""

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Record))


def alert(
    name: str,
    severity: Severity,
    lasts: str,
    figure: str,
    bad: str,
    summary: str,
    description: str,
    *,
    still: str = "",
) -> Alert:
    """An alert of one condition."""
    return Alert(name, severity, lasts, (Condition(figure, bad, still),), summary, description)
