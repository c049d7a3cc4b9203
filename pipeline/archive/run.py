"""What everything that one run of a command does to an archive has in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from goqueue.archive.manifest import Manifest
from pipeline.archive.hadoop_store import HadoopStore
from pipeline.archive.plan import Bounds

FILES_PER_WAVE = 16
GRACE_S = 6 * 3600.0
"""How long what no manifest names is left alone: it may be another run's, about to be committed."""


def _nothing(_told: object) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Run:
    """What all series of a run share. `id` names the run, in manifests and in staging."""

    id: str
    spark: SparkSession
    store: HadoopStore
    bounds: Bounds = field(default_factory=Bounds)
    files_per_wave: int = FILES_PER_WAVE
    grace_s: float = GRACE_S
    say: Callable[[str], None] = print
    committed: Callable[[Manifest], None] = _nothing
    """Told of the manifest that counts: when a series is begun, and after each commit."""
    reached: Callable[[str], None] = _nothing
    """Told of each step that a run may die after; tests do."""

    def telling(self, committed: Callable[[Manifest], None]) -> Run:
        """The same run, that tells what is committed."""
        return replace(self, committed=committed)
