"""Every metric that is declared is set somewhere, and the exposition is bounded."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import Counter, Gauge, Histogram

from node.metrics import Metrics

NODE = Path(__file__).resolve().parents[3] / "node"


def test_every_declared_metric_is_set_by_code() -> None:
    code = (
        "\n".join(path.read_text() for path in NODE.rglob("*.py") if path.name != "metrics.py")
        + (NODE / "metrics.py").read_text().partition("def observe")[2]
    )
    declared = [
        name
        for name, value in vars(Metrics()).items()
        if isinstance(value, Counter | Gauge | Histogram)
    ]

    assert declared
    used = {
        name
        for name in declared
        if re.search(rf"\b{name}\b\s*\.\s*(inc|set|observe|labels)\(", code)
    }
    assert sorted(set(declared) - used) == []


def test_invented_methods_share_one_label() -> None:
    metrics = Metrics()

    for number in range(50):
        metrics.observe(f"X{number}", "unmatched", 404, 0.001)

    text, _content_type = metrics.render()
    assert text.count(b"goqueue_http_requests_total{") == 1
    assert b'method="other"' in text


def test_gauges_are_refreshed_when_someone_looks() -> None:
    metrics = Metrics()
    metrics.before_render(lambda: metrics.replicas.set(3))

    assert b"goqueue_replicas 3.0" in metrics.render()[0]
