"""`goqueue pod-stop`: what is done before a pod's process is told to end, at the pod's own wish.

Kubernetes runs it in the container, beside the node, and waits for it. It connects to a socket in
the data directory, which only the node's own user can reach, and is told line by line what is
going on; the last line says whether all was done.

A pod that is to go (its ordinal is none of those wanted) stops only after its replicas are
elsewhere; any other after others lead what it led, and after those that lag have caught up: it
waits for half of its time, or for all of it where its stop would leave a partition, or the cluster
group, without a majority. Both end with the pod's grace period, which Kubernetes does not extend:
then it says what would be lost, or was left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from coordinator.brokers.registry import DRAINED, Broker
from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError
from node.config.pod_names import STOP_SOCKET
from node.kubernetes.api import ApiProblem
from node.runtime.logger import get_logger

GRACE_S = 30.0
"""Kubernetes' own, where the pod was never seen."""
MARGIN_S = 8.0
"""Of the grace period, this is left for the process to end after it is told to."""
LOOK_S = 3.0
PAUSE_S = 0.2
ASK_PAUSE_S = 2.0
TELL_PAUSE_S = 5.0
SPREAD_S = 0.7
"""After so long peers know that this node stops, and hand it no leadership."""
HAND_OVER_S = 2.0
CATCH_UP_SHARE = 0.5
"""Of the time there is, so much is spent on waiting for replicas on other nodes."""
PARTING_S = 10.0
"""Of the time there is, at most a quarter, this is left for handing over where the rest was spent
on waiting for a majority."""
EVENT_AFTER_S = 3.0
"""A replica that lags for less than this is worth no event."""
NOT_IN_ORDER, QUORUM_AT_STAKE = "NotStoppedInOrder", "QuorumAtStake"
"""Reasons of events at the pod."""
UNDONE_S = 30.0
"""A node that runs on for so long after its grace period was not meant to stop after all."""

_log = get_logger("kubernetes")


class Told(msgspec.Struct):
    """A line of the answer; `done` only in the last one."""

    said: str
    done: bool | None = None


class StopNode(Protocol):
    """What stopping asks of the node."""

    def ordinal(self) -> int: ...

    def wanted(self) -> int | None: ...

    async def look(self) -> int | None: ...

    def broker(self) -> Broker | None: ...

    def held(self) -> int:
        """Replicas that this node holds or is to hold."""
        ...

    def lagging(self) -> str:
        """Which partitions on other nodes lack replicas in sync; empty for none."""
        ...

    def at_stake(self) -> str:
        """What would be left without a majority by this node's stop, and would not once those
        who are away are back; empty for nothing."""
        ...

    def leaving(self) -> list[str]:
        """Nodes of the set, beyond those that are wanted, that are not drained yet."""
        ...

    def led(self) -> int: ...

    async def drain(self) -> Any: ...

    async def hand_over(self, timeout_s: float) -> None: ...

    def stops(self, stopping: bool) -> None:
        """Not ready, and nobody's choice as a leader, from now on; or as before."""
        ...

    async def complain(self, problem: str, reason: str) -> None:
        """Write an event at this pod."""
        ...


@dataclass(frozen=True, slots=True)
class StopTimes:
    """`grace_s` is asked for when a stop begins; `delay_s` is the least that it lasts."""

    grace_s: Callable[[], float | None]
    delay_s: float


