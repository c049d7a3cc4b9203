"""Where a node's processes are born: forked from one that has imported the service.

A forked node skips the second of processor time that an interpreter takes to import the service,
which half of a storm's work would go into. From there on it is what its command is: `cli.serve`
with the same arguments in a process of its own, in its node's network, with its node's shim. What
it does to files, links and clocks begins after that.

`python -m tests.chaos.storm.cradle` reads a line of JSON for each process, tells its pid, and when
it has ended its exit code; one at a time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.local.processes import die_with_parent
from tests.chaos.cluster import ROOT, ClusterError

READY_S = 120.0
BORN_S = 30.0
_READY, _BORN, _ENDED = "ready", "born", "ended"


class Cradle:
    """Of one node, from `open()` to `close()`."""

    def __init__(self, prefix: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """`prefix`: what puts a command into the node's network."""
        self._prefix = list(prefix)
        self._environment = dict(environment)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""

    def open(self) -> None:
        """Returns before it is ready."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", __name__],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )

    def until_ready(self) -> None:
        """Blocks for as long as the service takes to import. Raises ClusterError."""
        self._next(_READY, READY_S)

    def bear(self, arguments: Sequence[str]) -> Forked:
        """Another process, after the one before has ended. Raises ClusterError."""
        assert self._process is not None and self._process.stdin is not None
        line = json.dumps({"arguments": list(arguments), "log": str(self._log)})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return Forked(self, self._next(_BORN, BORN_S))

    def close(self) -> None:
        """It and what it bore are gone."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def ended(self, within_s: float) -> int | None:
        """The exit code of the process that was born last, once it has ended."""
        line = self._line(within_s)
        if line is None:
            return None
        word, code = line.split()
        assert word == _ENDED
        return int(code)

    def _next(self, word: str, within_s: float) -> int:
        line = self._line(within_s)
        if line is None:
            raise ClusterError(f"not {word} within {within_s:.0f} s: {self._log}")
        said, number = line.split()
        assert said == word
        return int(number)

    def _line(self, within_s: float) -> str | None:
        assert self._process is not None and self._process.stdout is not None
        ends = time.monotonic() + within_s
        while b"\n" not in self._said:
            left_s = max(0.0, ends - time.monotonic())
            readable, _, _ = select.select([self._process.stdout], [], [], left_s)
            if not readable:
                return None
            found = os.read(self._process.stdout.fileno(), 4096)
            if not found:
                raise ClusterError(f"a cradle has died: {self._log}")
            self._said += found
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()


class Forked:
    """A process that was born in a cradle; exit codes are those of `subprocess`."""

    def __init__(self, cradle: Cradle, pid: int) -> None:
        self._cradle = cradle
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._cradle.ended(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        within_s = BORN_S if timeout is None else timeout
        if self.returncode is None:
            self.returncode = self._cradle.ended(within_s)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", within_s)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def main() -> None:
    """Returns in each child, once its node has ended."""
    import pydantic  # noqa: F401 - the service asks for it when it starts

    import node.server  # noqa: F401
    from cli import serve

    _tell(_READY, 0)
    while line := _read_line():
        asked = json.loads(line)
        bind = die_with_parent(signal.SIGKILL)
        pid = os.fork()
        if not pid:
            if bind is not None:
                bind()
            _become(asked["log"])
            sys.argv = ["goqueue", *asked["arguments"]]
            serve.main(asked["arguments"])
            return
        _tell(_BORN, pid)
        _, status = os.waitpid(pid, 0)
        _tell(_ENDED, os.waitstatus_to_exitcode(status))


def _become(log: str) -> None:
    """As after an exec, as far as the service can see."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)


def _tell(word: str, number: int) -> None:
    os.write(1, f"{word} {number}\n".encode())


def _read_line() -> bytes:
    """Empty when nobody is there to ask any more."""
    line = b""
    while not line.endswith(b"\n"):
        found = os.read(0, 1)
        if not found:
            return b""
        line += found
    return line


if __name__ == "__main__":
    main()
