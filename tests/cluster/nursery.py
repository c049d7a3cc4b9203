"""Nodes' processes: forked from one that has imported the service, or started by their command.

A forked node skips the second of processor time that an interpreter takes to import the service;
from there on it is what its command is: `cli.serve` with the same arguments, in a process of its
own, with its own environment and log. Who needs the interpreter's own start takes the command.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
SERVE = "cli.serve"
_SERVICE = ["pydantic", SERVE, "node.server", "goqueue.everyday.queue", "node.embedded.engine"]
_WHEN_IT_STARTS = ["typer._adapters", "uvloop", "stringprep"]
"""What a node imports only when it starts: half of the time that its start takes."""
_IMPORTED = [*_SERVICE, *_WHEN_IT_STARTS, "tests.cluster.frozen"]
_nursery = multiprocessing.get_context("forkserver")
_nursery.set_forkserver_preload(_IMPORTED)


class Process(Protocol):
    """What tests do with a node's process; exit codes are those of `subprocess`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...


def execute(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path, module: str = SERVE
) -> Process:
    """An interpreter of its own, as users start one."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def fork(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
    process = _nursery.Process(
        target=_serve, args=(list(arguments), dict(environment), str(log)), daemon=True
    )
    process.start()
    return _Forked(process)


def fork_program(source: str, arguments: Sequence[str], errors: Path) -> Process:
    """A program's text as `python -c` would run it, without an interpreter's start."""
    environment = {name: value for name, value in os.environ.items() if "GOQUEUE" not in name}
    process = _nursery.Process(
        target=_run, args=(source, list(arguments), environment, str(errors)), daemon=True
    )
    process.start()
    return _Forked(process)


class _Forked:
    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(f"node {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _serve(arguments: list[str], environment: dict[str, str], log: str) -> None:
    """The child: as after an exec, as far as the service can see."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    from cli import serve

    sys.argv = ["goqueue", *arguments]
    serve.main(arguments)


def _run(source: str, arguments: list[str], environment: dict[str, str], errors: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with open(errors, "ab") as output, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 2)
    sys.argv = ["-c", *arguments]
    exec(compile(source, "program", "exec"), {"__name__": "__main__"})
