"""The report's plots, as SVG that stands in a page: its text takes the page's colour, and its
lines and bars are seen on white and on black alike.

Each function takes the rows that it shows and gives the SVG, or "" where there is nothing to show.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib import dates, ticker
from matplotlib.figure import Figure

Rows = Sequence[dict[str, Any]]

INK = "#010203"
"""What is drawn in it takes the page's colour."""
COLOURS = ("#3b82c4", "#d9822b", "#2f9e6e", "#b95fc0", "#c9a227", "#7a8794")
WARNING = "#d64545"
LABEL_CHARACTERS = 36
BARS_MAX = 20
LANES = ("critical", "high", "normal", "low", "background")
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#8a939d",
    "grid.alpha": 0.35,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def latency(rows: Rows) -> str:
    """The three percentiles of each stage, by group, on a scale of powers of ten."""
    found = [row for row in rows if row["by"] == "group"]
    stages = [
        ("publish_to_delivery", "publish to delivery"),
        ("delivery_to_ack", "delivery to ack"),
    ]
    stages.append(("end_to_end", "end to end"))
    labels = [f"{row['group']}: {dict(stages)[row['stage']]}" for row in found]

    def draw(axes: Any) -> None:
        _grouped_bars(
            axes,
            labels,
            {name: [row[f"{name}_ms"] for row in found] for name in ("p50", "p95", "p99")},
        )
        _powers(axes.xaxis, "milliseconds")

    return _plot("latency", draw, height=0.6 * len(found)) if found else ""


def lag(rows: Rows, objective_s: float) -> str:
    """Each group's lag over time, with the objective as a line."""

    def draw(axes: Any) -> None:
        for group, colour in _coloured(row["group"] for row in rows):
            times: list[Any] = []
            lags: list[float] = []
            for row in rows:
                if row["group"] == group:
                    if times and times[-1] < row["from_at"]:
                        times += [times[-1], row["from_at"]]
                        lags += [0.0, 0.0]
                    times += [row["from_at"], row["until_at"]]
                    lags += [row["from_s"], row["until_s"]]
            axes.plot([*times, times[-1]], [*lags, 0.0], color=colour, label=_label(group))
        highest = max(row["until_s"] for row in rows)
        if objective_s <= 5 * highest:
            axes.axhline(objective_s, color=WARNING, linestyle="--", label="objective")
        axes.set_ylabel("age of the oldest (s)")
        axes.set_xlabel("time (UTC)")
        axes.set_ylim(bottom=0)
        _time_axis(axes)
        _legend(axes)

    return _plot("lag", draw, height=2.4) if rows else ""


def attempts(rows: Rows) -> str:
    """How many messages took how many deliveries, by group."""
    counts = sorted({row["deliveries"] for row in rows})[:BARS_MAX]
    by = {(row["group"], row["deliveries"]): row["messages"] for row in rows}

    def draw(axes: Any) -> None:
        groups = _coloured(row["group"] for row in rows)
        width = 0.8 / len(groups)
        for at, (group, colour) in enumerate(groups):
            places = [n + (at - (len(groups) - 1) / 2) * width for n in range(len(counts))]
            heights = [by.get((group, count), 0) for count in counts]
            bars = axes.bar(places, heights, width * 0.92, color=colour, label=_label(group))
            axes.bar_label(bars, [f"{n:,}" if n else "" for n in heights], fontsize=8, padding=2)
        axes.set_xticks(range(len(counts)), [str(count) for count in counts])
        _powers(axes.yaxis, "messages")
        axes.set_ylim(bottom=0, top=3 * max(by.values()))
        axes.set_xlabel("deliveries that a message took")
        axes.grid(visible=False, axis="x")
        _legend(axes)

    return _plot("attempts", draw, height=2.4) if rows else ""


def dead_letters(rows: Rows) -> str:
    """Deaths by group and reason."""
    found: dict[str, int] = {}
    for row in rows:
        label = f"{row['group']}: {row['reason'] or 'no reason given'}"
        found[label] = found.get(label, 0) + row["deaths"]
    return _bars("dead-letters", found, "deaths")


def lane_waits(rows: Rows) -> str:
    """Waits by group and lane, with the bound of the longest one."""
    found = [row for row in rows if row["lane"] is not None]

    def draw(axes: Any) -> None:
        _grouped_bars(
            axes,
            [f"{row['group']}: {row['lane']}" for row in found],
            {name: [row[f"{name}_ms"] for row in found] for name in ("p50", "p99", "max")},
        )
        bounds = [(at, row["bound_ms"]) for at, row in enumerate(found) if row["bound_ms"]]
        if bounds:
            places, marks = zip(*bounds, strict=True)
            axes.plot(marks, places, "|", color=WARNING, markersize=16, label="bound of the max")
            _legend(axes)
        _powers(axes.xaxis, "milliseconds")

    return _plot("lane-waits", draw, height=0.5 * len(found)) if found else ""


