"""Stories of HTTP/2: commands after `> `, what each one comes to beneath.

`python -m tests.unit.node.listeners.h2.transcripts FILE...` writes the files anew with what is true
now. A real node of one, whose topics have one partition; `curl` is the program of that name, and
clients by name (`a`) are connections of h2's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, cast

from h2.errors import ErrorCodes

from goqueue.wire.errors import GoQueueError
from log.disk.memory import MemoryDisk
from node.api.claims import NOBODY
from node.assembly import NodeAssembly
from node.http.budget.memory import Kind
from node.listeners.topics import MINIQUEUE_SUFFIX
from tests.one_node import Clock, eventually
from tests.transcripts import played, write_anew
from tests.unit.node.listeners.h2.talk import Answer, Talker, h2_node, port_of, talking

STEP_MS = 500
CURL = (
    "curl",
    "-sS",
    "--http2-prior-knowledge",
    "--max-time",
    "20",
    "-w",
    "HTTP/%{http_version} %{http_code}",
)


class Player:
    """The node, and who is connected to it."""

    def __init__(self, disk: MemoryDisk, clock: Clock, open_ones: AsyncExitStack) -> None:
        self._disk = disk
        self._clock = clock
        self._open_ones = open_ones
        self._node: NodeAssembly | None = None
        self._talkers: dict[str, Talker] = {}
        self._answers: dict[str, Answer] = {}

    async def start(self) -> None:
        self._node = await self._open_ones.enter_async_context(
            h2_node(self._clock, disk=self._disk)
        )

    async def run(self, command: str) -> list[str]:
        """What a command prints."""
        verb, *words = shlex.split(command)
        own: Callable[..., Any] | None = getattr(self, f"do_{verb}", None)
        if own is not None:
            return list(await own(*words))
        what, *words = words  # the first word is a client
        return list(await getattr(self, f"of_{what}")(verb, *words))

    @property
    def node(self) -> NodeAssembly:
        assert self._node is not None
        return self._node

    # what happens at the node

    async def do_curl(self, *words: str) -> list[str]:
        """How it was answered, and with what."""
        base = f"http://127.0.0.1:{port_of(self.node)}"
        named = [base + word if word.startswith("/") else word for word in words]
        if "--http1.1" in words:
            command = [word for word in CURL if word != "--http2-prior-knowledge"]
        else:
            command = list(CURL)
        process = await asyncio.create_subprocess_exec(
            *command, *named, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, problem = await process.communicate()
        body, _, status = out.decode().rpartition("HTTP/")
        told = [f"HTTP/{status}", *map(_shown, body.splitlines())]
        return told + ([problem.decode().strip()] if process.returncode else [])

    async def do_publish(self, topic: str, *values: str) -> list[str]:
        async with talking(port_of(self.node)) as talker:
            answers = [await talker.publish(topic, value.encode()) for value in values]
        return [str(answer.status) for answer in answers if answer.status != 201]

    async def do_pass(self, seconds: str) -> list[str]:
        """Time goes by; whoever lives answers pings meanwhile."""
        for _ in range(int(seconds.removesuffix("s")) * 1000 // STEP_MS):
            await self._clock.pass_ms(STEP_MS)
            await asyncio.sleep(0.002)
        return []

    async def do_kill(self) -> list[str]:
        """The node's process and its machine are gone: what was not synced is, too."""
        left = self._disk.crash(random.Random(1), keep=0.0)
        self._talkers.clear()
        self._answers.clear()
        await self._open_ones.aclose()
        self._disk = left
        await self.start()
        return []

    async def do_stop(self) -> list[str]:
        """The node is about to stop."""
        self.node.front.begin_stop()
        return []

    async def do_topics(self) -> list[str]:
        return [" ".join(self.node.broker.topics.list_topics()) or "none"]

    async def do_peek(self, topic: str, group: str = "") -> list[str]:
        """What would be received next, and after which failures."""
        found = await self.node.broker.queue.peek(
            group or topic + MINIQUEUE_SUFFIX, [topic], limit=10, partitions=None
        )
        return [
            f"{one.value.decode()} attempt {one.attempt}" + _after(one.reason) for one in found
        ] or ["nothing"]

    async def do_receive(self, topic: str, group: str = "") -> list[str]:
        """By another consumer of the group, who polls."""
        try:
            found = await self.node.broker.queue.receive(
                group or topic + MINIQUEUE_SUFFIX,
                [topic],
                claim=NOBODY,
                limit=10,
                wait_s=0,
                visibility_ms=None,
            )
        except GoQueueError as error:
            return [error.code]
        return [
            f"{one.value.decode()} attempt {one.attempt}" + _after(one.reason) for one in found
        ] or ["nothing"]

    async def do_held(self, at_most: str) -> list[str]:
        """Whether what waits for clients, or from them, is no more than so many KiB."""
        await eventually(lambda: not self.node.front.budgets[Kind.APPENDS].used)
        held = sum(self.node.front.budgets[kind].used for kind in (Kind.ANSWERS, Kind.BODIES))
        return [] if held <= int(at_most.removesuffix("KiB")) << 10 else [f"{held >> 10} KiB"]

    # what clients do

    async def of_connects(self, name: str, window: str = "") -> list[str]:
        """With `window=N` its answers' windows begin with so many bytes, and it opens none."""
        size = int(window.removeprefix("window=")) if window else None
        talker = await self._open_ones.enter_async_context(talking(port_of(self.node), window=size))
        self._talkers[name] = talker
        return []

    async def of_subscribes(self, name: str, target: str) -> list[str]:
        """On the connection that it has, or a new one; INIT is not said."""
        if name not in self._talkers:
            await self.of_connects(name)
        answer = await self._talkers[name].ask("POST", f"/subscribe/{target}")
        self._answers[name] = answer
        await self._talkers[name].until(lambda: answer.status or answer.reset is not None)
        return [] if answer.status == 200 else [str(answer.status)]

    async def of_says(self, name: str, *commands: str) -> list[str]:
        await self._talkers[name].say(self._answers[name], *commands)
        return []

    async def of_sends(self, name: str, text: str) -> list[str]:
        """As it is, which may be no command."""
        await self._talkers[name].send(self._answers[name], text.encode())
        return []

    async def of_takes(self, name: str, count: str = "1") -> list[str]:
        found = [await self._talkers[name].message(self._answers[name]) for _ in range(int(count))]
        return [text + (f" dackCount {dacks}" if dacks else "") for text, dacks in found]

    async def of_hears(self, name: str, what: str) -> list[str]:
        talker, answer = self._talkers[name], self._answers[name]
        if what == "nothing":
            return [] if await talker.quiet(answer) else [answer.text.decode()]
        assert what == "error"
        line = await talker.line(answer)
        return [line["error"] if line and "error" in line else str(line)]

    async def of_opens(self, name: str, size: str) -> list[str]:
        """Its answer's window, by so many bytes."""
        self._talkers[name].take(self._answers[name], int(size))
        return []

    async def of_ends(self, name: str) -> list[str]:
        """It has said all, and hears how the answer ends."""
        talker, answer = self._talkers[name], self._answers[name]
        await talker.send(answer, b"", is_last=True)
        await talker.ended(answer)
        return answer.text.decode().splitlines()

    async def of_is(self, name: str, how: str) -> list[str]:
        """Whether the node has ended its stream, or (`gone`) its connection."""
        talker = self._talkers[name]
        if how == "ended":
            answer = await talker.ended(self._answers[name])
            return [answer.text.decode().strip()] if answer.text else []
        assert how == "gone"
        _reading(talker).resume_reading()
        told = await talker.closed()
        if told is None:
            return ["without a word"]
        return [
            f"{ErrorCodes(told.error_code or 0).name}: {(told.additional_data or b'').decode()}"
        ]

    async def of_resets(self, name: str, count: str = "0") -> list[str]:
        """Its stream; or so many requests that it begins, each as it is begun."""
        talker = self._talkers[name]
        if not int(count):
            talker.reset(self._answers.pop(name))
        for _ in range(int(count)):
            answer = await talker.ask("POST", "/publish/reset")
            talker.reset(answer)
        return []

    async def of_breaks(self, name: str) -> list[str]:
        """Its connection is reset, as when its process is killed."""
        before = len(self.node.listeners.of["h2"]._open)
        self._talkers.pop(name).writer.transport.abort()
        await eventually(lambda: len(self.node.listeners.of["h2"]._open) < before)
        return []

    async def of_sleeps(self, name: str) -> list[str]:
        """It reads nothing any more, and answers nothing."""
        _reading(self._talkers[name]).pause_reading()
        return []

    async def of_floods(self, name: str, kind: str, count: str) -> list[str]:
        """So many frames of a kind, as bytes."""
        frames = {
            "pings": b"\0\0\x08\x06\0\0\0\0\0" + bytes(8),
            "settings": b"\0\0\0\x04\0\0\0\0\0",
            "windows": b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01",
            "continuations": b"\0\0\0\x09\0\0\0\0\x63",
        }
        data = frames[kind] * int(count)
        if kind == "continuations":
            data = b"\0\0\x01\x01\0\0\0\0\x63\x82" + data
        self._talkers[name].writer.write(data)
        return []


def _reading(talker: Talker) -> asyncio.ReadTransport:
    return cast(asyncio.ReadTransport, talker.writer.transport)


def _shown(line: str) -> str:
    """Of an error, its code and text."""
    said = json.loads(line)
    return f"{said['code']}: {said['error']}" if "error" in said else line


def _after(reason: str) -> str:
    return f' after "{reason}"' if reason else ""


async def play(text: str) -> str:
    """The transcript as its commands come out now; comments and blank lines stay."""
    clock = Clock(loop=asyncio.get_running_loop())
    async with AsyncExitStack() as open_ones:
        player = Player(MemoryDisk(), clock, open_ones)
        await player.start()
        return await played(text, player.run)


if __name__ == "__main__":
    write_anew(play)
