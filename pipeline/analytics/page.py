"""The report as one page that asks nothing of the network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline.analytics.analysis import Goals, Table
from pipeline.analytics.sections import SECTIONS, Rows, Section

ROWS_OPEN_MAX = 20
"""Of each table at first sight."""
ROWS_SHOWN_MAX = 200
"""Of each table at all; files hold all."""
UNITS = {"ms": " (ms)", "s": " (s)", "bytes": " (bytes)"}
SHARES = ("share", "attainment", "cumulative_share", "top_share", "busiest_share", "share_of_bound")


@dataclass(frozen=True, slots=True)
class About:
    """What a report is of; `notes` say what it lacks."""

    topic: str
    group: str | None
    source: str
    window: str
    made_at: datetime
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """A number or a text, as it is and as a reader sees it."""

    value: str
    shown: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class Headline:
    """One of the figures at the top; `tone` is good, bad or nothing."""

    id: str
    name: str
    value: str
    shown: str
    tone: str = ""


def page(tables: Mapping[str, Table], about: About, goals: Goals) -> str:
    """The HTML of the report."""
    rows = {name: table.rows.to_pylist() for name, table in tables.items()}
    return (
        templates()
        .get_template("report.html")
        .render(
            topic=about.topic,
            group=about.group,
            source=about.source,
            window=about.window,
            made_at=_time(about.made_at),
            notes=about.notes,
            headlines=headlines(rows, goals),
            sections=[_section(section, tables, rows, goals) for section in SECTIONS],
        )
    )


def templates() -> jinja2.Environment:
    loader = jinja2.PackageLoader(__package__)
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)


def headlines(rows: Mapping[str, Rows], goals: Goals) -> list[Headline]:
    """What a reader wants to know first."""
    summary = rows["summary"][0]
    found = [
        Headline(name, name.replace("_", " "), str(summary[name]), f"{summary[name]:,}")
        for name in ("messages", "deliveries", "acknowledged")
    ]
    found.append(_counted("dead", "dead letters", summary["dead"]))
    ends = [r for r in rows["latency"] if r["stage"] == "end_to_end" and r["by"] == "group"]
    if ends:
        worst = max(ends, key=lambda row: row["p99_ms"])
        name = f"end to end p99, {worst['group']}"
        found.append(Headline("p99", name, str(worst["p99_ms"]), _span(worst["p99_ms"])))
    if rows["lag_slo"]:
        observed = sum(row["observed_s"] for row in rows["lag_slo"])
        over = sum(row["over_s"] for row in rows["lag_slo"])
        attained = 1 - over / observed
        name = f"lag within {_span(goals.lag_objective_ms)} (target {goals.lag_target:.3%})"
        tone = "good" if attained >= goals.lag_target else "bad"
        found.append(Headline("attainment", name, str(attained), f"{attained:.3%}", tone))
    bugs = sum(row["findings"] for row in rows["audit"] if row["verdict"] == "found")
    found.append(_counted("audit", "audit: gaps, duplicates, order", bugs))
    over_bound = sum(row["over_bound"] for row in rows["lane_waits"])
    found.append(_counted("over_bound", "lane waits over their bound", over_bound))
    return found


def _counted(id: str, name: str, count: int) -> Headline:
    """A count that is best 0."""
    return Headline(id, name, str(count), f"{count:,}", "bad" if count else "good")


def _section(
    section: Section, tables: Mapping[str, Table], rows: Mapping[str, Rows], goals: Goals
) -> dict[str, Any]:
    is_empty = not rows[section.tables[0]]
    return {
        "id": section.tables[0],
        "title": section.title,
        "reading": section.reading,
        "nothing": section.nothing,
        "is_empty": is_empty,
        # made by matplotlib, which escapes what it is given
        "plot": Markup(section.draw(rows, goals)) if section.draw and not is_empty else "",
        "tables": [_table(tables[name], rows[name]) for name in section.tables],
    }


def _table(table: Table, rows: Rows) -> dict[str, Any]:
    names = list(table.rows.column_names)
    shown = [[_cell(name, row[name]) for name in names] for row in rows[:ROWS_SHOWN_MAX]]
    numeric = [
        any(row[at].is_number for row in shown) and all(row[at].is_number or not row[at].value
        for row in shown) for at in range(len(names))
    ]  # fmt: skip
    columns = [
        {"shown": _heading(name), "is_number": is_number}
        for name, is_number in zip(names, numeric, strict=True)
    ]
    return {
        "name": table.name,
        "computes": table.query.computes[:1].upper() + table.query.computes[1:],
        "columns": columns,
        "parts": [part for part in (shown[:ROWS_OPEN_MAX], shown[ROWS_OPEN_MAX:]) if part],
        "more": max(0, len(rows) - ROWS_SHOWN_MAX),
    }


def _heading(name: str) -> str:
    stem, _, unit = name.rpartition("_")
    if stem and unit in UNITS:
        return stem.replace("_", " ") + UNITS[unit]
    return name.replace("_", " ")


def _cell(name: str, value: Any) -> Shown:
    if value is None:
        return Shown("", "\N{EN DASH}", False)
    if isinstance(value, bool):
        return Shown(str(value).lower(), "yes" if value else "no", False)
    if isinstance(value, int):
        return Shown(str(value), f"{value:,}", True)
    if isinstance(value, float):
        return Shown(repr(value), f"{value:.2%}" if name in SHARES else _number(value), True)
    if isinstance(value, datetime):
        return Shown(value.isoformat(), _time(value), False)
    text = str(value)
    return Shown(text, _visible(text), False)


def _number(value: float) -> str:
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _span(ms: float) -> str:
    """A duration in the largest unit that it has at least one of."""
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{_number(round(ms / size, 2))} {unit}"
    return f"{_number(round(ms, 2))} ms"


def _time(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _visible(text: str) -> str:
    """Without what would be seen as nothing, or turn the line around."""
    return re.sub(
        r"[^\S ]|[^\s\S]|[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]",
        "\N{REPLACEMENT CHARACTER}",
        text,
    )
