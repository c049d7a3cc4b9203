"""The process for Prometheus: memory, files, CPU and garbage collection, read at each look."""

from __future__ import annotations

import gc
import os
import platform
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from node.metrics import Metrics
from node.runtime.version import VERSION

_PROC = Path("/proc/self")


class BoundFigures(Protocol):
    @property
    def node(self) -> int: ...


class BudgetOfKind(Protocol):
    """Memory of one kind, in bytes, and how often each of its bounds was run into."""

    used: int

    @property
    def kind(self) -> str: ...

    @property
    def bounds(self) -> BoundFigures: ...

    @property
    def refused(self) -> Mapping[str, int]: ...


class BudgetFigures(Protocol):
    """What clients make this process hold, as far as it is shown."""

    @property
    def all(self) -> Sequence[BudgetOfKind]: ...


class ProcessFigures:
    """Loop thread only. Where there is no /proc, memory is the most that there was."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics.process
        self._started_s = _started_s()
        metrics.process.build_info.labels(VERSION.version, platform.python_version()).set(1)

    def tell_budgets(self, budgets: BudgetFigures) -> None:
        metrics = self._metrics
        for budget in budgets.all:
            metrics.budget_used.labels(budget.kind).set(budget.used)
            metrics.budget_bound.labels(budget.kind).set(budget.bounds.node)
            for bound, count in budget.refused.items():
                metrics.budget_refused.put(count, budget.kind, bound)

    def tell(self) -> None:
        metrics, used = self._metrics, resource.getrusage(resource.RUSAGE_SELF)
        metrics.start_time.set(self._started_s)
        metrics.cpu_seconds.put(used.ru_utime + used.ru_stime)
        metrics.max_fds.set(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        try:
            fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
            metrics.threads.set(int(fields[17]))
            metrics.virtual_bytes.set(int(fields[20]))
            metrics.resident_bytes.set(int(fields[21]) * resource.getpagesize())
            metrics.open_fds.set(len(os.listdir(_PROC / "fd")))
        except (OSError, ValueError, IndexError):
            metrics.resident_bytes.set(used.ru_maxrss)
        for generation, told in enumerate(gc.get_stats()):
            metrics.gc_collections.labels(str(generation)).set(told["collections"])
            metrics.gc_collected.labels(str(generation)).set(told["collected"])


def _started_s() -> float:
    """When the process began, in Unix time; about now where that can't be known."""
    try:
        ticks = int((_PROC / "stat").read_text().rpartition(")")[2].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - uptime_s + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.time()
