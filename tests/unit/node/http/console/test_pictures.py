"""The pictures of timelines and of rebalances, as figures."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.api.members import MoveView, RebalanceView
from node.api.traces import TraceEvent
from node.http.console.pauses import draw_pauses
from node.http.console.timeline import DRAWN_MAX, Picture, draw, events_of

T = 1_736_866_800_000
STORY = (
    TraceEvent(T, "PUBLISHED", {"lane": "high"}),
    TraceEvent(T + 3, "REPLICATED", {"nodes": ["a", "b"]}),
    TraceEvent(T + 3, "DELAYED", {"deliver_at_ms": T + 500}),
    TraceEvent(T + 500, "DUE"),
    TraceEvent(T + 510, "DELIVERED", {"group": "g", "attempt": 1, "visible_until_ms": T + 900}),
    TraceEvent(T + 900, "REDELIVERED", {"group": "g", "attempt": 1}),
    TraceEvent(T + 950, "DELIVERED", {"group": "g", "attempt": 2, "visible_until_ms": T + 5000}),
    TraceEvent(T + 960, "NACKED", {"group": "g", "attempt": 2, "retry_at_ms": T + 2000}),
    TraceEvent(T + 2001, "DELIVERED", {"group": "g", "attempt": 3, "visible_until_ms": T + 9000}),
    TraceEvent(T + 2100, "ACKNOWLEDGED", {"group": "g", "attempt": 3}),
    TraceEvent(T + 2200, "DELIVERED", {"group": "h", "attempt": 1, "visible_until_ms": T + 99_000}),
)


def drawn(*events: TraceEvent, now_ms: int = T + 10_000) -> Picture:
    picture = draw(events, now_ms)
    assert picture is not None
    return picture


def test_a_group_has_a_row_each_lease_a_bar_and_each_event_its_number() -> None:
    picture = drawn(*STORY)

    assert [row.name for row in picture.rows] == ["the message", "g", "h"]
    assert [bar.kind for bar in picture.rows[0].bars] == ["wait"]
    assert [bar.kind for bar in picture.rows[1].bars] == ["failed", "failed", "wait", "ok"]
    assert [bar.kind for bar in picture.rows[2].bars] == ["open"]
    numbers = sorted(mark.number for row in picture.rows for mark in row.marks)
    assert numbers == list(range(1, len(STORY) + 1))
    assert picture.now_x is not None, "a lease stands"


def test_why_a_lease_ended_is_told_in_words_and_what_people_say_as_they_said_it() -> None:
    lost, said = events_of(
        [
            TraceEvent(T, "REDELIVERED", {"group": "g", "reason": "consumer_lost"}),
            TraceEvent(T, "NACKED", {"group": "g", "reason": "no_such_account"}),
        ]
    )

    assert lost.details == [("reason", "consumer lost")]
    assert said.details == [("reason", "no_such_account")]


def test_now_is_not_shown_once_nothing_is_open() -> None:
    assert drawn(*STORY[:10]).now_x is None


def test_a_lease_that_was_extended_is_open_until_its_new_end() -> None:
    extended = TraceEvent(
        T + 20, "EXTENDED", {"group": "g", "attempt": 1, "visible_until_ms": T + 60_000}
    )
    short = TraceEvent(
        T + 10, "DELIVERED", {"group": "g", "attempt": 1, "visible_until_ms": T + 50}
    )
    bars = drawn(STORY[0], short, extended).rows[1].bars

    assert [bar.kind for bar in bars] == ["open"]
    assert "1 m" in bars[0].title


def test_more_events_than_are_drawn_are_counted() -> None:
    events = [TraceEvent(T + n, "EXTENDED", {"group": "g"}) for n in range(DRAWN_MAX + 30)]

    assert drawn(*events).left_out == 30
    assert draw((), T) is None


KINDS = st.sampled_from(
    ["PUBLISHED", "DELIVERED", "ACKNOWLEDGED", "NACKED", "REDELIVERED", "DELAYED", "DUE", "OTHER"]
)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 10**9), KINDS, st.sampled_from(["", "a", "b"]), st.integers(-5, 10**12)
    ),
    min_size=1,
    max_size=30,
)


@given(EVENTS, st.integers(0, 10**12))
def test_whatever_happened_all_of_it_lies_within_the_picture_and_in_order(
    told: list[tuple[int, str, str, int]], now: int
) -> None:
    events = [
        TraceEvent(
            T + at,
            kind,
            {
                **({"group": group} if group else {}),
                "visible_until_ms": T + other,
                "deliver_at_ms": T + other,
                "retry_at_ms": T + other,
            },
        )
        for at, kind, group, other in sorted(told)
    ]
    picture = drawn(*events, now_ms=T + now)

    assert list(picture.times) == sorted(picture.times)
    for row in picture.rows:
        assert row.y < picture.height
        xs = [mark.x for mark in row.marks]
        assert all(later - before > 20 for before, later in pairwise(xs))
        for bar in row.bars:
            assert bar.x >= 0 and bar.width > 0 and bar.x + bar.width <= picture.width + 4


def rebalance(id: int, took_ms: int, *pauses: int, ended: bool = True) -> RebalanceView:
    moves = [MoveView("t", n, "a", "b", pause, 0, n % 2 == 1) for n, pause in enumerate(pauses)]
    return RebalanceView(id, "join", ["a"], T, T + took_ms if ended else 0, len(moves), moves)


def test_rebalances_stand_newest_first_on_one_scale() -> None:
    picture = draw_pauses([rebalance(1, 100, 40, 100), rebalance(2, 50)])
    assert picture is not None

    assert [row.label for row in picture.rows] == ["2 · join", "1 · join"]
    assert picture.rows[1].width == pytest.approx(2 * picture.rows[0].width)
    assert [mark.fenced for mark in picture.rows[1].marks] == [True, False]
    assert 4 <= len(picture.ticks) <= 8 and picture.ticks[0][1] == 0


@pytest.mark.parametrize("longest_ms", [0, 1, 9, 100, 999, 30_000, 86_400_000])
def test_the_scale_reaches_the_longest(longest_ms: int) -> None:
    picture = draw_pauses([rebalance(1, longest_ms, longest_ms)])
    assert picture is not None

    assert picture.ticks[-1][1] >= longest_ms
    assert all(mark.x <= picture.width for row in picture.rows for mark in row.marks)
    assert len(picture.ticks) <= 8


def test_a_rebalance_that_runs_has_no_length_yet() -> None:
    picture = draw_pauses([rebalance(1, 0, ended=False)])
    assert picture is not None

    assert picture.rows[0].running
    assert draw_pauses([]) is None
