"""The queue's figures: counted once per leadership, labelled within bounds."""

from __future__ import annotations

from delivery.config import GroupConfig
from delivery.dedup.requests import REQUEST_BYTES
from delivery.entries.ops import ACK, Delivered, Op, OpenGroup, Settled, encode_ops
from delivery.entries.records import AppendBatch, encode_records
from delivery.state.partition import PartitionState
from goqueue.wire.batch import Record, RecordBatch, encode_batch
from goqueue.wire.types import Offset
from log.entry import EntryKind, make_entry
from node.metrics import Metrics
from node.partition.queue_metrics import PartitionCounters, tell_queue

PLACE = 'consumer_group="g",topic="t"'


class Led:
    """A partition that is led here."""

    topic = "t"

    def __init__(self) -> None:
        self.state = PartitionState()
        self.index = 0
        batch = RecordBatch.parse(encode_batch([Record(b"x", lane=n) for n in range(5)]))
        body = b"".join(encode_records([AppendBatch.of(batch, 0)]))
        self._apply(EntryKind.RECORDS, body, 5)

    def log_time_ms(self) -> int:
        return 3500

    def apply(self, *ops: Op) -> int:
        return self._apply(EntryKind.QUEUE, encode_ops(ops), 0)

    def _apply(self, kind: EntryKind, body: bytes, count: int) -> int:
        self.index += 1
        entry = make_entry(
            index=self.index, term=1, time_ms=1000, kind=kind, body=body, record_count=count
        )
        self.state.apply(entry)
        return self.index


def tell(metrics: Metrics, led: Led) -> None:
    metrics.before_render(lambda: tell_queue(metrics, led))


def text(metrics: Metrics) -> str:
    return metrics.render()[0].decode()


def test_what_a_former_leader_counted_is_not_counted_again() -> None:
    led, metrics = Led(), Metrics()
    counters = PartitionCounters("t", led.state, metrics)
    led.apply(OpenGroup(1, "g", 1, GroupConfig()))
    led.apply(Delivered(1, "m", 1000, [0, 1]))
    counters.begin()

    delivery = led.apply(Delivered(1, "m", 1000, [2]))
    led.apply(Settled(1, ACK, [(delivery, [2])]))
    counters.count()
    counters.count()

    assert f"goqueue_broker_messages_consumed_total{{{PLACE}}} 1.0" in text(metrics)
    assert f"goqueue_broker_messages_acked_total{{{PLACE}}} 1.0" in text(metrics)


def test_evictions_are_counted_by_kind_once_per_leadership() -> None:
    led, metrics = Led(), Metrics()
    requests, counters = led.state.requests, PartitionCounters("t", led.state, metrics)
    requests.configure(REQUEST_BYTES)
    requests.stored([(1, Offset(0)), (2, Offset(1))], 1000)
    requests.forget(1000)
    counters.begin()
    assert 'goqueue_dedup_evictions_total{kind="producer",topic="t"} 0' in text(metrics)

    requests.stored([(3, Offset(2)), (4, Offset(3))], 1000)
    requests.forget(1000)
    counters.count()
    counters.count()

    assert 'goqueue_dedup_evictions_total{kind="request",topic="t"} 2' in text(metrics)


def test_lanes_tell_what_is_ready_and_how_long_its_head_has_waited() -> None:
    led, metrics = Led(), Metrics()
    led.apply(OpenGroup(1, "g", 1, GroupConfig()))
    led.apply(Delivered(1, "m", 1000, [0]))

    tell(metrics, led)

    found = text(metrics)
    assert 'goqueue_ready_messages{lane="critical",topic="t"} 0.0' in found
    assert 'goqueue_ready_messages{lane="background",topic="t"} 1.0' in found
    assert 'goqueue_lane_head_wait_seconds{lane="high",topic="t"} 2.5' in found
    assert f"goqueue_in_flight_messages{{{PLACE}}} 1.0" in found


def test_groups_beyond_the_bound_share_a_label_and_gauges_of_former_leaders_go() -> None:
    led, metrics, leads = Led(), Metrics(series_max=100), [True]
    for id in range(1, 120):
        led.apply(OpenGroup(id, f"g{id}", id, GroupConfig()))
        led.apply(Delivered(id, "m", 1000, [0]))
    metrics.before_render(lambda: tell_queue(metrics, led) if leads else None)

    found = text(metrics)
    assert found.count("goqueue_in_flight_messages{") == 101
    assert 'goqueue_in_flight_messages{consumer_group="_other",topic="_other"} 19.0' in found
    assert 'goqueue_metrics_folded_total{metric="goqueue_in_flight_messages"} 19.0' in found

    leads.clear()
    assert "goqueue_in_flight_messages{" not in text(metrics)


def test_what_is_stored_is_counted_by_lane_and_delay_once_per_leadership() -> None:
    led, metrics = Led(), Metrics()
    counters = PartitionCounters("t", led.state, metrics)

    counters.count()
    counters.count()
    assert 'published_total{priority="critical",topic="t"} 1.0' in text(metrics)
    led.state.queue.scheduled, led.state.queue.released = 5, 3
    counters.count()

    assert 'delayed_messages_scheduled_total{topic="t"} 5.0' in text(metrics)
    assert 'delayed_messages_fired_total{topic="t"} 3.0' in text(metrics)


def test_waiting_in_lanes_is_summed_so_that_an_average_can_be_told() -> None:
    led, metrics = Led(), Metrics()
    counters = PartitionCounters("t", led.state, metrics)
    led.apply(OpenGroup(1, "g", 1, GroupConfig()))
    led.apply(Delivered(1, "m", 1000, [0]))
    waited = led.state.queue.groups[1].counters
    waited.waited(0, 500)
    waited.waited(0, 1500)

    counters.count()

    before = text(metrics)
    assert 'goqueue_lane_waits_total{lane="critical",topic="t"} 3.0' in before
    assert 'goqueue_lane_wait_seconds_total{lane="critical",topic="t"} 2.0' in before


def test_a_halted_group_is_told_by_partition_and_one_that_is_not_as_zero() -> None:
    led, metrics = Led(), Metrics()
    tell(metrics, led)
    led.apply(OpenGroup(1, "g", 1, GroupConfig()))

    assert f"goqueue_halted_partitions{{{PLACE}}} 0.0" in text(metrics)
    led.state.queue.groups[1].halted = "failures"
    assert f"goqueue_halted_partitions{{{PLACE}}} 1.0" in text(metrics)


def test_counters_of_a_group_are_there_with_zeros_before_anything_happens() -> None:
    led, metrics = Led(), Metrics()
    counters = PartitionCounters("t", led.state, metrics)
    led.apply(OpenGroup(1, "g", 1, GroupConfig()))

    counters.begin()

    for name in ("goqueue_fallen_messages_total", "goqueue_died_messages_total"):
        assert f"{name}{{{PLACE}}} 0.0" in text(metrics)
