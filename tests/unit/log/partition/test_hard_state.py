"""Term and vote are stated anew by each file of the write-ahead log."""

from __future__ import annotations

from goqueue.wire.types import Term
from log.disk.memory import MemoryDisk
from log.partition.journal import HardState
from tests.unit.log.stores import GROUP, append, flush, group_of, open_store


def test_a_vote_outlives_every_new_file_of_the_log() -> None:
    """Where it was recorded may be long gone."""
    disk = MemoryDisk()
    store = open_store(disk)
    group_of(store, GROUP).save_hard_state(Term(7), "n2")
    flush(store)

    for _ in range(2):  # each opening begins a file of its own
        disk = disk.clone()
        store = open_store(disk)
        assert store.partition_log(GROUP).hard_state == HardState(Term(7), "n2")
    for _ in range(40):
        append(store.partition_log(GROUP), size=100)
        flush(store)

    assert open_store(disk.clone()).partition_log(GROUP).hard_state == HardState(Term(7), "n2")
