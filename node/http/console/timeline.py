"""A message's timeline as a picture: a row for the message and one a group, leases as bars, events
as numbered marks.

Times stand in their order, and a gap is as wide as its logarithm: what happened within
milliseconds and what took days fit one picture. Marks carry the numbers of the table below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from node.api.traces import TraceEvent
from node.http.console.cells import clock, seen, span

DRAWN_MAX = 200
"""Events in the picture; the table has more."""
MESSAGE = "message"
WIDTH_MIN = 640.0
LEFT, RIGHT = 28.0, 40.0
AXIS = 40.0
ROW = 68.0
MARK = 24.0
"""The room that a mark needs."""
LABELLED = 52.0
"""A gap at least so wide says how long it is."""
LETTER = 6.4
"""The width of a character, about."""

_TONES = {
    "PUBLISHED": "accent",
    "REPLICATED": "good",
    "ACKNOWLEDGED": "good",
    "DELIVERED": "accent",
    "NACKED": "warn",
    "REDELIVERED": "warn",
    "LEASE_EXPIRED": "warn",
    "REJECTED": "bad",
    "DEAD_LETTERED": "bad",
    "PARKED": "warn",
    "HALTED": "bad",
    "CANCELLED": "bad",
    "EXPIRED": "bad",
    "PURGED": "bad",
}
_ENDS_LEASE = frozenset(
    (
        "ACKNOWLEDGED",
        "NACKED",
        "REDELIVERED",
        "LEASE_EXPIRED",
        "REJECTED",
        "RELEASED",
        "CANCELLED",
        "EXPIRED",
        "PURGED",
        "REPLAYED",
        "DELIVERED",
    )
)
_GOOD_END = frozenset(("ACKNOWLEDGED",))


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the table; `number` is its mark's."""

    number: int
    time_ms: int
    type: str
    tone: str
    group: str
    details: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Mark:
    number: int
    x: float
    tone: str
    title: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A lease (`ok`, `failed` or `open`), or a wait (`wait`)."""

    x: float
    width: float
    kind: str
    label: str
    title: str


@dataclass(slots=True)
class Row:
    """What happened to the message itself, or for one group."""

    name: str
    y: float
    marks: list[Mark] = field(default_factory=list[Mark])
    bars: list[Bar] = field(default_factory=list[Bar])


@dataclass(frozen=True, slots=True)
class Picture:
    """`gaps` are (x of the middle, how long); `now_x` is where now is, None where the story is
    over."""

    width: float
    height: float
    left: float
    right: float
    axis: float
    rows: Sequence[Row]
    gaps: Sequence[tuple[float, str]]
    times: Sequence[float]
    now_x: float | None
    left_out: int
    begins: str
    ends: str


def events_of(events: Sequence[TraceEvent]) -> list[Event]:
    """As the table has them."""
    return [
        Event(
            number,
            event.time_ms,
            event.type,
            _TONES.get(event.type, "plain"),
            str(event.attributes.get("group", "")),
            _details(event),
        )
        for number, event in enumerate(events, 1)
    ]


def draw(events: Sequence[TraceEvent], now_ms: int) -> Picture | None:
    """None of nothing."""
    drawn = events[:DRAWN_MAX]
    if not drawn:
        return None
    told = events_of(drawn)
    spans = _spans(drawn, now_ms if len(drawn) == len(events) else drawn[-1].time_ms)
    is_open = any(
        one.kind == "open" or (one.kind == "wait" and one.end_ms >= now_ms) for one in spans
    )
    known = {event.time_ms for event in drawn} | {one.end_ms for one in spans}
    known |= {now_ms} if is_open and len(drawn) == len(events) else set()
    scale = _Scale(sorted(known), _crowds(told))
    rows = {MESSAGE: Row("the message", AXIS)}
    for event in told:
        if event.group and event.group not in rows:
            rows[event.group] = Row(event.group, AXIS + ROW * len(rows))
    for name, row in rows.items():
        mine = sorted((one for one in spans if one.row == name), key=lambda one: one.begin_ms)
        ends = [*(scale.x(one.begin_ms) for one in mine[1:]), scale.width]
        row.bars = [_bar(one, scale, end) for one, end in zip(mine, ends, strict=False)]
    taken: dict[tuple[str, int], int] = {}
    for event in told:
        place = (event.group or MESSAGE, event.time_ms)
        at = taken[place] = taken.get(place, -1) + 1
        title = f"{event.number}. {event.type} at {clock(event.time_ms)}"
        rows[place[0]].marks.append(
            Mark(event.number, scale.x(event.time_ms) + at * MARK, event.tone, title)
        )
    return Picture(
        width=scale.width,
        height=AXIS + ROW * len(rows) + 6,
        left=LEFT,
        right=scale.width - RIGHT / 2,
        axis=AXIS,
        rows=list(rows.values()),
        gaps=scale.gaps,
        times=scale.xs,
        now_x=scale.x(now_ms) if now_ms in scale else None,
        left_out=len(events) - len(drawn),
        begins=clock(scale.first_ms),
        ends=clock(scale.last_ms),
    )


@dataclass(frozen=True, slots=True)
class _Span:
    row: str
    begin_ms: int
    end_ms: int
    kind: str
    label: str


def _spans(events: Sequence[TraceEvent], now_ms: int) -> list[_Span]:
    """Leases, and what the message waited for."""
    found: list[_Span] = []
    leases: dict[str, TraceEvent] = {}
    until: dict[str, int] = {}
    waits: dict[str, tuple[int, int]] = {}
    for event in events:
        group = str(event.attributes.get("group", ""))
        lease = leases.get(group)
        if event.type in ("DUE", "CANCELLED", "EXPIRED") and MESSAGE in waits:
            found.append(_wait(MESSAGE, waits.pop(MESSAGE), event.time_ms, "delayed"))
        if event.type == "DELAYED":
            waits[MESSAGE] = (event.time_ms, _ms(event, "deliver_at_ms", event.time_ms))
        if not group:
            continue
        if lease is not None and event.type in _ENDS_LEASE:
            kind = "ok" if event.type in _GOOD_END else "failed"
            if event.type in ("RELEASED", "REPLAYED"):
                kind = "plain"
            found.append(_lease(group, leases.pop(group), event.time_ms, kind))
        if event.type == "NACKED" and "retry_at_ms" in event.attributes:
            waits[group] = (event.time_ms, _ms(event, "retry_at_ms", event.time_ms))
        elif group in waits:
            found.append(_wait(group, waits.pop(group), event.time_ms, "backoff"))
        if event.type == "DELIVERED":
            leases[group] = event
            until[group] = _ms(event, "visible_until_ms", now_ms)
        elif event.type == "EXTENDED":
            until[group] = _ms(event, "visible_until_ms", now_ms)
    last_ms = events[-1].time_ms
    for group, event in leases.items():
        found.append(_lease(group, event, max(until[group], last_ms), "open"))
    for row, (begin_ms, end_ms) in waits.items():
        found.append(
            _wait(row, (begin_ms, end_ms), end_ms, "delayed" if row == MESSAGE else "backoff")
        )
    return found


def _lease(group: str, event: TraceEvent, end_ms: int, kind: str) -> _Span:
    attempt = event.attributes.get("attempt", "")
    who = event.attributes.get("consumer", event.attributes.get("member", ""))
    label = f"attempt {attempt}" + (f" · {who}" if who else "")
    return _Span(group, event.time_ms, max(end_ms, event.time_ms), kind, label)


def _wait(row: str, known: tuple[int, int], until_ms: int, label: str) -> _Span:
    begin_ms, end_ms = known
    return _Span(
        row, begin_ms, max(begin_ms, min(end_ms, until_ms) if until_ms else end_ms), "wait", label
    )


def _ms(event: TraceEvent, name: str, otherwise: int) -> int:
    value = event.attributes.get(name)
    return value if isinstance(value, int) else otherwise


def _bar(one: _Span, scale: _Scale, end: float) -> Bar:
    """Its label stands below it, and ends where the next bar begins."""
    x = scale.x(one.begin_ms)
    width = max(4.0, scale.x(one.end_ms) - x)
    text, room = seen(one.label), int((end - x) / LETTER) - 1
    label = text if len(text) <= room else f"{text[: room - 1]}…" if room > 4 else ""
    lasted = span(one.end_ms - one.begin_ms)
    what = {"ok": "acknowledged", "failed": "failed", "open": "lease stands", "wait": "waits"}
    title = f"{one.label}: {what.get(one.kind, 'given back')}, {lasted}"
    return Bar(x, width, one.kind, label, seen(title))


def _crowds(events: Sequence[Event]) -> dict[int, int]:
    """How many marks stand side by side at a time, in the fullest row."""
    counts: dict[tuple[str, int], int] = {}
    crowds: dict[int, int] = {}
    for event in events:
        place = (event.group, event.time_ms)
        counts[place] = counts.get(place, 0) + 1
        crowds[event.time_ms] = max(crowds.get(event.time_ms, 1), counts[place])
    return crowds


class _Scale:
    """Where each time stands; the gap after a time makes room for the marks that crowd there."""

    def __init__(self, times_ms: Sequence[int], crowds: Mapping[int, int]) -> None:
        widths = [
            MARK * crowds.get(at, 1) + 22 * math.log10(1 + later - at)
            for at, later in pairwise(times_ms)
        ]
        tail = MARK * (crowds.get(times_ms[-1], 1) - 1)
        room = WIDTH_MIN - LEFT - RIGHT - tail
        stretch = max(1.0, room / sum(widths)) if widths else 1.0
        stretch = min(stretch, 4.0)
        self.first_ms, self.last_ms = times_ms[0], times_ms[-1]
        self._at: dict[int, float] = {times_ms[0]: LEFT}
        self.gaps: list[tuple[float, str]] = []
        x = LEFT
        for before, at, width in zip(times_ms, times_ms[1:], widths, strict=False):
            if width * stretch >= LABELLED:
                self.gaps.append((x + width * stretch / 2, span(at - before)))
            x += width * stretch
            self._at[at] = x
        self.width = max(WIDTH_MIN, x + tail + RIGHT)

    @property
    def xs(self) -> list[float]:
        return list(self._at.values())

    def x(self, time_ms: int) -> float:
        return self._at[time_ms]

    def __contains__(self, time_ms: int) -> bool:
        return time_ms in self._at


def _details(event: TraceEvent) -> list[tuple[str, str]]:
    """All but the group, in words; times as moments. Of a lease that just ended the reason is a
    name, else it is what somebody said."""
    shown: list[tuple[str, str]] = []
    for name, value in event.attributes.items():
        if name == "group" or (name == "member" and "consumer" in event.attributes):
            continue
        if name == "reason" and event.type == "REDELIVERED":
            shown.append((name, str(value).replace("_", " ")))
        elif name.endswith("_ms") and isinstance(value, int):
            shown.append((name.removesuffix("_ms").replace("_", " "), clock(value)))
        elif isinstance(value, list | tuple):
            shown.append((name.replace("_", " "), ", ".join(map(str, value))))
        else:
            shown.append((name.replace("_", " "), str(value)))
    return shown
