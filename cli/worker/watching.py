"""`--reload`: the worker in a process of its own, begun anew when the source has changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cli.output.terminal import note

LOOK_S = 0.5
FILES_MAX = 20_000
"""Looked at; a folder with more is not watched whole."""
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})

Times = Mapping[Path, int]


def times_of(folder: Path) -> Times:
    """When each Python file below the folder was changed, but for those of folders that are hidden
    or hold what was installed."""
    found: dict[Path, int] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".") and one not in SKIPPED]
        for name in files:
            if name.endswith(".py") and len(found) < FILES_MAX:
                path = Path(root, name)
                try:
                    found[path] = path.stat().st_mtime_ns
                except FileNotFoundError:
                    continue
    return found


def without_reload(words: Sequence[str]) -> list[str]:
    """The command line of this process, without `--reload`."""
    return [word for word in words if word != "--reload"]


class Watch:
    """Runs a command until it is told to stop, and anew after each change. A run is ended in order,
    by SIGTERM. One that ends by itself is begun anew by the next change."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._command = command
        self._folder = folder
        self._sleep = sleep
        self._stopped = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Returns the last run's exit code once `stop` was called."""
        code = 0
        seen = times_of(self._folder)
        while not self._stopped:
            self._child = child = subprocess.Popen(self._command)
            while not self._stopped:
                self._sleep(LOOK_S)
                now = times_of(self._folder)
                if now != seen:
                    seen = now
                    note("the source has changed: the worker begins anew")
                    break
            if child.poll() is None:
                child.terminate()
            code = child.wait()
        return code

    def stop(self) -> None:
        """End the run, and begin no other. May be called by a signal's handler."""
        self._stopped = True


def watch(folder: Path) -> int:
    """This command without `--reload`, again and again, until SIGTERM or Ctrl-C. The last run's
    exit code."""
    watched = Watch([sys.executable, *without_reload(sys.orig_argv[1:])], folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: watched.stop())
    return watched.run()
