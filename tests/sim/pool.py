"""Seeds over all cores: their verdicts, in the order of the seeds."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

from tests.sim.setup import Setup
from tests.sim.world import Verdict

CHUNK = 10
"""Seeds that a worker runs at once; the garbage of so many is collected together."""


class Pool(AbstractContextManager["Pool"]):
    """Worker processes, or none where there is one job only."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._workers = ProcessPoolExecutor(jobs, initializer=_begin) if jobs > 1 else None
        if self._workers is None:
            _begin()

    def __exit__(self, *_error: object) -> None:
        if self._workers is not None:
            self._workers.shutdown(cancel_futures=True)

    def verdicts(self, setup: Setup, seeds: Sequence[int]) -> Iterator[Verdict]:
        """Of each seed; they are run as they are asked for, and a little ahead."""
        return self._verdicts(setup, seeds, CHUNK)

    def _verdicts(self, setup: Setup, seeds: Sequence[int], size: int) -> Iterator[Verdict]:
        chunks = [seeds[at : at + size] for at in range(0, len(seeds), size)]
        run = partial(_run, setup)
        found = map(run, chunks) if self._workers is None else self._workers.map(run, chunks)
        for verdicts in found:
            yield from verdicts

    def first_bad(self, setup: Setup, seeds: Sequence[int]) -> Verdict | None:
        """The first seed that violated something; those after it are not all run: a few at first,
        since a few are mostly enough."""
        at, size = 0, 1
        while at < len(seeds):
            end = at + size * self.jobs
            for verdict in self._verdicts(setup, seeds[at:end], size):
                if verdict.violations:
                    return verdict
            at, size = end, min(2 * size, CHUNK)
        return None


def _begin() -> None:
    """What is imported by now stays: it is not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()


def _run(setup: Setup, seeds: Sequence[int]) -> list[Verdict]:
    gc.disable()
    try:
        return [setup.run(seed) for seed in seeds]
    finally:
        gc.enable()
        gc.collect()
