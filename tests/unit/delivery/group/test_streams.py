"""A lease of a stream is over when the stream is: an orderly end is free, a loss an attempt."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from delivery.entries.ops import (
    ACK,
    EXTEND,
    LEASE_EXPIRED,
    NACK,
    OK,
    CountResult,
    Delivered,
    DeliveredToStream,
    Expired,
    Granted,
    Settled,
    SettledResult,
    Sought,
    StreamId,
    StreamsEnded,
    Tick,
    UnknownGroup,
    feature_of,
)
from delivery.group.rules import FENCED
from delivery.lookup.verdict import Around, Subject
from delivery.lookup.why import why
from delivery.state.partition import SNAPSHOT_VERSION, STREAMED_VERSION, PartitionState
from log.levels import Feature
from tests.unit.delivery.desk import Desk, all_of

RUN = 0xFFFF_FFFF_FFFF_FFFF
FIRST, SECOND, OTHER = StreamId(RUN, 1), StreamId(RUN, 2), StreamId(7, 1)
YEAR_MS = 366 * 24 * 3600 * 1000


class Streamed(Desk):
    """A partition with a group in it, ten messages, and streams."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.open(**config)
        self.publish(10)

    def take(
        self, stream: StreamId | None, limit: int = 2, visibility_ms: int = 0, **what: Any
    ) -> Granted:
        offsets = self.group().select(limit, self.now_ms)
        op = Delivered(1, "m", visibility_ms or 30_000, offsets, **what)
        if stream is not None:
            op = DeliveredToStream(1, "m", visibility_ms, offsets, stream=stream, **what)
        (result,) = self.do(op)
        assert isinstance(result, Granted)
        return result

    def end(self, stream: StreamId, *, lost: bool = False) -> int:
        (result,) = self.do(StreamsEnded(1, stream.run, [stream.number], lost))
        assert isinstance(result, CountResult)
        return result.count

    def codes(self, granted: Granted, action: int = ACK) -> list[int]:
        (result,) = self.do(Settled(1, action, all_of(granted)))
        assert isinstance(result, SettledResult)
        return [settle.code for settle in result.settles]


@pytest.fixture
def desk() -> Streamed:
    return Streamed()


def told(granted: Granted) -> list[tuple[int, int, str]]:
    return [(grant.offset, grant.attempt, grant.reason) for grant in granted.grants]


def test_entries_about_streams_need_their_level() -> None:
    assert feature_of([Tick(), DeliveredToStream(1, "m", 0, [])]) == Feature.STREAMS
    assert feature_of([StreamsEnded(1, 2, [])]) == Feature.STREAMS


def test_a_lease_without_a_visibility_has_no_deadline(desk: Streamed) -> None:
    granted = desk.take(FIRST)
    assert granted.deadline_ms == 0
    assert desk.group().next_deadline_ms() is None

    desk.now_ms += YEAR_MS
    assert desk.do(Expired(1, all_of(granted))) == [CountResult(0)]

    assert desk.codes(granted) == [OK, OK]


def test_a_streams_lease_with_a_visibility_runs_out_as_any_other(desk: Streamed) -> None:
    granted = desk.take(FIRST, visibility_ms=500)
    assert granted.deadline_ms == desk.group().next_deadline_ms() == desk.now_ms + 500

    desk.now_ms += 500
    assert desk.do(Expired(1, all_of(granted))) == [CountResult(2)]
    assert desk.end(FIRST) == 0


def test_who_is_no_stream_has_no_lease_without_a_deadline(desk: Streamed) -> None:
    offsets = desk.group().select(1, desk.now_ms)
    (granted,) = desk.do(Delivered(1, "m", 0, offsets))

    assert isinstance(granted, Granted)
    assert granted.deadline_ms == desk.now_ms


def test_an_orderly_end_puts_back_in_front_and_counts_no_attempt(desk: Streamed) -> None:
    granted = desk.take(FIRST, 3)
    assert desk.codes(Granted(granted.delivery, 0, granted.grants[1:2])) == [OK]

    assert desk.end(FIRST) == 2

    assert desk.group().counters.delivered == 1
    assert told(desk.take(None, 4)) == [(0, 1, ""), (2, 1, ""), (3, 1, ""), (4, 1, "")]
    assert desk.codes(granted) == [LEASE_EXPIRED, 1, LEASE_EXPIRED]


def test_a_loss_counts_an_attempt_and_is_ready_at_once(desk: Streamed) -> None:
    desk.take(FIRST)

    assert desk.end(FIRST, lost=True) == 2

    assert desk.group().counters.fenced == 2
    assert told(desk.take(SECOND, 3)) == [(0, 2, FENCED), (1, 2, FENCED), (2, 1, "")]


