"""One consumer in a process of its own, with the library: `python -m tests.chaos.group_worker`.

It says `ready`, `joined`; it is told `join`, `leave`. What it works on goes into its journal before
and after each ack (`tests.check.groupcase`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from goqueue.consume.consumer import AsyncConsumer
from goqueue.errors import GoQueueError
from goqueue.models.groups import TopicPartition
from goqueue.models.queued import Received
from tests.chaos.group_crew import Journal

CONCURRENCY = 32
PREFETCH = 100


class Working:
    """A consumer and its journal."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._name: str = options["name"]
        self._work_s: float = options.get("work_s", 0.0)
        self._journal = Journal(Path(options["journal"]))
        self.consumer = AsyncConsumer(
            options["urls"],
            options["group"],
            options["topic"],
            client_id=self._name,
            session_timeout=options["session_s"],
            prefetch=PREFETCH,
            rebalance_on_assign=lambda found: self._note("assigned", found),
            rebalance_on_revoke=lambda found: self._note("revoked", found),
            rebalance_on_lost=lambda found: self._note("lost", found),
        )

    async def handle(self, message: Received) -> None:
        """Work on it, ack it, and note what came of that."""
        known = {"member": self._name, "receipt": message.receipt}
        self._journal.add(
            "received",
            **known,
            partition=message.partition,
            offset=message.offset,
            value=message.value.decode(),
            attempt=message.attempt,
            reason=message.last_reason,
        )
        await asyncio.sleep(self._work_s)
        self._journal.add("settling", **known)
        try:
            await message.ack()
        except GoQueueError as error:
            outcome = "refused" if error.outcome == "none" else "unknown"
            self._journal.add("settled", **known, outcome=outcome, code=error.code)
        else:
            self._journal.add("settled", **known, outcome="acked", code="")

    def _note(self, kind: str, found: list[TopicPartition]) -> None:
        partitions = [one.partition for one in found]
        self._journal.add(kind, member=self._name, partitions=partitions)


async def work(options: dict[str, Any], words: asyncio.StreamReader) -> None:
    """Until it is told to leave, or nobody is there any more to tell it."""
    working = Working(options)
    gc.collect()
    gc.freeze()  # what was loaded is not looked through again while it works
    print("ready", flush=True)
    if not await words.readline():
        return
    async with working.consumer as consumer:
        print("joined", flush=True)
        running = asyncio.create_task(consumer.run(working.handle, concurrency=CONCURRENCY))
        told = asyncio.create_task(words.readline())
        await asyncio.wait([running, told], return_when=asyncio.FIRST_COMPLETED)
        if told.done():
            await consumer.close()
        await running


async def main() -> None:
    words = asyncio.StreamReader()
    reading = asyncio.StreamReaderProtocol(words)
    await asyncio.get_running_loop().connect_read_pipe(lambda: reading, sys.stdin)
    await work(json.loads(sys.argv[1]), words)
    os._exit(0)  # what the end of an interpreter costs the machine is not to be measured


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    asyncio.run(main())
