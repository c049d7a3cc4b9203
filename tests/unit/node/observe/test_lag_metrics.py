"""Lag: measured in messages and in the log's own seconds, for each partition and each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delivery.config import GroupConfig
from delivery.entries.ops import OpenGroup
from goqueue.wire.types import PartitionId, TopicId
from node.metrics import Metrics
from node.observe.lag_metrics import tell_lag
from tests.unit.delivery.desk import Desk


class Led(Desk):
    """A partition that is led here."""

    def __init__(self, topic: str = "t", partition: int = 0) -> None:
        super().__init__()
        self.topic = topic
        self.id = PartitionId(TopicId(1, 1), partition)

    def log_time_ms(self) -> int:
        return self.now_ms


def metrics_of(led: Sequence[Led], series_max: int = 10_000) -> Metrics:
    metrics = Metrics(series_max)

    def tell() -> Iterator[None]:
        for one in led:
            yield from tell_lag(metrics, one, list(one.state.queue.groups.values()))

    metrics.before_render(tell)
    return metrics


def text(metrics: Metrics) -> str:
    return metrics.render()[0].decode().replace("goqueue_consumergroup_", "")


def test_lag_is_told_in_messages_and_seconds_for_each_partition() -> None:
    first, second = Led(), Led(partition=1)
    for led in (first, second):
        led.open(1)
        led.publish(5)
    first.ack(first.receive(3))
    second.ack(second.receive())
    first.now_ms += 2500

    found = text(metrics_of([first, second]))

    for partition, committed_offset, lag, seconds in ((0, 3, 2, 2.5), (1, 5, 0, 0.0)):
        labels = f'{{group="g1",partition="{partition}",topic="t"}}'
        assert f"group_offset{labels} {committed_offset}.0" in found
        assert f"group_lag{labels} {lag}.0" in found
        assert f"group_lag_seconds{labels} {seconds}" in found
        place = f'consumer_group="g1",partition="{partition}",topic="t"'
        assert f"goqueue_consumer_committed_offset{{{place}}} {committed_offset}.0" in found


def test_a_group_has_the_sum_and_the_most_of_its_partitions_lags() -> None:
    led = [Led(partition=number) for number in range(3)] + [Led("u")]
    for number, one in enumerate(led):
        one.open(1)
        one.publish(number + 1)
        one.now_ms += 1000 * (number + 1)

    found = text(metrics_of(led))

    assert 'group_sum_lag{group="g1"} 10.0' in found
    assert 'group_topic_sum_lag{group="g1",topic="t"} 6.0' in found
    assert 'group_max_lag{group="g1"} 4.0' in found
    assert 'group_max_lag_seconds{group="g1"} 4.0' in found


def test_a_group_that_is_idle_behind_a_delayed_message_has_no_lag() -> None:
    led = Led()
    led.open(1)
    led.publish(1)
    led.ack(led.receive())
    led.now_ms += 60_000

    found = text(metrics_of([led]))

    assert 'group_lag{group="g1",partition="0",topic="t"} 0.0' in found
    assert 'group_lag_seconds{group="g1",partition="0",topic="t"} 0.0' in found


def test_lags_beyond_the_bound_are_added_up_and_those_of_former_leaders_go() -> None:
    led = [Led(partition=number) for number in range(4)]
    for number, host in enumerate(led):
        for group in (1, 2):
            host.do(OpenGroup(group, f"g{group}", 1, GroupConfig()))
        host.publish(10 + number)
        host.now_ms += 1000 * number
    metrics = metrics_of(led, series_max=5)

    found = text(metrics)

    shared = 'group="_other",partition="_other",topic="_other"'
    assert found.count("group_lag{") == 5 + 1
    assert f"group_lag{{{shared}}} {12 + 13 + 13}.0" in found
    assert f"group_lag_seconds{{{shared}}} 3.0" in found
    assert found.count("group_offset{") == 5

    led.clear()
    assert "group_lag{" not in text(metrics)
