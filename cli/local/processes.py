"""Node processes on this machine: start one, see whether it still runs, stop it in bounded time.

A process is known by its pid and by the data directory in its command line, so that a pid that
the system gave to someone else is never signalled.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1


def start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a node in a session of its own, so that a terminal's Ctrl-C reaches only us.

    On Linux it gets SIGTERM when the calling thread dies, even by kill -9. Its output goes to the
    end of `log`, a file: a node must outlive whoever reads its messages.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )


def runs(pid: int, mark: str) -> bool:
    """Whether `pid` is a live process (not a zombie) whose command line contains `mark`."""
    proc = Path(f"/proc/{pid}")
    if proc.parent.joinpath("self").exists():
        try:
            line = (proc / "cmdline").read_bytes()
        except OSError:
            return False
        return mark.encode() in line.split(b"\0")
    listed = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return mark in listed.stdout


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def write_pid(path: Path) -> None:
    """Put this process's pid into `path`, atomically: readers see an old pid or this one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(f"{os.getpid()}\n")
    temporary.replace(path)


def read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None


def exit_text(status: int) -> str:
    """How a process ended, from its return code."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def die_with_parent(number: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """What a child of this process calls before all else: it gets the signal when the thread that
    started it dies. None where the system has no such thing."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(1)

    return arrange
