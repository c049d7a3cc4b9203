"""What nodes say in /metrics, as benchmarks count it."""

from __future__ import annotations

from benchmarks.connection import Connection, get
from benchmarks.counters import figures
from tests.one_node import one_node

SYNCS = "goqueue_storage_fsync_total"
OUT = 'goqueue_http_requests_total{method="GET"}'


async def test_series_of_a_metric_are_added_up_and_others_are_not() -> None:
    async with one_node(None, None) as node:
        address = "127.0.0.1", node.front.port
        link = await Connection.open(address)
        for path in ("/healthz", "/healthz", "/v1/topics"):
            await link.ask(get(path))
        link.close()

        found = await figures(address, [SYNCS, OUT, "goqueue_storage_fsync", 'goqueue_x{a="b"}'])

    assert found[SYNCS] > 0
    assert found[OUT] == 3
    assert found["goqueue_storage_fsync"] == found['goqueue_x{a="b"}'] == 0
