"""Rows of a Spark task reach a partition once, whatever becomes of its attempts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

import pipeline.sink.sequence as sequence_module
from goqueue.errors import Forbidden, GoQueueError
from goqueue.wire.batch import RecordBatch, encode_columns
from pipeline.broker_access import Access
from pipeline.sink.errors import SinkError
from pipeline.sink.identity import Identity, of_stream, of_write, producer_id
from pipeline.sink.options import SinkOptions
from pipeline.sink.rows import Rows
from pipeline.sink.sequence import PartitionSequence
from tests.unit.pipeline.sink_log import SinkLog

IDENTITY = Identity(producer_id("query", "q", 3), 7, 3, "Spark partition 3 of micro-batch 7")
OPTIONS = SinkOptions(Access(("http://localhost",)), None, "none", 10, 1000, 60.0, True)


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_module, "PAUSE_S", 0.0)
    monkeypatch.setattr(sequence_module, "LOST_S", 0.002)


def attempt(
    log: SinkLog, identity: Identity = IDENTITY, options: SinkOptions = OPTIONS
) -> PartitionSequence:
    return PartitionSequence(cast(Any, log), "orders", 0, None, identity, options)


def rows(values: Sequence[str], first: int = 0) -> Rows:
    return Rows(range(first, first + len(values)), [value.encode() for value in values])


def write_all(one: PartitionSequence, values: Sequence[str], chunk: int = 3) -> None:
    for at in range(0, len(values), chunk):
        one.append(rows(values[at : at + chunk], at))
    one.finish()


def of(values: Sequence[str]) -> Counter[bytes]:
    return Counter(value.encode() for value in values)


def test_rows_are_stored_in_their_order() -> None:
    log = SinkLog()
    one = attempt(log)

    write_all(one, ["a", "b", "c", "d", "e", "f", "g"])

    assert list(log.values()) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert (one.tally.written, one.tally.found) == (7, 0)
    assert log.posts == 3


def test_a_second_attempt_stores_only_what_the_first_had_not() -> None:
    log = SinkLog()
    values = ["a", "b", "c", "d", "e", "f", "g"]
    first = attempt(log)
    first.append(rows(values[:4]))

    second = attempt(log)
    write_all(second, values)

    assert log.values() == of(values)
    assert (second.tally.written, second.tally.found) == (3, 4)


def test_the_order_and_the_batches_of_a_second_attempt_may_be_others() -> None:
    log = SinkLog()
    values = ["a", "a", "b", "c", "a", "d", "e", "b"]
    attempt(log).append(rows(values[:5]))

    write_all(attempt(log), values[::-1], chunk=5)

    assert log.values() == of(values)


def test_an_attempt_far_behind_its_predecessor_finds_all_of_it() -> None:
    log = SinkLog()
    values = [f"v{number}" for number in range(300)]
    write_all(attempt(log), values, chunk=1)

    again = attempt(log)
    write_all(again, values, chunk=7)

    assert log.values() == of(values)
    assert (again.tally.written, again.tally.found) == (0, 300)


def test_equal_rows_are_as_many_as_they_were() -> None:
    log = SinkLog()
    attempt(log).append(rows(["x"] * 4))

    write_all(attempt(log), ["x"] * 9)

    assert log.values() == {b"x": 9}


def test_rows_of_other_micro_batches_and_tasks_are_no_concern() -> None:
    log = SinkLog()
    values = ["x"] * 5
    write_all(attempt(log), values)

    write_all(attempt(log, replace(IDENTITY, epoch=8)), values)
    write_all(attempt(log, replace(IDENTITY, producer_id=99)), values)

    assert log.values() == {b"x": 15}


def test_what_is_left_of_an_earlier_micro_batch_is_shut_out() -> None:
    log = SinkLog()
    late = attempt(log)
    late.append(rows(["a"]))
    attempt(log, replace(IDENTITY, epoch=8)).append(rows(["b"]))

    with pytest.raises(SinkError, match=r"a later run than .* micro-batch 7 has written"):
        late.append(rows(["c"]))

    assert log.values() == {b"a": 1, b"b": 1}


def test_an_attempt_that_has_other_rows_fails() -> None:
    log = SinkLog()
    attempt(log).append(rows(["a", "b"]))
    again = attempt(log)
    again.append(rows(["a", "c"]))

    with pytest.raises(SinkError, match="stored 1 rows that this one does not have"):
        again.finish()

    tolerant = attempt(log, options=replace(OPTIONS, fails_on_changed_rows=False))
    write_all(tolerant, ["a", "c"])
    assert log.values() == {b"a": 1, b"b": 1, b"c": 1}


def test_rows_that_retention_took_can_not_be_told_from_others() -> None:
    log = SinkLog()
    values = ["a", "b", "c", "d", "e", "f"]
    write_all(attempt(log), values, chunk=2)
    log.forget(1)

    with pytest.raises(SinkError, match=r"2 rows that an earlier attempt .* are gone"):
        write_all(attempt(log), values)

    assert sum(log.values().values()) == 4


def test_a_refused_row_is_named() -> None:
    log = SinkLog()

    with pytest.raises(SinkError, match=r"row 5 of Spark partition 3 .*orders.*null"):
        attempt(log).append(Rows(range(4, 7), [b"a", None, b"c"]))


def test_a_key_that_may_not_read_is_told_when_it_must() -> None:
    class Blind(SinkLog):
        def read(self, *_: object, **__: object) -> Any:
            raise Forbidden("reading orders needs another role")

    log = Blind()
    attempt(log).append(rows(["a"]))

    with pytest.raises(SinkError, match="the API key may not read them"):
        attempt(log).append(rows(["a"]))


def test_rows_that_their_topic_knows_by_their_ids_are_left_out_once() -> None:
    """The topic's own deduplication, on top: what it leaves out has no row to be found."""
    log = SinkLog()
    ids: list[str | None] = ["i1", "i2", None, "i1", "i3", "i2", "i4", None]
    named = Rows(range(8), [b"v"] * 8, message_ids=ids)
    stored = Counter({"i1": 1, "i2": 1, "i3": 1, "i4": 1, None: 2})
    first = attempt(log)
    first.append(named.slice(0, 6))

    for order in (named, named.take(range(7, -1, -1))):
        again = attempt(log)
        again.append(order.slice(0, 3))
        again.append(order.slice(3, 8))
        again.finish()
        assert Counter(name for _base, one in log.stored for name in one.message_ids()) == stored


