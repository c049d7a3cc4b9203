"""Metrics: bounded in number, told in both formats, gathered in slices, every one set by code."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import node
from node.metrics import Metrics
from node.metrics.exposition import OPENMETRICS, TEXT, accepted
from node.metrics.family import Counter, Distribution, Family, Gauge, Histogram, Sampled

NODE = Path(node.__path__[0])
AREAS = (
    *("broker", "queue", "consumer", "cluster", "storage", "archive"),
    *("kubernetes", "http", "process", "doors", "tail", "stream", "listeners"),
)


def declared(metrics: Metrics) -> dict[str, Family[Any]]:
    """By area and the name under which code sets it."""
    return {
        f"{area}.{name}": value
        for area in AREAS
        for name, value in vars(getattr(metrics, area)).items()
        if isinstance(value, Family)
    }


def text(metrics: Metrics) -> str:
    return metrics.render()[0].decode()


def test_every_declared_metric_is_set_by_code() -> None:
    code = "\n".join(
        path.read_text() for path in NODE.rglob("*.py") if path.parent.name != "metrics"
    )
    code += (NODE / "metrics" / "__init__.py").read_text()
    code += (NODE / "metrics" / "process.py").read_text().partition("def observe")[2]

    names = declared(Metrics())

    assert len(names) == len(Metrics().families) > 150
    set_by = [name.partition(".")[2] for name in names]
    assert [name for name in set_by if not re.search(rf"\.{name}\b", code)] == []


def test_counters_and_only_those_are_called_total_unless_goqueue_calls_others_so() -> None:
    goqueues = {"goqueue_cluster_nodes_total", "goqueue_storage_segments_total"}

    for name, family in Metrics().families.items():
        assert name.endswith("_total") == isinstance(family, Counter) or name in goqueues, name
        assert re.fullmatch(r"(goqueue|process|python)_[a-z0-9_]+", name)
        assert not {"key", "member", "message_id", "offset"} & set(family.label_names), name


def test_invented_methods_share_one_label() -> None:
    metrics = Metrics()

    for number in range(50):
        metrics.observe(f"X{number}", "unmatched", 404, 0.001)

    assert text(metrics).count("goqueue_http_requests_total{") == 1
    assert 'method="other"' in text(metrics)


def test_gauges_are_refreshed_when_someone_looks_and_gone_when_nobody_tells_them() -> None:
    metrics, topics = Metrics(), ["a", "b"]

    def tell() -> None:
        for topic in topics:
            metrics.broker.delayed_pending.add(2, topic)
            metrics.broker.delayed_pending.add(3, topic)

    metrics.before_render(tell)

    assert 'pending{topic="a"} 5.0' in text(metrics)
    assert 'pending{topic="a"} 5.0' in text(metrics)
    topics.remove("a")
    assert 'pending{topic="a"}' not in text(metrics)
    assert 'pending{topic="b"} 5.0' in text(metrics)


def test_a_histogram_counts_into_buckets_up_to_their_edges() -> None:
    metrics = Metrics()
    for value in (0.0005, 0.0006, 7.0):
        metrics.process.loop_lag.observe(value)

    found = text(metrics)

    assert 'goqueue_loop_lag_seconds_bucket{le="0.0005"} 1.0' in found
    assert 'goqueue_loop_lag_seconds_bucket{le="0.001"} 2.0' in found
    assert 'goqueue_loop_lag_seconds_bucket{le="5.0"} 2.0' in found
    assert 'goqueue_loop_lag_seconds_bucket{le="+Inf"} 3.0' in found
    assert "goqueue_loop_lag_seconds_count 3.0" in found


# cardinality


def test_topics_beyond_the_bound_are_counted_together_and_told_of() -> None:
    metrics = Metrics(series_max=1000)
    for number in range(5000):
        metrics.broker.messages_published.labels(f"t{number}").inc(2)

    found = text(metrics)

    assert found.count("messages_published_total{") == 1001
    assert 'messages_published_total{topic="_other"} 8000.0' in found
    folded = 'goqueue_metrics_folded_total{metric="goqueue_broker_messages_published_total"} 4000.0'
    assert folded in found


def test_histograms_are_bounded_in_series_not_in_label_sets() -> None:
    metrics = Metrics(series_max=1000)
    for number in range(5000):
        metrics.broker.publish_latency.labels(f"t{number}").observe(0.1)

    family = metrics.families["goqueue_broker_publish_latency_seconds"]

    assert family.size <= 1000 + 16
    assert text(metrics).count("goqueue_broker_publish_latency_seconds") <= 1000 + 16 + 2


def test_what_can_not_be_added_up_is_not_shown_beyond_the_bound() -> None:
    metrics = Metrics(series_max=10)

    def tell() -> None:
        for number in range(20):
            metrics.storage.log_end_offset.put(number, "t", str(number))

    metrics.before_render(tell)

    found = text(metrics)

    assert found.count("goqueue_storage_log_end_offset{") == 10
    assert '="_other"' not in found


def test_few_valued_labels_are_kept_where_topics_share_a_series() -> None:
    metrics = Metrics(series_max=4)
    for number in range(10):
        for code in ("timeout", "no_quorum"):
            metrics.broker.messages_failed.labels(f"t{number}", code).inc()

    found = text(metrics)

    assert 'failed_total{error_type="timeout",topic="_other"} 8.0' in found
    assert 'failed_total{error_type="no_quorum",topic="_other"} 8.0' in found


def test_nothing_is_left_of_topics_and_groups_that_are_gone() -> None:
    metrics = Metrics()
    for number in range(600):
        metrics.broker.messages_consumed.labels(f"t{number}", f"g{number}").inc()
        metrics.broker.publish_latency.labels(f"t{number}").observe(1)
    metrics.forget("topic", {"t1", "t2"}.__contains__)
    metrics.forget("consumer_group", {"g2"}.__contains__)

    found = text(metrics)

    assert found.count("messages_consumed_total{") == 1
    assert 'messages_consumed_total{consumer_group="g2",topic="t2"}' in found
    assert found.count("publish_latency_seconds_count{") == 2
    metrics.broker.messages_consumed.labels("t1", "g2").inc()
    assert 'messages_consumed_total{consumer_group="g2",topic="t1"} 1.0' in text(metrics)


# formats


def filled() -> Metrics:
    """With something in every family, and labels that need escaping."""
    metrics, awkward = Metrics(), 'a"b\\c\nd'

    def tell() -> None:
        for family in metrics.families.values():
            if isinstance(family, Sampled):
                family.add(1.5, *[awkward for _ in family.label_names])

    metrics.before_render(tell)
    for family in metrics.families.values():
        if isinstance(family, Sampled):
            continue
        child = family.labels(*[awkward for _ in family.label_names])
        if isinstance(child, Distribution):
            child.observe(0.3, "4bf92f3577b34da6a3ce929d0e0e4736")
        else:
            child.inc(2)
    return metrics


def test_others_parse_the_text_as_what_was_counted() -> None:
    metrics = filled()

    found = {family.name: family for family in parse_text(text(metrics))}

    assert len(found) == len(metrics.families)
    for name, family in metrics.families.items():
        parsed = found[name.removesuffix("_total") if family.kind == "counter" else name]
        assert parsed.type == family.kind
        for sample in parsed.samples:
            if name != "goqueue_metrics_series":
                assert sample.value in (0.0, 0.3, 1.0, 1.5, 2.0), sample
            assert set(sample.labels) - {"le"} == set(family.label_names)
            assert all(v == 'a"b\\c\nd' for k, v in sample.labels.items() if k != "le")


def test_others_parse_openmetrics_with_a_trace_as_example_of_its_bucket() -> None:
    before_s = time.time()
    body, content_type = filled().render(OPENMETRICS)

    found = {family.name: family for family in parse_openmetrics(body.decode())}  # type: ignore[no-untyped-call]

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    samples = found["goqueue_http_request_seconds"].samples
    (example,) = [sample.exemplar for sample in samples if sample.exemplar]
    assert example.labels == {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"}
    assert example.value == 0.3
    assert int(before_s) <= int(float(example.timestamp)) <= time.time()
    assert b"4bf92f35" not in filled().render(TEXT)[0]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", TEXT),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.4,*/*;q=0.1",
            OPENMETRICS,
        ),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;q=0.2,text/plain;version=0.0.4;q=0.9", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;q=x", TEXT),
    ],
)
def test_openmetrics_is_for_those_who_ask_for_it(accept: str, form: object) -> None:
    assert accepted(accept) is form


# slices


async def test_a_look_gives_the_loop_back_between_slices() -> None:
    metrics = Metrics(series_max=200_000)

    def tell() -> Iterator[None]:
        for topic in range(400):
            for partition in range(12):
                metrics.storage.log_end_offset.put(1, f"t{topic}", str(partition))
                metrics.storage.log_size_bytes.put(1, f"t{topic}", str(partition))
            yield

    metrics.before_render(tell)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    body, _ = await metrics.look()
    task.cancel()

    assert body.count(b"goqueue_storage_log_end_offset{") == 4800
    assert turns >= 5, "others had their turns meanwhile"


async def test_who_looks_at_once_gets_the_same_text_for_the_price_of_one() -> None:
    metrics, looks = Metrics(), 0

    def tell() -> None:
        nonlocal looks
        looks += 1

    metrics.before_render(tell)

    found = await asyncio.gather(*(metrics.look() for _ in range(10)))

    assert looks == 1
    assert len(set(found)) == 1


def test_kinds_are_of_their_families() -> None:
    kinds = {Counter: "counter", Gauge: "gauge", Sampled: "gauge", Histogram: "histogram"}

    assert {type(family): family.kind for family in Metrics().families.values()} == kinds
