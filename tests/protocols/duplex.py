"""The client of examples/duplex: a connection for each request, bodies that go both ways."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from typing import ClassVar

from examples.duplex.duplex import Duplex
from tests.protocols.client import ANSWER_S, STREAM_S, WAIT_S, Door, Line, Told, Unreachable
from tests.protocols.credit import CREDIT, INIT, Acks
from tests.protocols.h2_answers import note_answer
from tests.protocols.ledger import Ledger

AT_ONCE = 10


class DuplexClient:
    """Publishes some at once, and subscribes by one request."""

    stores_once: ClassVar[bool] = False
    sees_values: ClassVar[bool] = True

    def __init__(self, topic: str, group: str, number: int) -> None:
        self._topic, self._group = topic, group

    def publish(self, door: Door, lines: Sequence[Line]) -> Told:
        told = Told()

        async def all_of_them() -> None:
            turn = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(self._publish(door, line, told, turn) for line in lines))

        asyncio.run(all_of_them())
        return told

    async def _publish(self, door: Door, line: Line, told: Told, turn: asyncio.Semaphore) -> None:
        url = f"http://{door.host}:{door.h2}/publish/{self._topic}"
        async with turn:
            try:
                async with asyncio.timeout(ANSWER_S):
                    duplex = await Duplex.ask("POST", url)
                    try:
                        await duplex.say(line.value.encode(), is_last=True)
                        body = await duplex.whole()
                    finally:
                        await duplex.close()
            except ConnectionRefusedError:
                told.refused["no connection"] += 1
            except (OSError, TimeoutError) as error:
                told.refused[type(error).__name__] += 1
                told.unknown[line.number] += 1
            else:
                message_id = duplex.head.get("x-message-id", "")
                note_answer(told, line.number, duplex.status, body, message_id)

    def consume(self, door: Door, ledger: Ledger, is_over: threading.Event) -> None:
        acks = Acks(ledger)
        try:
            asyncio.run(self._consume(door, acks, is_over))
        except (OSError, TimeoutError) as error:
            raise Unreachable(repr(error)) from None
        finally:
            acks.lost()

    async def _consume(self, door: Door, acks: Acks, is_over: threading.Event) -> None:
        query = f"?group={self._group}&credit={CREDIT}"
        url = f"http://{door.host}:{door.h2}/subscribe/{self._topic}{query}"
        duplex = await Duplex.ask("POST", url)
        reading: asyncio.Task[None] | None = None
        try:
            await duplex.say(INIT)
            is_told = asyncio.Event()
            reading = asyncio.create_task(self._read(duplex, acks, is_told))
            ends = time.monotonic() + STREAM_S
            while not is_over.is_set() and not reading.done() and time.monotonic() < ends:
                await asyncio.wait([reading], timeout=WAIT_S)
            if reading.done():
                await reading
                raise ConnectionError("the node has ended it")
            is_told.set()
            await duplex.say(b"", is_last=True)
            async with asyncio.timeout(ANSWER_S):
                await reading
            acks.ended()
        finally:
            if reading is not None:
                reading.cancel()
            await duplex.close()

    async def _read(self, duplex: Duplex, acks: Acks, is_told: asyncio.Event) -> None:
        async for line in duplex.lines():
            said = acks.take(json.dumps(line).encode(), is_told=is_told.is_set())
            if said:
                await duplex.say(said)
