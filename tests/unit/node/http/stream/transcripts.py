"""Stories of streams: commands after `> `, what each one comes to beneath.

`python -m tests.unit.node.http.stream.transcripts FILE...` writes the files anew with what is true
now. A topic of three partitions, a real node of one, and clients by name, each a real WebSocket.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from goqueue.wire.batch import encode_columns
from node.api.claims import NOBODY
from node.api.dead_letters import DeadFilter
from node.api.members import JoinRequest
from node.broker.node import NodeBroker
from node.http.budget.memory import Kind
from node.http.server.app import HttpFront
from node.http.stream.session import SILENT
from tests.one_node import Clock, eventually, one_node
from tests.transcripts import played, write_anew
from tests.unit.node.http.stream.talk import Talker, answered, talking

TOPIC, GROUP = "orders", "workers"
STEP_MS = 500


class Player:
    """The node, and who is connected to it."""

    def __init__(self, broker: NodeBroker, clock: Clock, open_ones: AsyncExitStack) -> None:
        self._broker = broker
        self._clock = clock
        self._open_ones = open_ones
        self._clients: dict[str, Talker] = {}
        self._mine: dict[str, dict[str, Any]] = {}
        """Client and value -> the message."""
        self._assigned: dict[str, Any] = {}
        self._published = 0
        self.front = HttpFront(broker, port=0)

    async def run(self, command: str) -> list[str]:
        """What a command prints."""
        verb, *words = shlex.split(command)
        given = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        own: Callable[..., Any] | None = getattr(self, f"do_{verb}", None)
        if own is not None:
            return list(await own(*plain, **given))
        verb, *plain = plain  # the first word is a client
        name = shlex.split(command)[0]
        return list(await getattr(self, f"of_{verb}")(name, *plain, **given))

    # what happens at the node

    async def do_publish(self, count: str, partition: str = "0", bytes: str = "0") -> list[str]:
        """Numbers; with `bytes`, blanks after them, and each in a batch of its own."""
        values = [str(self._published + n) for n in range(int(count))]
        self._published += int(count)
        made = [value.ljust(int(bytes)).encode() for value in values]
        for batch in [[one] for one in made] if int(bytes) else [made]:
            stored = encode_columns(batch, None)
            await self._broker.records.append(TOPIC, int(partition), stored, deadline_s=30)
        return [" ".join(values)]

    async def do_group(self, **settings: str) -> list[str]:
        await self._broker.groups.put_group(
            GROUP,
            {name: int(value) if value.isdigit() else value for name, value in settings.items()},
        )
        return []

    async def do_pass(self, seconds: str) -> list[str]:
        """Time goes by; whoever lives answers pings meanwhile."""
        hearing = [
            asyncio.ensure_future(one.idle()) for one in self._clients.values() if one.answers
        ]
        for _ in range(int(seconds.removesuffix("s")) * 1000 // STEP_MS):
            await self._clock.pass_ms(STEP_MS)
            await answered(self.front, sum(not one.answers for one in self._clients.values()))
        for one in hearing:
            one.cancel()
        await asyncio.wait(hearing) if hearing else None
        open_ones = self.front._streams._open
        await eventually(lambda: not any(one._end is SILENT for one in open_ones))
        return []

    async def do_stop(self) -> list[str]:
        self.front.begin_stop()
        return []

    async def do_receive(self, limit: str = "10") -> list[str]:
        """By another consumer of the group, who polls."""
        found = await self._broker.queue.receive(
            GROUP,
            [TOPIC],
            claim=NOBODY,
            limit=int(limit),
            wait_s=0,
            visibility_ms=None,
        )
        return [
            _told(m.value.decode(), m.attempt, m.reason) for m in sorted(found, key=_place)
        ] or ["nothing"]

    async def do_dead(self) -> list[str]:
        found = await self._broker.letters.dead_letters(
            GROUP, TOPIC, DeadFilter(), after=None, limit=10
        )
        return [
            f'{one.message.value.decode()} after {one.attempts}, "{one.reason}"'
            for one in found.messages
        ] or ["none"]

    # what clients do

    async def of_connects(self, name: str, answers: str = "pings", group: str = GROUP) -> list[str]:
        talker = await self._open_ones.enter_async_context(
            talking(self.front, group, autoping=answers == "pings")
        )
        talker.answers = answers == "pings"
        self._clients[name] = talker
        return []

    async def of_joins(self, name: str) -> list[str]:
        wanted = JoinRequest(name, [TOPIC], lets_go=True)
        told = await self._broker.members.join(GROUP, wanted, wait_s=0.0)
        await self.of_connects(name)
        await self._clients[name].subscribe(member_id=told.member)
        return []

    async def of_subscribes(
        self, name: str, credit: str = "100", bytes: str = "4194304", visibility: str = ""
    ) -> list[str]:
        more = {"visibility_timeout_ms": visibility} if visibility else {}
        await self._clients[name].subscribe(
            topics=[TOPIC], credit={"messages": int(credit), "bytes": int(bytes)}, **more
        )
        return []

    async def of_gives(self, name: str, credit: str, bytes: str = "4194304") -> list[str]:
        await self._clients[name].say("credit", messages=int(credit), bytes=int(bytes))
        return []

    async def of_takes(self, name: str, count: str) -> list[str]:
        found = sorted(await self._clients[name].take(int(count)), key=_view_place)
        for one in found:
            one["value"] = one["value"].rstrip()
            self._mine[f"{name} {one['value']}"] = one
        return [_told(one["value"], one["attempt"], one.get("last_reason", "")) for one in found]

    async def of_settles(self, name: str, action: str, *values: str, **more: str) -> list[str]:
        messages = [self._mine[f"{name} {value}"] for value in values]
        told = await self._clients[name].settled(action, *messages, **more)
        return [
            f"{value} {result.get('state') or result['code']}"
            for value, result in zip(values, told["results"], strict=True)
        ]

    async def of_says(self, name: str, text: str) -> list[str]:
        await self._clients[name].socket.send_str(text)
        return []

    async def of_hears(self, name: str, kind: str) -> list[str]:
        if kind == "nothing":
            is_quiet = await self._clients[name].quiet()
            return [] if is_quiet else [str(await self._clients[name].next())]
        told = await self._clients[name].hear(kind)
        if kind == "assignment":
            self._assigned[name] = told
            return _assignment(told)
        return [told.get("error", "")] if kind == "error" else []

    async def of_has(self, name: str, count: str) -> list[str]:
        """It is told its partitions until they are so many."""
        told = self._assigned.get(name)
        while told is None or len(told["assignment"]) != int(count) or told["revoking"]:
            told = await self._clients[name].hear("assignment")
        self._assigned[name] = told
        return []

    async def of_lets(self, name: str, go: str) -> list[str]:
        assert go == "go"
        told = self._assigned[name]
        while not told["revoking"]:
            told = await self._clients[name].hear("assignment")
        await self._clients[name].say("heartbeat", let_go=told["revoking"])
        self._assigned[name] = told
        return [f"of {len(told['revoking'])}"]

    async def of_closes(self, name: str, code: str = "1000") -> list[str]:
        await self._clients.pop(name).socket.close(code=int(code))
        return []

    async def of_breaks(self, name: str) -> list[str]:
        """Its connection is reset, as when its process is killed."""
        before = len(self.front._streams)
        self._clients.pop(name).socket._response.connection.transport.abort()
        await eventually(lambda: len(self.front._streams) < before)
        return []

    async def of_stops(self, name: str, what: str) -> list[str]:
        assert what == "reading"
        self._clients[name].socket._response.connection.transport.pause_reading()
        return []

    async def of_goes(self, name: str, how: str) -> list[str]:
        assert how == "on"
        self._clients[name].socket._response.connection.transport.resume_reading()
        return []

    async def do_held(self, at_most: str) -> list[str]:
        """Whether what waits for clients is no more than so many KiB."""
        held = self.front.budgets[Kind.ANSWERS].used
        return [] if held <= int(at_most.removesuffix("KiB")) << 10 else [f"{held >> 10} KiB"]

    async def of_is(self, name: str, state: str) -> list[str]:
        """Whether it is closed by the node, and with which code."""
        assert state == "closed"
        return [str(await self._clients.pop(name).closed())]


def _told(value: str, attempt: int, reason: str) -> str:
    return f"{value} attempt {attempt}" + (f' after "{reason}"' if reason else "")


def _place(message: Any) -> tuple[int, int]:
    return message.partition, message.offset


def _view_place(view: dict[str, Any]) -> tuple[int, int]:
    return view["partition"], view["offset"]


def _assignment(told: dict[str, Any]) -> list[str]:
    return [f"{len(told['assignment'])} partitions, {len(told['revoking'])} to let go of"]


async def play(text: str) -> str:
    """The transcript as its commands come out now; comments and blank lines stay."""
    clock = Clock(loop=asyncio.get_running_loop())
    async with one_node(clock) as node, AsyncExitStack() as open_ones:
        await node.broker.upgrade.finish_level()
        await node.broker.topics.create_topic(TOPIC, {"partitions": 3})
        player = Player(node.broker, clock, open_ones)
        await player.front.start()
        open_ones.push_async_callback(player.front.stop)
        return await played(text, player.run)


if __name__ == "__main__":
    write_anew(play)
