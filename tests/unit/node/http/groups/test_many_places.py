"""Requests that name many partitions are looked at beside the loop, not on it."""

from __future__ import annotations

import threading

import pytest

from node.http.groups import members, offsets


@pytest.fixture
def threads(monkeypatch):
    """Who looked at what was named, by thread."""
    seen = []

    def noting(work):
        def noted(given):
            seen.append(threading.current_thread())
            return work(given)

        return noted

    monkeypatch.setattr(members, "named_places", noting(members.named_places))
    monkeypatch.setattr(offsets, "_by_topic", noting(offsets._by_topic))
    return seen


def bodies(count):
    places = [{"topic": "orders", "partition": 0} for _ in range(count)]
    return [
        ("/groups/workers/heartbeat", {"member_id": "one", "let_go": places}),
        ("/groups/workers/offsets", {"offsets": [{**place, "offset": 0} for place in places]}),
        ("/groups/workers/offsets", {"offsets": {"orders": {str(n): 0 for n in range(count)}}}),
    ]


@pytest.mark.parametrize("number", range(3))
async def test_many_places_are_looked_at_in_a_thread(client, orders, threads, number):
    path, body = bodies(5000)[number]
    told = await client.post(path, body)

    assert told.status in (200, 404)
    assert threads != [] and threading.main_thread() not in threads


@pytest.mark.parametrize("number", range(3))
async def test_a_few_are_looked_at_at_once(client, orders, threads, number):
    path, body = bodies(1)[number]
    await client.post(path, body)

    assert threads == [threading.main_thread()]
