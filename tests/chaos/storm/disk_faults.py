"""Faults of disks: power that goes, files that rot, no room, errors of the system."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import Sequence

from tests.chaos.shim import ALLOCATE, OPEN, READ, SYNC, WRITE, Rule
from tests.chaos.storm.damage import Damage, damage
from tests.chaos.storm.faults import Fault, kill, start
from tests.chaos.storm.site import StormNode

STRIKES_S = 4.0
STARTS_S = 15.0
LEAVES_S = 15.0


class Power(Fault):
    """The power of one node goes: what it has not synced is lost. Then it starts again."""

    async def begin(self) -> None:
        for node in self.struck():
            assert node.disk is not None
            node.disk.cut_power()
        for node in self.struck():
            kill_if_there(node)
        for node in self.struck():
            await node.gone()

    async def end(self) -> str:
        lost = [start_after_power_cut(self.site.restart, node) for node in self.struck()]
        return f"unsynced bytes lost on {len(lost)}" if all(lost) else ""


class Blackout(Power):
    """The power of all nodes goes at once."""

    def struck(self) -> Sequence[StormNode]:
        return self.site.members


def start_after_power_cut(restart: object, node: StormNode) -> bool:
    """As a machine that has power again; whether unsynced bytes were lost."""
    assert node.disk is not None and callable(restart)
    is_lost = node.disk.restore_power()
    if node.shim is not None:
        node.shim.set_boot_id(str(uuid.uuid4()))
    restart(node)
    return is_lost


def kill_if_there(node: StormNode) -> None:
    """kill -9 of a node that may have left by itself, as it should when its disk fails."""
    if node.is_there:
        node.kill()
    node.is_running = False


class Flip(Fault):
    """Bits, zeros, junk or a cut in one to three of its files: while it is off, or while it
    runs and then is killed."""

    may_exit = True
    is_at_rest: bool | None = None

    async def begin(self) -> None:
        self._done: list[Damage] = []
        if self.is_at_rest is None:
            self.is_at_rest = self.rng.random() < 0.5
        if self.is_at_rest:
            kill(self.victim)
            await self.victim.gone()
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            done = damage(self.victim.data, self.rng)
            if done is not None:
                self._done.append(done)

    async def end(self) -> str:
        if not self.is_at_rest and self.victim.is_running:
            kill_if_there(self.victim)
            await self.victim.gone()
        start(self.site, self.victim)
        where = "at rest" if self.is_at_rest else "running"
        return f"{where}: {', '.join(map(str, self._done))}" if self._is_shown() else ""

    def _is_shown(self) -> bool:
        return bool(self._done) and any(one.is_done for one in self._done)


class Full(Fault):
    """There is no room on its disk, not for a byte."""

    lasts_s = (1.5, 3.0)
    may_exit = True

    async def begin(self) -> None:
        self._rule: Rule | None = None
        if self.victim.disk is not None:
            self._refused = await asyncio.to_thread(self.victim.disk.fill)
        else:
            assert self.victim.shim is not None
            self._rule = self.victim.shim.fail(
                WRITE | ALLOCATE | OPEN, errno.ENOSPC, match=str(self.victim.data)
            )

    async def end(self) -> str:
        if self.victim.disk is not None:
            free = os.statvfs(self.victim.disk.path).f_bavail
            self.victim.disk.empty()
            return f"{free} blocks free" if self._refused else ""
        assert self._rule is not None and self.victim.shim is not None
        done = self._rule.done
        self.victim.shim.clear()
        return f"{done} calls refused" if done else ""


class Eio(Fault):
    """The system reports an error: syncs or writes fail once or for ever, writes are short, reads
    fail, syncs take a second."""

    may_exit = True
    HOW = ("sync once", "sync", "write once", "write", "short", "read", "read at a start", "slow")

    async def begin(self) -> None:
        self._how = self.rng.choice(self.HOW)
        is_start = self._how == "read at a start"
        if is_start:
            kill(self.victim)
            await self.victim.gone()
        self._rule = self._give(self._how)
        if is_start:
            self.site.restart(self.victim)
        try:
            async with asyncio.timeout(STARTS_S if is_start else STRIKES_S):
                while not self._rule.done:  # noqa: ASYNC110 - a count in shared memory
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return

    def _give(self, how: str) -> Rule:
        shim, data = self.victim.shim, str(self.victim.data)
        assert shim is not None
        ahead, skip = f"{data}/wal/", self.rng.randrange(20)
        match how:
            case "sync once":
                return shim.fail(SYNC, errno.EIO, match=ahead, times=1, skip=skip)
            case "sync":
                return shim.fail(SYNC, errno.EIO, match=data, skip=skip)
            case "write once":
                return shim.fail(WRITE, errno.EIO, match=ahead, times=1, skip=skip)
            case "write":
                return shim.fail(WRITE, errno.EIO, match=data, skip=skip)
            case "short":
                return shim.shorten(match=data, skip=skip)
            case "read":
                return shim.fail(READ, errno.EIO, match=data, times=self.rng.choice((1, 5, -1)))
            case "read at a start":
                return shim.fail(READ, errno.EIO, match=data, times=1, skip=skip // 4)
            case _:
                return shim.delay(SYNC, 1.0, match=data)

    async def end(self) -> str:
        """A node whose log could not be written leaves; at times what it had not synced is lost
        then, as the kernel may do it."""
        node, shim = self.victim, self.victim.shim
        assert shim is not None
        done = self._rule.done
        is_fatal = bool(done) and self._how.removesuffix(" once") in ("sync", "write")
        if is_fatal and await node.ended(LEAVES_S) is None:
            self.findings.append(f"{node.id} went on after {done} failed calls: {self._how}")
        shim.clear()
        if not node.is_there:
            node.is_running = False
            if node.disk is not None and self.rng.random() < 0.5:
                node.disk.cut_power()
                start_after_power_cut(self.site.restart, node)
            else:
                self.site.restart(node)
        return f"{self._how}: {done} calls" if done else ""