def test_what_can_not_be_done_in_time_is_the_clusters_error() -> None:
    log = SinkLog(trouble=3.0)

    with pytest.raises(GoQueueError):
        attempt(log, options=replace(OPTIONS, delivery_timeout_s=0.05)).append(rows(["a"]))


@pytest.mark.parametrize("seed", range(150))
def test_every_row_is_stored_once_over_any_kills_and_twins(seed: int) -> None:
    """Attempts die anywhere, run side by side, and see their rows in other orders and batches;
    answers get lost, leaders fall, and others write in between."""
    chance = random.Random(seed)
    log = SinkLog(seed, trouble=chance.choice((0.0, 0.2, 0.6)))
    values = [f"v{chance.randrange(12)}" for _ in range(chance.randint(1, 60))]
    depth, kills, twins, strangers = 0, chance.randint(0, 12), chance.randint(0, 6), 20

    def meanwhile() -> None:
        nonlocal depth, kills, twins, strangers
        if kills and chance.random() < 0.1:
            kills -= 1
            raise Killed
        if twins and depth < 3 and chance.random() < 0.15:
            depth, twins = depth + 1, twins - 1
            try:
                try_once()
            finally:
                depth -= 1
        if strangers and chance.random() < 0.1:
            strangers -= 1
            log.apply()
            other = encode_columns([b"another's"], producer_id=5, base_sequence=others())
            log.judge(RecordBatch.parse(other))

    def try_once() -> bool:
        mine = list(values)
        if chance.random() < 0.7:
            chance.shuffle(mine)
        try:
            write_all(attempt(log), mine, chunk=chance.randint(1, 10))
        except Killed:
            return False
        return True

    def others() -> int:
        history = log.state.producers.history(5)
        return 0 if history is None else history.next_sequence

    log.meanwhile = meanwhile
    while not try_once():
        pass
    log.meanwhile = lambda: None
    log.apply()

    found = log.values()
    del found[b"another's"]
    assert found == of(values)


def test_identities_are_the_same_for_every_attempt_and_nobody_elses() -> None:
    told = {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": "12"}

    one = of_stream(told.get, 4)

    assert one == of_stream(told.get, 4)
    assert one.epoch == 12
    assert len({one.producer_id, of_stream(told.get, 5).producer_id}) == 2
    assert 2**52 <= one.producer_id < 2**53
    assert of_write("load", 3)(4) == of_write("load", 3)(4)
    assert of_write("load", 3)(4).producer_id == of_write("load", 5)(4).producer_id
    assert of_write(None, 0)(4) != of_write(None, 0)(4)
    with pytest.raises(SinkError, match="does not know its streaming query"):
        of_stream({}.get, 0)