def delays(rows: Rows) -> str:
    """How late delayed messages were."""
    labels = ["the broker let it go" if not row["group"] else f"first delivery to {row['group']}"
              for row in rows]  # fmt: skip

    def draw(axes: Any) -> None:
        names = ("p50", "p95", "p99", "max")
        _grouped_bars(axes, labels, {name: [row[f"{name}_ms"] for row in rows] for name in names})
        _powers(axes.xaxis, "milliseconds after the time asked for")

    return _plot("delays", draw, height=0.7 * len(rows)) if rows else ""


def pauses(rows: Rows) -> str:
    """The longest pause of each rebalance, in order."""
    found = rows[-BARS_MAX:]
    labelled = {f"{r['group']} {r['rebalance']}: {r['cause']}": r["pause_max_ms"] for r in found}
    return _bars("pauses", labelled, "longest pause of a partition that moved (ms)", keep=True)


def hot_keys(rows: Rows) -> str:
    """The keys with most messages."""
    return _bars("hot-keys", {str(row["key"]): row["messages"] for row in rows}, "messages")


def partitions(rows: Rows) -> str:
    """Messages of each partition."""
    ordered = sorted(rows, key=lambda row: (row["topic"], row["partition"]))
    counted = {f"{row['topic']} {row['partition']}": row["messages"] for row in ordered}
    return _bars("partitions", counted, "messages", keep=True)


def _bars(name: str, counted: Mapping[str, float], unit: str, *, keep: bool = False) -> str:
    """Bars to the right, the largest at the top, unless their order is to be kept."""
    items = list(counted.items())
    if not keep:
        items.sort(key=lambda item: -item[1])
    items = items[:BARS_MAX]

    def draw(axes: Any) -> None:
        places = range(len(items))
        bars = axes.barh(places, [count for _, count in items], 0.7, color=COLOURS[0])
        axes.bar_label(bars, [f"{count:,.0f}" for _, count in items], fontsize=8, padding=3)
        axes.set_yticks(places, [_label(label) for label, _ in items])
        axes.set_ylim(len(items) - 0.5, -0.5)
        axes.set_xlabel(unit)
        axes.margins(x=0.08)
        axes.grid(visible=False, axis="y")

    return _plot(name, draw, height=0.28 * len(items)) if items else ""


def _grouped_bars(axes: Any, labels: Sequence[str], series: dict[str, Sequence[float]]) -> None:
    """For each label a bar of each series, with a legend above."""
    width = 0.8 / len(series)
    for at, (name, numbers) in enumerate(series.items()):
        places = [n + (at - (len(series) - 1) / 2) * width for n in range(len(labels))]
        bars = axes.barh(places, numbers, width * 0.92, color=COLOURS[at], label=name)
        axes.bar_label(bars, [f"{number:,.0f}" for number in numbers], fontsize=7, padding=2)
    axes.set_yticks(range(len(labels)), [_label(label) for label in labels])
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.margins(x=0.1)
    axes.grid(visible=False, axis="y")
    _legend(axes)


def _legend(axes: Any) -> None:
    """Above the plot, where it hides nothing."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(COLOURS))


def _powers(axis: Any, unit: str) -> None:
    """A scale on which small and large numbers are seen, with numbers that are read."""
    is_wide = axis.axis_name == "x"
    (axis.axes.set_xscale if is_wide else axis.axes.set_yscale)("symlog", linthresh=1)
    axis.set_major_formatter(ticker.FuncFormatter(lambda number, _: f"{number:,.0f}"))
    axis.set_label_text(f"{unit} (ten times as many each step)" if is_wide else unit)


def _plot(name: str, draw: Callable[[Any], None], *, height: float) -> str:
    """Drawn in a figure of its own: no state is shared, no window opened."""
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(9, 1.1 + max(height, 0.6)), layout="constrained")
        draw(figure.add_subplot())
        out = io.StringIO()
        fonts = logging.getLogger("matplotlib.font_manager")
        level = fonts.level
        fonts.setLevel(logging.ERROR)  # a character that no font here has is the browser's to find
        try:
            figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        finally:
            fonts.setLevel(level)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # one page holds many plots: their parts are named apart
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    return re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)


def _coloured(groups: Any) -> list[tuple[str, str]]:
    """Each of them once, with a colour."""
    found = list(dict.fromkeys(groups))
    return [(group, COLOURS[at % len(COLOURS)]) for at, group in enumerate(found)]


def _time_axis(axes: Any) -> None:
    locator = dates.AutoDateLocator(tz="UTC")
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz="UTC"))


def _label(text: object) -> str:
    """Short, and of characters that can be seen."""
    seen = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in str(text))
    if len(seen) <= LABEL_CHARACTERS:
        return seen
    return seen[: LABEL_CHARACTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