def test_a_message_that_kills_its_consumers_is_a_dead_letter_at_last() -> None:
    desk = Streamed(max_attempts=2)
    for number in (1, 2):
        desk.take(StreamId(RUN, number), 1)
        desk.end(StreamId(RUN, number), lost=True)

    (letter,) = desk.group().dead.values()
    assert (letter.attempts, letter.reason) == (2, FENCED)
    assert told(desk.take(FIRST, 1)) == [(1, 1, "")]


def test_an_end_is_of_the_streams_that_it_names_or_of_a_whole_run(desk: Streamed) -> None:
    for stream in (FIRST, SECOND, OTHER, None):
        desk.take(stream, 1)

    assert desk.end(SECOND) == 1
    assert desk.end(SECOND, lost=True) == 0  # repeated, whatever it says now
    assert desk.group().leases.runs == {RUN, 7}
    assert desk.do(StreamsEnded(1, RUN, [])) == [CountResult(1)]
    assert desk.group().leases.runs == {7}
    assert sorted(desk.group().leases) == [2, 3]


def test_two_streams_of_one_entry_end_apart(desk: Streamed) -> None:
    first, second = desk.do(
        DeliveredToStream(1, "m", 0, [0, 1], stream=FIRST),
        DeliveredToStream(1, "m", 0, [2, 3], stream=SECOND),
    )
    assert isinstance(first, Granted)
    assert isinstance(second, Granted)
    assert first.delivery == second.delivery

    assert desk.end(FIRST) == 2
    (extended,) = desk.do(Settled(1, EXTEND, [(first.delivery, [2])], visibility_ms=100))
    assert isinstance(extended, SettledResult)
    assert desk.end(SECOND) == 2


def test_an_extended_lease_has_a_deadline_and_stays_its_streams(desk: Streamed) -> None:
    granted = desk.take(FIRST)
    (result,) = desk.do(Settled(1, EXTEND, all_of(granted), visibility_ms=100))
    assert isinstance(result, SettledResult)
    assert {settle.visible_at_ms for settle in result.settles} == {desk.now_ms + 100}
    assert desk.group().next_deadline_ms() == desk.now_ms + 100

    assert desk.end(FIRST) == 2


def test_what_is_settled_sought_or_handed_over_is_the_streams_no_more(desk: Streamed) -> None:
    granted = desk.take(FIRST)
    desk.codes(granted, NACK)
    assert desk.group().leases.runs == set()

    desk.take(FIRST)
    desk.do(Sought(1, 0))

    assert desk.end(FIRST) == 0


def test_a_repeat_of_a_grant_is_the_same(desk: Streamed) -> None:
    granted = desk.take(FIRST, request=9)
    (again,) = desk.do(DeliveredToStream(1, "m", 0, [4], 9, stream=FIRST))

    assert again == granted


def test_a_group_that_is_not_there_is_told_so(desk: Streamed) -> None:
    assert desk.do(StreamsEnded(2, RUN, [1])) == [UnknownGroup(2)]


def test_snapshots_have_the_streams_in_a_version_of_their_own(desk: Streamed) -> None:
    def version() -> object:
        return msgspec.msgpack.decode(desk.state.snapshot())[0]

    desk.take(None)
    assert version() == SNAPSHOT_VERSION
    plain = msgspec.msgpack.decode(desk.state.snapshot())

    desk.take(FIRST)
    desk.take(SECOND, visibility_ms=500)
    assert version() == STREAMED_VERSION
    desk.restart()
    assert desk.end(FIRST, lost=True) == desk.end(SECOND) == 2
    assert version() == SNAPSHOT_VERSION
    groups = [state[9][12] for state in (plain, msgspec.msgpack.decode(desk.state.snapshot()))]
    assert len(groups[0][0]) == len(groups[1][0])

    follower = PartitionState()
    follower.restore(desk.state.snapshot())
    assert follower.snapshot() == desk.state.snapshot()


def test_why_knows_a_lease_without_a_deadline(desk: Streamed) -> None:
    desk.take(FIRST, 1)
    desk.now_ms += YEAR_MS

    found = why(desk.queue, desk.group(), Subject(0), desk.now_ms, Around())

    assert (found.state, found.eta_ms) == ("in_flight", 0)
    (reason,) = found.reasons
    assert (reason.code, reason.until_ms) == ("in_flight", 0)
    assert reason.facts["stream"] == str(FIRST) == "ffffffffffffffff-1"
    assert "over" not in reason.facts


def test_a_full_group_of_streams_has_no_time_at_which_there_is_room() -> None:
    desk = Streamed(in_flight_max=2)
    desk.take(FIRST)

    found = why(desk.queue, desk.group(), Subject(2), desk.now_ms, Around(waiting=True))

    (limit,) = [reason for reason in found.reasons if reason.code == "in_flight_limit"]
    assert (limit.until_ms, "over" in limit.facts) == (0, False)
