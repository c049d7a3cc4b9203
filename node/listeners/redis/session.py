"""One connection from its first command to its last: commands in turn, replies in turn.

What arrived together is a pipeline: it is answered in order, and in one piece where nothing waits.
"""

from __future__ import annotations

from goqueue.wire.errors import GoQueueError, OverBudget
from node.http.budget.memory import Kind
from node.listeners.redis.client import Client
from node.listeners.redis.command import Command
from node.listeners.redis.commands import (
    command_of,
    storing,
    takes,
    unknown_to_miniqueue,
    wrong_number,
)
from node.listeners.redis.publishing import TOGETHER_BYTES_MAX, publish
from node.listeners.redis.replies import Failure, Reply, encode, encode_all, failure_of
from node.listeners.redis.scan import ProtocolError, Run, Scanner

REPLY_BYTES_MAX = 1 << 16
"""Replies are written once they are so many bytes, and at the end of what arrived together."""


class Session:
    """Serves a client; `run` it once."""

    def __init__(self, client: Client) -> None:
        limits = client.requests.parts.limits
        self._client = client
        self._scanner = Scanner(limits.body_bytes_max)
        self._held = client.requests.hold(client.caller, Kind.BODIES)
        self._out = bytearray()
        self._together: list[Run] = []
        """Commands of one name that are stored together."""
        self._together_name, self._together_bytes = "", 0

    async def run(self) -> None:
        """Until the client has said all, or what it says can't be told from the next command.
        Raises ConnectionError where it is gone."""
        client = self._client
        try:
            while not client.is_leaving and (data := await client.wire.read()):
                self._held.grow(len(data))
                self._scanner.feed(data)
                while not client.is_leaving and (found := self._scanner.runs()):
                    client.wire.partial_since_s = 0.0
                    await self._answer(found)
                self._note_partial()
        except ProtocolError as error:
            self._put(Failure(f"ERR Protocol error: {error}"))
        except OverBudget as error:
            self._put(failure_of(error))
        finally:
            self._held.release()
            client.let_go()
            if client.subscription is not None:
                await client.subscription.end()
        await self._flush()

    def _note_partial(self) -> None:
        """How much is here of a command that is not whole, and since when."""
        client, size = self._client, self._scanner.size
        self._held.resize(size)
        client.wire.partial_bytes = size
        if not size:
            client.wire.partial_since_s = 0.0
        elif not client.wire.partial_since_s:
            client.wire.partial_since_s = client.loop_s

    async def _answer(self, found: list[Run]) -> None:
        for run in found:
            if not await self._gathered(run):
                for said in run.commands():
                    await self._said(said)
        await self._store()
        await self._flush()

    async def _said(self, said: list[bytes]) -> None:
        client = self._client
        if client.is_leaving:
            return
        if client.subscription is not None:
            async for reply in client.subscription.heard(said):
                self._put(reply)
                await self._flush()
            return
        try:
            if not await self._gathered(Run.of(said)):
                command, arguments = command_of(said)
                await self._store()
                await self._one(command, arguments)
        except GoQueueError as error:
            await self._store()
            self._refused(said, error)

    async def _gathered(self, run: Run) -> bool:
        """Whether it is a command that stores something, again and again: it is stored together
        with those of its name before it."""
        client = self._client
        if client.is_leaving or client.subscription is not None:
            return False
        command = storing(run)
        if command is None:
            return False
        size = sum(sum(map(len, column)) for column in run.columns)
        if not self._fits(command.name, size):
            await self._store()
        self._together_name = command.name
        self._together_bytes += size
        self._together.append(run)
        return True

    async def _one(self, command: Command, arguments: list[bytes]) -> None:
        if not takes(command, arguments):
            raise wrong_number(command)
        if command.may_wait:
            await self._flush()  # what was asked before is not to wait for it
        try:
            self._put(await command.answer(self._client, arguments))
        except GoQueueError as error:
            self._put(failure_of(error))
        if len(self._out) > REPLY_BYTES_MAX:
            await self._flush()

    def _refused(self, said: list[bytes], error: GoQueueError) -> None:
        """It is no command, or has too few or too many arguments."""
        client = self._client
        try:
            with client.observed("unknown", "health"):
                raise error
        except GoQueueError:
            pass
        if not client.is_introduced and error.message.startswith("ERR unknown command"):
            error = unknown_to_miniqueue(said)
        self._put(failure_of(error))

    def _fits(self, name: str, size: int) -> bool:
        """Whether a command may be stored together with those before it."""
        return not self._together or (
            name == self._together_name and self._together_bytes + size <= TOGETHER_BYTES_MAX
        )

    async def _store(self) -> None:
        """What was gathered."""
        if not self._together:
            return
        runs, self._together = self._together, []
        self._together_bytes = 0
        replies = await publish(self._client, self._together_name, runs)
        encode_all(replies, self._out, resp3=self._client.resp3)
        if len(self._out) > REPLY_BYTES_MAX:
            await self._flush()

    def _put(self, reply: Reply) -> None:
        encode(reply, self._out, resp3=self._client.resp3)

    async def _flush(self) -> None:
        """Raises ConnectionError. What finds no room in memory is told instead of the replies, as
        the last thing."""
        out, self._out = bytes(self._out), bytearray()
        client = self._client
        if out:
            try:
                await client.wire.write(out)
            except OverBudget as error:
                client.is_leaving = True
                told = bytearray()
                encode(failure_of(error), told, resp3=client.resp3)
                client.wire.send(bytes(told))
        client.let_go()
