"""GoQueue's published Python client, goqueue-client 1.0.0, and the loop that its users write.

`import goqueue_client` fails: its package file names two types that it does not have. The client
itself is sound, so it is loaded past that file. `work_through` runs against any url.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGE = "published_goqueue_client"
"""Stands in for the installed package, whose own file is never run."""


def load(module: str) -> Any:
    """The installed client's `client` or `types` module."""
    if PACKAGE not in sys.modules:
        found = find_spec("goqueue_client")
        assert found is not None
        assert found.submodule_search_locations is not None
        package = ModuleType(PACKAGE)
        package.__path__ = list(found.submodule_search_locations)
        sys.modules[PACKAGE] = package
    return importlib.import_module(f"{PACKAGE}.{module}")


def connect(url: str) -> Any:
    """A client of this server; to be used with `async with`."""
    return load("client").GoQueueClient(url)


async def work_through(
    url: str, topic: str, group: str, values: Sequence[str], *, deadline_s: float = 30.0
) -> dict[str, list[dict[str, Any]]]:
    """Publish, join, poll, ack, heartbeat and leave, as the client's own documents show it.

    What each call answered, by its name; fails where the values did not all come.
    """
    async with connect(url) as client:
        answers: dict[str, list[dict[str, Any]]] = {"create": []}
        answers["create"].append(await client.topics.create({"name": topic, "num_partitions": 3}))
        messages = [{"key": f"k{n}", "value": value} for n, value in enumerate(values)]
        answers["publish"] = [await client.messages.publish(topic, messages)]
        request = {"client_id": "worker-1", "topics": [topic], "session_timeout": "30s"}
        joined = await client.groups.join(group, request)
        member, generation = joined["member_id"], joined["generation"]
        answers.update(join=[joined], poll=[], ack=[], heartbeat=[])
        left, ends_s = sorted(values), time.monotonic() + deadline_s
        while left:
            assert time.monotonic() < ends_s, f"{len(left)} messages never came"
            polled = await client.groups.poll(group, member, max_messages=10, timeout="1s")
            answers["poll"].append(polled)
            for message in polled["messages"]:
                left.remove(message["value"])
                answers["ack"].append(await client.messages.ack(message["receipt_handle"]))
            beat = {"member_id": member, "generation": generation}
            answers["heartbeat"].append(await client.groups.heartbeat(group, beat))
        answers["list"] = [await client.groups.list()]
        answers["get"] = [await client.groups.get(group)]
        answers["get_offsets"] = [await client.groups.get_offsets(group, topic=topic)]
        answers["leave"] = [await client.groups.leave(group, {"member_id": member})]
        return answers
