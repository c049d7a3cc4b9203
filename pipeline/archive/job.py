"""One series of the archive: planned from its manifest, written in waves, each wave committed.

The manifest is the position: there is no other state. A wave is read and written by Spark into a
staging folder, looked at, given its final names, and committed by the next manifest. A run that
is killed before the commit has archived nothing of that wave: its files are named by no manifest,
the next run plans the same again, finds them, or leaves them to be swept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from goqueue.archive.layout import Series
from goqueue.archive.manifest import Covering, File, Gap, Manifest, OutOfStep, commit, newest
from pipeline.archive.feed import Feed
from pipeline.archive.plan import Chunk, waves
from pipeline.archive.run import Run
from pipeline.archive.writing import write

PLANS_MAX = 20
"""How often a run plans anew because others commit."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run has archived of a series."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    missing: int = 0
    """Positions that retention had deleted before."""

    def plus(self, items: Iterable[Covering]) -> Archived:
        """With these, too."""
        files = [item for item in items if isinstance(item, File)]
        gone = [gap for gap in items if isinstance(gap, Gap) and gap.why == "deleted"]
        return Archived(
            self.files + len(files),
            self.rows + sum(file.count for file in files),
            self.bytes + sum(file.bytes for file in files),
            self.missing + sum(gap.last - gap.first + 1 for gap in gone),
        )

    def and_(self, other: Archived) -> Archived:
        """Both together."""
        return Archived(
            self.files + other.files,
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.missing + other.missing,
        )


def archive(run: Run, feed: Feed) -> Archived:
    """Bring a series up to what is committed now. Raises GoQueueError; what was committed by
    then stays, and another run goes on from there."""
    done = Archived()
    for _ in range(PLANS_MAX):
        manifest = newest(run.store, feed.series)
        if manifest.version:  # whoever committed it may have died before it told
            run.committed(manifest)
        try:
            plan = feed.plan(manifest, run.bounds)
            if not plan.chunks and not plan.gaps:
                return done
            done = _work_off(run, feed, manifest, plan.chunks, plan.gaps, done)
        except OutOfStep as error:
            run.say(f"{feed.series.topic}: {error.message}; planning anew")
            continue
        return done
    raise OutOfStep(f"{feed.series.topic}: others committed {PLANS_MAX} times meanwhile")


def _work_off(
    run: Run,
    feed: Feed,
    manifest: Manifest,
    chunks: Sequence[Chunk],
    gaps: Sequence[Gap],
    done: Archived,
) -> Archived:
    planned = list(waves(chunks, run.files_per_wave)) or [[]]
    for number, wave in enumerate(planned, 1):
        began_s = time.monotonic()
        items: list[Covering] = [*gaps] if number == 1 else []
        if wave:
            items += write(run, feed, wave, f"{run.id}-{manifest.version}")
        _check_age(run, began_s)
        before, manifest = manifest, _commit(run, feed.series, items)
        run.reached("committed")
        new = [item for item in items if item.first >= before.position(item.partition)]
        done = done.plus(new)
        run.committed(manifest)
        run.say(_progress(feed.series, new, number, len(planned), time.monotonic() - began_s))
    return done


def _commit(run: Run, series: Series, items: Sequence[Covering]) -> Manifest:
    return commit(
        run.store,
        series,
        lambda manifest: manifest.extended(items),
        writer=run.id,
        now_ms=time.time_ns() // 1_000_000,
    )


def _check_age(run: Run, began_s: float) -> None:
    """A run that slept so long that its files may have been swept writes them anew."""
    if time.monotonic() - began_s > run.grace_s / 2:
        raise OutOfStep(f"a wave took longer than {run.grace_s / 2:.0f} s, half the grace")


def _progress(series: Series, items: Sequence[Covering], wave: int, of: int, took_s: float) -> str:
    made = Archived().plus(items)
    text = (
        f"{series.topic}: {made.rows:,} {series.kind} in {made.files} files,"
        f" {made.bytes / 2**20:.1f} MiB, {made.rows / max(took_s, 1e-3):,.0f} a second"
        f" (wave {wave} of {of})"
    )
    if made.missing:
        text += f"; {made.missing:,} had been deleted before they were archived"
    return text
