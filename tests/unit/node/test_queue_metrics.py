"""The queue's figures: counted once per leadership, labelled within bounds."""

from __future__ import annotations

from delivery.config import GroupConfig
from delivery.ops import ACK, Delivered, Op, OpenGroup, Settled, encode_ops
from delivery.partition import PartitionState
from delivery.records import AppendBatch, encode_records
from goqueue.wire.batch import Record, RecordBatch, encode_batch
from log.entry import EntryKind, make_entry
from node.metrics import Metrics
from node.queue_metrics import GROUPS_SHOWN_MAX, PartitionTally, set_queue_gauges


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


def text(metrics: Metrics) -> str:
    return metrics.render()[0].decode()


def test_what_a_former_leader_counted_is_not_counted_again() -> None:
    led, metrics = Led(), Metrics()
    tally = PartitionTally("t", led.state, metrics)
    led.apply(OpenGroup(1, "g", 1, GroupConfig()))
    led.apply(Delivered(1, "m", 1000, [0, 1]))
    tally.begin()

    delivery = led.apply(Delivered(1, "m", 1000, [2]))
    led.apply(Settled(1, ACK, [(delivery, [2])]))
    tally.count()
    tally.count()

    assert 'goqueue_delivered_messages_total{topic="t"} 1.0' in text(metrics)
    assert 'goqueue_settled_messages_total{action="ack",topic="t"} 1.0' in text(metrics)


def test_lanes_tell_what_is_ready_and_how_long_its_head_has_waited() -> None:
    led, metrics = Led(), Metrics()
    led.apply(OpenGroup(1, "g", 1, GroupConfig()))
    led.apply(Delivered(1, "m", 1000, [0]))

    set_queue_gauges(metrics, [led])

    found = text(metrics)
    assert 'goqueue_ready_messages{lane="critical",topic="t"} 0.0' in found
    assert 'goqueue_ready_messages{lane="background",topic="t"} 1.0' in found
    assert 'goqueue_lane_head_wait_seconds{lane="high",topic="t"} 2.5' in found
    assert 'goqueue_in_flight_messages{group="g",topic="t"} 1.0' in found


def test_groups_beyond_the_bound_share_a_label_and_gauges_of_former_leaders_go() -> None:
    led, metrics = Led(), Metrics()
    for id in range(1, GROUPS_SHOWN_MAX + 20):
        led.apply(OpenGroup(id, f"g{id}", id, GroupConfig()))
        led.apply(Delivered(id, "m", 1000, [0]))

    set_queue_gauges(metrics, [led])
    found = text(metrics)
    assert found.count("goqueue_in_flight_messages{") == GROUPS_SHOWN_MAX + 1
    assert 'goqueue_in_flight_messages{group="other",topic="t"} 19.0' in found

    set_queue_gauges(metrics, [])
    assert "goqueue_in_flight_messages{" not in text(metrics)
