"""Consumers as processes of their own: started, told to join and to leave, killed.

What they see they write into journals, on a clock that all processes share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.cluster import ROOT, Cluster, ClusterError
from tests.check.history import Event, load

SAYS_S = 30.0
LEAVES_S = 20.0


class Worker:
    """One consumer: `python -m tests.chaos.group_worker`. Also its client id."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.journal = folder / f"{name}.jsonl"
        self.log = folder / f"{name}.log"
        self.is_leaving = False
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, options: dict[str, Any]) -> None:
        """Return when all is loaded and it waits to be told to join."""
        told = options | {"name": self.name, "journal": str(self.journal)}
        with self.log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.chaos.group_worker", json.dumps(told)),
                cwd=ROOT,
                env=_environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        await self._hears("ready")

    async def join(self) -> None:
        """Return when it is a member."""
        self._tell("join")
        await self._hears("joined")

    async def leave(self) -> None:
        """It finishes what it has, leaves, and exits with 0."""
        self.is_leaving = True
        self._tell("leave")
        code = await asyncio.wait_for(self._child.wait(), LEAVES_S)
        if code != 0:
            raise ClusterError(f"{self.name} exited with {code}: {self.tail()}")

    async def kill(self) -> None:
        """kill -9."""
        self.is_leaving = True
        self._child.kill()
        await self._child.wait()

    async def end(self) -> None:
        """Away with it, whatever it does."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._child.pid

    def events(self) -> list[Event]:
        return load(self.journal) if self.journal.exists() else []

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    @property
    def _child(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    def _tell(self, word: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(word.encode() + b"\n")

    async def _hears(self, word: str) -> None:
        assert self._child.stdout is not None
        try:
            said = await asyncio.wait_for(self._child.stdout.readline(), SAYS_S)
        except TimeoutError:
            said = b""
        if said.decode().strip() != word:
            raise ClusterError(f"{self.name} is not {word}: {said!r}\n{self.tail()}")


@dataclass
class Crew:
    """The consumers of one group. A spare one waits, so that a join costs no start of a process."""

    cluster: Cluster
    folder: Path
    options: dict[str, Any]
    members: list[Worker] = field(default_factory=list[Worker])
    gone: list[Worker] = field(default_factory=list[Worker])
    spare: Worker | None = None
    _count: int = 0

    async def prepare(self) -> None:
        """Have a spare one."""
        if self.spare is None:
            self._count += 1
            self.spare = Worker(f"w{self._count}", self.folder)
            urls = [node.url for node in self.cluster.nodes]
            await self.spare.start(self.options | {"urls": urls})

    async def join(self) -> Worker:
        await self.prepare()
        worker, self.spare = self.spare, None
        assert worker is not None
        self.members.append(worker)
        await worker.join()
        return worker

    async def leave(self, worker: Worker) -> None:
        self._forget(worker)
        await worker.leave()

    async def kill(self, worker: Worker) -> None:
        self._forget(worker)
        await worker.kill()

    async def end(self) -> None:
        for worker in self.everybody():
            await worker.end()

    def everybody(self) -> list[Worker]:
        spare = [] if self.spare is None else [self.spare]
        return [*self.gone, *self.members, *spare]

    def check(self) -> None:
        """Raises ClusterError where a member's process has ended by itself."""
        for worker in self.members:
            if not worker.is_running:
                raise ClusterError(f"{worker.name} ended by itself: {worker.tail()}")

    def events(self) -> Iterable[Event]:
        """All journals, one after the other."""
        for worker in self.everybody():
            yield from worker.events()

    def _forget(self, worker: Worker) -> None:
        self.members.remove(worker)
        self.gone.append(worker)


class Journal:
    """Events of one process, each written at once: kill -9 takes none of them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def add(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "time": time.monotonic(), **fields}
        self._file.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")


def _environment() -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("GOQUEUE_")}
    path = [str(ROOT), str(ROOT / "client"), own.get("PYTHONPATH", "")]
    return own | {"PYTHONPATH": os.pathsep.join(part for part in path if part)}
