"""Stories of Redis' protocol: commands after `> `, what each one is answered beneath.

`python -m tests.unit.node.listeners.redis.transcripts FILE...` writes the files anew with what is
true now. A real node over a disk in memory, and clients by name, each a real connection: `anna:
XADD orders * value one`. A command with `&` before it waits; `anna hears` tells what came. The
node's clock stands still until time is let pass, so ids are the same each time.
"""

from __future__ import annotations

import asyncio
import random
import shlex
from contextlib import AsyncExitStack

from goqueue.wire.batch import encode_columns
from log.disk.memory import MemoryDisk
from log.levels import HIGHEST
from node.assembly import NodeAssembly
from tests.one_node import Clock, eventually, one_node
from tests.transcripts import played, write_anew
from tests.unit.node.listeners.redis.resp import Talker, shown

SETTINGS: dict[str, object] = {
    "broker.autoCreateTopics": True,
    "listeners.redis.enabled": True,
    "listeners.redis.port": 0,
}
WAITING_TURNS = 50


class Player:
    """The node, and who is connected to it."""

    def __init__(self) -> None:
        self.clock = Clock(loop=asyncio.get_running_loop())
        self.disk = MemoryDisk()
        self._node: NodeAssembly | None = None
        self._running = AsyncExitStack()
        self._clients: dict[str, Talker] = {}

    async def start(self) -> None:
        self._node = await self._running.enter_async_context(
            one_node(self.clock, self.disk, **SETTINGS)
        )
        if self.node.broker.upgrade.version().level < HIGHEST:
            await self.node.broker.upgrade.finish_level()

    async def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        await self._running.aclose()
        self._running = AsyncExitStack()

    @property
    def node(self) -> NodeAssembly:
        assert self._node is not None
        return self._node

    async def run(self, command: str) -> list[str]:
        """What a command prints."""
        name, colon, said = command.partition(": ")
        if not colon:
            verb, *words = shlex.split(command)
            if hasattr(self, f"do_{verb}"):
                return list(await getattr(self, f"do_{verb}")(*words))
            return list(await getattr(self, f"of_{words[0]}")(verb, *words[1:]))
        client = await self._client(name)
        if said.startswith("raw "):
            client.writer.write(said[4:].encode().decode("unicode_escape").encode("latin-1"))
        elif said.startswith("& "):
            client.say(*shlex.split(said[2:]))
            await self._turns()
            return []
        else:
            client.say(*shlex.split(said))
        return shown(await client.hear())

    async def do_pass(self, seconds: str) -> list[str]:
        """Time goes by."""
        await self.clock.pass_ms(int(seconds.removesuffix("s")) * 1000)
        return []

    async def do_topic(self, name: str, partitions: str) -> list[str]:
        await self.node.broker.topics.create_topic(name, {"partitions": int(partitions)})
        return []

    async def do_publish(self, topic: str, value: str, key: str = "") -> list[str]:
        """As over HTTP, with a key and a header."""
        batch = encode_columns(
            [value.encode()], [key.encode()] if key else None, headers=[(("by", b"http"),)]
        )
        await self.node.broker.records.append(topic, 0, batch, deadline_s=30)
        return []

    async def do_cut(self) -> list[str]:
        """The machine loses power: nothing is left but what was synced. Then it starts again."""
        after = self.disk.crash(random.Random(1), keep=0.0)
        await self.stop()
        self.disk = after
        await self.start()
        return []

    async def of_hears(self, name: str) -> list[str]:
        return shown(await self._clients[name].hear())

    async def of_leaves(self, name: str) -> list[str]:
        """Its connection is reset."""
        before = self.node.front.connections
        self._clients.pop(name).close()
        await eventually(lambda: self.node.front.connections < before)
        await self._turns()
        return []

    async def of_is(self, name: str, state: str) -> list[str]:
        assert state == "closed"
        return [] if await self._clients.pop(name).is_over() else ["it is not"]

    async def _client(self, name: str) -> Talker:
        if name not in self._clients:
            self._clients[name] = await Talker.to(self.node.listeners.of["redis"].port)
        return self._clients[name]

    async def _turns(self) -> None:
        """Until what was sent is being waited for."""
        for _ in range(WAITING_TURNS):
            await asyncio.sleep(0.0005)


async def play(text: str) -> str:
    """The transcript as its commands come out now; comments and blank lines stay."""
    player = Player()
    await player.start()
    try:
        return await played(text, player.run)
    finally:
        await player.stop()


if __name__ == "__main__":
    write_anew(play)