class PodStop:
    """A service: the socket, and one stop at a time, told to all that ask for it."""

    def __init__(self, data_dir: str, node: StopNode, times: StopTimes) -> None:
        self._path = Path(data_dir) / STOP_SOCKET
        self._node = node
        self._times = times
        self._server: asyncio.Server | None = None
        self._stop: asyncio.Task[bool] | None = None
        self._tasks = TaskSet("kubernetes", "pod_stop_failed")
        self._lines: list[str] = []
        self._undo: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Raises OSError, as where the path is too long for a socket."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        before = os.umask(0o077)
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self._path))
        finally:
            os.umask(before)

    async def stop(self) -> None:
        if self._undo is not None:
            self._undo.cancel()
        await self._tasks.stop()
        if self._server is not None:
            self._server.close()
            self._server = None
            with suppress(OSError):
                self._path.unlink()

    # private

    async def _serve(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stop is None or self._stop.done():
            self._lines = []
            if self._undo is not None:  # of a stop before, which nobody followed up
                self._undo.cancel()
            self._stop = self._tasks.begin(self._run(), "pod-stop")
        told = 0
        try:
            while told < len(self._lines) or not self._stop.done():
                for line in self._lines[told:]:
                    told += 1
                    await _tell(writer, Told(line))
                await asyncio.wait([self._stop], timeout=PAUSE_S)
            done = not self._stop.cancelled() and self._stop.result()
            await _tell(writer, Told("done" if done else "not done", done))
        except ConnectionError:  # who asked is gone; the stop goes on
            pass
        finally:
            writer.close()

    async def _run(self) -> bool:
        """Whether nothing is left on this node that would be missed."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        grace_s = self._times.grace_s() or GRACE_S
        left_s = max(grace_s - MARGIN_S, grace_s / 2)
        try:
            async with asyncio.timeout(left_s):
                done = await self._part(began + left_s)
                self._node.stops(True)
                await asyncio.sleep(SPREAD_S)
                await self._hand_over()
                await asyncio.sleep(max(0.0, began + self._times.delay_s - loop.time()))
        except TimeoutError:
            await self._give_up()
            done = False
        except Exception:  # noqa: BLE001 - the task's outermost level
            _log.exception("pod_stop_failed")
            done = False
        ends = began + grace_s + UNDONE_S
        self._undo = loop.call_at(max(ends, loop.time() + UNDONE_S), self._node.stops, False)
        return done

    async def _part(self, until: float) -> bool:
        """Wait until this node may go; whether nobody will miss it."""
        if await self._is_leaving():
            return await self._until_drained()
        left_s = until - asyncio.get_running_loop().time()
        parts_at = until - min(PARTING_S, left_s / 4)
        at_stake = await self._until_nothing_is_at_stake(parts_at)
        lagging = await self._until_caught_up(until - left_s * (1 - CATCH_UP_SHARE))
        if at_stake:
            problem = f"stops, as its grace period is over: without it, {at_stake}"
            await self._complain(problem, QUORUM_AT_STAKE)
        elif lagging:
            await self._complain(f"stops although others lag: {lagging}")
        return not at_stake and not lagging

    async def _until_nothing_is_at_stake(self, ends: float) -> str:
        """What still is when the time has come; an event says soon what is waited for."""
        loop, node = asyncio.get_running_loop(), self._node
        event_at, next_s = loop.time() + EVENT_AFTER_S, 0.0
        while (at_stake := node.at_stake()) and loop.time() < ends:
            if loop.time() >= event_at:
                event_at = ends
                problem = f"waits for as long as its grace period lasts: without it, {at_stake}"
                await self._complain(problem, QUORUM_AT_STAKE)
            elif loop.time() >= next_s:
                self._say(f"waiting: without this node, {at_stake}")
                next_s = loop.time() + TELL_PAUSE_S
            await asyncio.sleep(PAUSE_S)
        return at_stake

    async def _until_caught_up(self, ends: float) -> str:
        """Who still lags when the time has come."""
        loop = asyncio.get_running_loop()
        next_s = 0.0
        while (lagging := self._node.lagging()) and loop.time() < ends:
            if loop.time() >= next_s:
                self._say(f"waiting for others to catch up: {lagging}")
                next_s = loop.time() + TELL_PAUSE_S
            await asyncio.sleep(PAUSE_S)
        return lagging

    async def _is_leaving(self) -> bool:
        """By what the API says now; where it does not, by what it said last."""
        node = self._node
        try:
            async with asyncio.timeout(LOOK_S):
                wanted = await node.look()
        except (ApiProblem, TimeoutError) as error:
            wanted = node.wanted()
            self._say(f"the Kubernetes API is not there ({error}); it last wanted {wanted} nodes")
        if not wanted or node.ordinal() < wanted:
            return False
        self._say(f"ordinal {node.ordinal()} is to go: {wanted} nodes are wanted")
        if len(leaving := node.leaving()) > 1:
            await self._complain(
                f"{', '.join(leaving)} are to go at once, and end together when their grace period "
                "is over, drained or not: put the replicas back to what they were, and take away "
                "one at a time, or drain them first (goqueue-cli cluster drain NODE --wait)"
            )
        return True

    async def _until_drained(self) -> bool:
        node, loop = self._node, asyncio.get_running_loop()
        tell_s = ask_s = 0.0
        problem = ""
        while not self._is_free():
            now = loop.time()
            if now >= ask_s:
                problem = await self._ask_to_drain(problem)
                if not self._is_wanted_away():
                    self._say("this node is wanted again")
                    return True
                ask_s = loop.time() + ASK_PAUSE_S
            if now >= tell_s:
                self._say(problem or f"{node.held()} replicas are still here")
                tell_s = now + TELL_PAUSE_S
            await asyncio.sleep(PAUSE_S)
        self._say("nothing is left here")
        return True

    async def _ask_to_drain(self, before: str) -> str:
        """Why this node can't be drained; empty where it is or will be."""
        broker = self._node.broker()
        if broker is None or not broker.takes:
            return ""
        try:
            await self._node.drain()
        except GoQueueError as error:
            if error.message != before:
                await self._complain(f"can't be drained: {error.message}")
            return error.message
        return ""

    def _is_wanted_away(self) -> bool:
        wanted = self._node.wanted()
        return wanted is not None and 0 < wanted <= self._node.ordinal()

    def _is_free(self) -> bool:
        broker = self._node.broker()
        return broker is None or broker.state == DRAINED

    async def _hand_over(self) -> None:
        node = self._node
        while led := node.led():
            self._say(f"handing over what is led here: {led}")
            await node.hand_over(HAND_OVER_S)
            await asyncio.sleep(PAUSE_S)
        self._say("nothing is led here")

    async def _give_up(self) -> None:
        node = self._node
        if self._is_wanted_away():
            problem = (
                f"the grace period is over and {node.held()} replicas are still on this node, "
                "which is to go: its volume must be kept, and the replicas raised again"
            )
        else:
            problem = f"the grace period is over with {node.led()} leaderships not handed over"
        await self._complain(problem)

    def _say(self, text: str) -> None:
        _log.info("pod_stop", said=text)
        self._lines.append(text)

    async def _complain(self, problem: str, reason: str = NOT_IN_ORDER) -> None:
        _log.error("pod_stop_problem", problem=problem)
        self._lines.append(problem)
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._node.complain(problem, reason)


async def _tell(writer: asyncio.StreamWriter, told: Told) -> None:
    writer.write(msgspec.json.encode(told) + b"\n")
    await writer.drain()
