"""Whether what a panel or a rule asks is answered, and moves where load must move it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from monitoring.alerts.catalogue import GROUPS
from monitoring.dashboards.catalogue import DASHBOARDS
from monitoring.dashboards.model import Dashboard
from tests.cluster.prometheus import QueryFailed, Series

ALL = ".*"
"""What Grafana fills in for a variable of which everything is chosen."""
RATE_WINDOW = "15s"
RANGE = "1m"
PLAIN = {"__rate_interval": RATE_WINDOW, "__range": RANGE, "__interval": "5s"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One expression to look at; `still` is why zeros are right, if they are."""

    where: str
    expression: str
    still: str = ""
    is_bound: bool = False
    """A whole alert: nothing is what it answers while all is well."""


@dataclass(frozen=True, slots=True)
class Verdict:
    figure: Figure
    series: int = 0
    least: float = math.nan
    most: float = math.nan
    problem: str = ""


def panels(dashboards: Iterable[Dashboard] = DASHBOARDS) -> Iterator[Figure]:
    for dashboard in dashboards:
        for panel in dashboard.panels:
            for number, query in enumerate(panel.queries):
                where = f"{dashboard.name} / {panel.title} / {chr(ord('A') + number)}"
                text = filled(query.promql, dashboard)
                yield Figure(where, text, panel.still_reason(query))


def rules() -> Iterator[Figure]:
    """Records, figures of alerts, and the alerts."""
    for group in GROUPS:
        for record in group.records:
            yield Figure(f"rule {record.name}", record.promql, record.still)
            yield Figure(f"record {record.name}", record.name, record.still)
        for alert in group.alerts:
            for number, condition in enumerate(alert.conditions):
                where = f"alert {alert.name} / {chr(ord('A') + number)}"
                yield Figure(where, _figure(condition.figure), condition.still)
            yield Figure(f"alert {alert.name}", alert.promql, is_bound=True)


def filled(expression: str, dashboard: Dashboard) -> str:
    """With everything chosen, as Grafana would send it."""
    values = {variable.name: ALL for variable in dashboard.chosen} | PLAIN
    for name in sorted(values, key=len, reverse=True):
        expression = expression.replace(f"${name}", values[name])
    return expression


def judge(figure: Figure, ask: Callable[[str], Series]) -> Verdict:
    """`ask` is Prometheus: the answer over the whole time of the load."""
    try:
        found = ask(figure.expression)
    except QueryFailed as error:
        return Verdict(figure, problem=f"error: {error}")
    values = [value for series in found for value in _numbers(series)]
    if not found:
        return Verdict(figure, problem="" if figure.is_bound else "empty")
    if not values:
        return Verdict(figure, len(found), problem="" if figure.still else "never a number")
    least, most = min(values), max(values)
    is_zero = least == most == 0 and not figure.still and not figure.is_bound
    return Verdict(figure, len(found), least, most, "zero all the time" if is_zero else "")


def report(verdicts: Iterable[Verdict]) -> str:
    """A Markdown table; what failed comes first."""
    lines = ["| | expression of | series | least | most | |", "|---|---|--:|--:|--:|---|"]
    for one in sorted(verdicts, key=lambda verdict: not verdict.problem):
        mark = "✗" if one.problem else "✓"
        said = one.problem or (f"still: {one.figure.still}" if one.figure.still else "")
        lines.append(
            f"| {mark} | {one.figure.where} | {one.series} | {_short(one.least)} "
            f"| {_short(one.most)} | {said} |"
        )
    return "\n".join(lines) + "\n"


def _figure(text: str) -> str:
    return text.replace("@in", "cluster, namespace")


def _numbers(series: dict[str, Any]) -> list[float]:
    points = series["values"] if "values" in series else [series["value"]]
    return [value for _, text in points if not math.isnan(value := float(text))]


def _short(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
