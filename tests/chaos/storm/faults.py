"""Faults of processes, networks and clocks: each begins, lasts, ends and shows it."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from tests.chaos.cluster import ClusterError
from tests.chaos.storm.network import Cut
from tests.chaos.storm.site import Site, StormNode
from tests.chaos.storm.slow_line import SlowLine

STOPS_AFTER = 100
"""Looks at a process that was told to stop: all its threads have to."""
JUMPS_S = (1.5, 60.0, 3_600.0, 86_400.0, 40 * 86_400.0)


@dataclass
class Fault:
    """One thing that is done to one node. `victim` is struck between `begin` and `end`."""

    site: Site
    victim: StormNode
    rng: random.Random
    lasts_s: ClassVar[tuple[float, float]] = (0.2, 1.2)
    may_exit: ClassVar[bool] = False
    """Whether the node may end by itself, and is to be started again."""
    findings: list[str] = field(default_factory=list[str])
    """What the node did that it must not do."""

    async def begin(self) -> None:
        """Return once it can bite."""
        raise NotImplementedError

    async def last(self) -> None:
        await asyncio.sleep(self.rng.uniform(*self.lasts_s))

    async def end(self) -> str:
        """Undo it. What shows that it has happened; empty where nothing does."""
        raise NotImplementedError

    def struck(self) -> Sequence[StormNode]:
        return [self.victim]


class Kill(Fault):
    """kill -9, and a start."""

    _code: int | None = None

    async def begin(self) -> None:
        kill(self.victim)
        self._code = await self.victim.ended()

    async def end(self) -> str:
        start(self.site, self.victim)
        return "killed" if self._code == -signal.SIGKILL else ""


class Transfer(Fault):
    """SIGTERM: it hands over what it leads, and is started again."""

    async def begin(self) -> None:
        self.victim.stop()
        if await self.victim.ended() is None:
            raise ClusterError(f"{self.victim.id} does not end by SIGTERM")

    async def end(self) -> str:
        assert self.victim.process is not None
        code = self.victim.process.returncode
        start(self.site, self.victim)
        if code:
            self.findings.append(f"{self.victim.id} exited with {code} by SIGTERM")
        return "exited with 0" if code == 0 else ""


class Pause(Fault):
    """SIGSTOP for longer than the others are patient: elections, and at times leases, too."""

    lasts_s = (1.7, 3.0)
    long_s = (5.0, 8.0)
    _was_paused = False

    async def last(self) -> None:
        is_long = self.rng.random() < 0.15
        await asyncio.sleep(self.rng.uniform(*(self.long_s if is_long else self.lasts_s)))

    async def begin(self) -> None:
        self.victim.pause()
        for _ in range(STOPS_AFTER):
            self._was_paused = self.victim.is_paused()
            if self._was_paused:
                return
            await asyncio.sleep(0.005)

    async def end(self) -> str:
        with suppress(ProcessLookupError):
            self.victim.resume()
        return "stopped" if self._was_paused else ""


class Partition(Fault):
    """No other node, or one of them, is heard of and hears."""

    lasts_s = (1.7, 3.5)

    async def begin(self) -> None:
        network = self.site.network
        if network is None:
            for line in self.site.lines_of(self.victim):
                line.held, line.is_cut = 0, True
            return
        network.cut(self.victim.number, self._cut())

    def _cut(self) -> Cut:
        others = [node.peer[0] for node in self.site.others(self.victim)]
        if self.rng.random() < 0.25:
            others = [self.rng.choice(others)]
        return Cut(tuple(others))

    async def end(self) -> str:
        network = self.site.network
        if network is None:
            lines = self.site.lines_of(self.victim)
            for line in lines:
                line.is_cut = False
                line.reset()
            held = sum(line.held for line in lines)
            return f"{held} times held" if held else ""
        dropped = network.dropped(self.victim.number)
        network.mend(self.victim.number)
        return f"{dropped} packets dropped" if self._is_shown(dropped) else ""

    def _is_shown(self, dropped: list[int]) -> bool:
        return any(dropped)


class OneWay(Partition):
    """The others hear it and it does not hear them, or the other way round."""

    def _cut(self) -> Cut:
        others = tuple(node.peer[0] for node in self.site.others(self.victim))
        inbound = self.rng.random() < 0.5
        return Cut(others, inbound=inbound, outbound=not inbound)


class Loss(Partition):
    """A share of what it sends and is sent is lost."""

    lasts_s = (1.5, 4.0)

    def _cut(self) -> Cut:
        others = tuple(node.peer[0] for node in self.site.others(self.victim))
        return Cut(others, percent=self.rng.choice((5, 15, 30, 45)))


class Delay(Fault):
    """All between it and the others comes late, or waits for a slow line."""

    lasts_s = (1.5, 4.0)
    _lines: dict[int, SlowLine]
    _is_narrow = False

    async def begin(self) -> None:
        delays = self.rng.choice(((0.005, 0.02), (0.03, 0.1), (0.1, 0.3)))
        network = self.site.network
        if network is None:
            for line in self.site.lines_of(self.victim):
                line.passed, line.delay_s = 0, delays
            return
        self._is_narrow = self.rng.random() < 0.4
        if self._is_narrow:
            network.narrow(self.victim.number, self.rng.choice((256, 1024, 4096)))
            return
        self._lines = {}
        for node in self.site.members:
            line = SlowLine(network.host, node.peer, self.rng)
            line.delay_s = delays
            await line.start()
            self._lines[node.number] = line
        ports = {number: line.port for number, line in self._lines.items()}
        mine = ports.pop(self.victim.number)
        network.divert(self.victim.number, ports, cutting=list(ports))
        for number in ports:
            network.divert(number, {self.victim.number: mine}, cutting=[self.victim.number])

    async def end(self) -> str:
        network = self.site.network
        if network is None:
            lines = self.site.lines_of(self.victim)
            for line in lines:
                line.delay_s = (0.0, 0.0)
            return _late(lines)
        if self._is_narrow:
            waited = network.waited(self.victim.number)
            network.widen(self.victim.number)
            return f"{waited} packets waited" if waited else ""
        for number in self._lines:
            network.undivert(number)
        for line in self._lines.values():
            await line.stop()
        return _late(list(self._lines.values()))


def _late(lines: Sequence[SlowLine]) -> str:
    passed = sum(line.passed for line in lines)
    return f"{passed} pieces came late" if passed else ""


class Clock(Fault):
    """The wall clock is set, and set back."""

    lasts_s = (1.0, 3.0)

    async def begin(self) -> None:
        assert self.victim.shim is not None
        self._jump_s = self.rng.choice(JUMPS_S) * self.rng.choice((-1, 1))
        self.victim.shim.set_wall(self._jump_s)

    async def end(self) -> str:
        shim = self.victim.shim
        assert shim is not None
        reads = shim.wall_reads
        shim.set_wall(0.0)
        return f"read {reads} times, {self._jump_s:+} s off" if reads else ""


def start(site: Site, node: StormNode) -> None:
    """Unless another fault that has ended did it."""
    if not node.is_there:
        site.restart(node)


def kill(node: StormNode) -> None:
    """kill -9. Raises ClusterError when it has died by itself."""
    if not node.is_there:
        raise ClusterError(f"{node.id} had died by itself:\n{node.tail()}")
    node.kill()
