"""The store on a real disk, its jobs on threads of their own as a node runs them."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from goqueue.wire.types import Index
from log.disk.files import OsDisk
from log.entry import Entry
from log.store.directory import Store
from tests.unit.log.stores import (
    GROUP,
    SMALL,
    checkpoint,
    entry,
    everything,
    frames,
    group_of,
    open_store,
)

CONFIG = replace(
    SMALL, wal_file_bytes=1 << 16, segment_bytes=8000, ram_tail_bytes=4000, checkpoint_bytes=20_000
)


class Threads:
    """One thread flushes and spills, one checkpoints; completions come back by queue."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.errors: list[BaseException] = []
        self.flushes: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.checkpoints: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.threads = [
            threading.Thread(target=self.run, args=(jobs,), daemon=True)
            for jobs in (self.flushes, self.checkpoints)
        ]
        for thread in self.threads:
            thread.start()

    def run(self, jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (job := jobs.get()) is not None:
            try:
                job()
            except BaseException as error:
                self.errors.append(error)
                raise

    def turn(self) -> None:
        """One turn of the loop: completions, then new jobs."""
        store = self.store
        while not self.done.empty():
            self.done.get()()
        if (flush := store.take_flush()) is not None:

            def write() -> None:
                flush.sync()
                self.done.put(lambda: store.complete_flush(flush))
                flush.spill()
                self.done.put(lambda: store.complete_spill(flush))

            self.flushes.put(write)
        if store.checkpoint_due and (checkpoint := store.take_checkpoint()) is not None:

            def sync() -> None:
                checkpoint.run()
                self.done.put(lambda: store.complete_checkpoint(checkpoint))

            self.checkpoints.put(sync)

    def stop(self) -> None:
        self.flushes.put(None)
        self.checkpoints.put(None)
        for thread in self.threads:
            thread.join(20)
        while not self.done.empty():
            self.done.get()()


def test_appends_truncations_and_reads_beside_working_threads(tmp_path: Path) -> None:
    store = open_store(OsDisk(), CONFIG, root=str(tmp_path / "a" / "b"))
    log = group_of(store)
    threads = Threads(store)
    rng = random.Random(11)
    entries: list[Entry] = []
    term = 1

    for _ in range(2500):
        if rng.random() < 0.02 and entries:
            term += 1
            index = max(1, len(entries) - rng.randint(0, 60))
            log.truncate_from(Index(index))
            del entries[index - 1 :]
        new = [entry(len(entries) + 1 + n, term, size=rng.randint(0, 90)) for n in range(3)]
        log.append(new)
        entries += new
        threads.turn()
        at = rng.randint(1, len(entries))
        found = log.entries(Index(at), max_bytes=500)
        assert found == entries[at - 1 : at - 1 + len(found)]
        assert not threads.errors
        while store.backpressure:
            threads.turn()
            time.sleep(0.0005)
    deadline = time.monotonic() + 20
    while log.durable_index < len(entries) and time.monotonic() < deadline:
        threads.turn()
        time.sleep(0.001)
    threads.stop()

    assert log.durable_index == len(entries)
    assert everything(log) == entries
    checkpoint(store)  # of what the threads have left, if anything
    checkpoint(store)
    assert store.wal_files <= 2
    store.close()
    reopened = open_store(OsDisk(), CONFIG, root=str(tmp_path / "a" / "b"))
    assert frames(everything(reopened.partition_log(GROUP))) == frames(entries)
    reopened.close()
