"""Bugs of the log, of Raft and of the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

from goqueue.wire.types import PartitionId
from log.wal.format import FileHeader, WalState
from raft.host import RaftHost
from tests.plants.plant import Plant, always, nothing

Retire = Callable[[RaftHost, PartitionId], None]
Header = Callable[[FileHeader], bytes]
Begin = Callable[..., bool]


def _without_votes(original: Header) -> Header:
    def encode(header: FileHeader) -> bytes:
        partitions = {
            partition_id: replace(meta, vote=None)
            for partition_id, meta in header.state.partitions.items()
        }
        copy = replace(header, state=replace(header.state, partitions=partitions))
        encoded = original(copy)
        header.header_bytes = copy.header_bytes
        return encoded

    return encode


def _suspects_nobody(original: Begin) -> Begin:
    def begin(state: WalState, boot_id: str, **named: bool) -> bool:
        unclean = original(state, boot_id, **named)
        for meta in state.partitions.values():
            meta.suspect = False
        return unclean

    return begin


def _forgets_all(_original: Retire) -> Retire:
    def retire(self: RaftHost, id: PartitionId) -> None:
        self.stop_raft_group(id)
        if self._store.has_log(id):
            self._store.remove_log(id)

    return retire


LOG_PLANTS = (
    Plant(
        "bare-logs-not-logged-again",
        "log.store.wal_only:WalOnlyLogs.log_again",
        nothing,
        "tests/unit/log/store/test_wal_only.py::"
        "test_elections_alone_make_no_files_and_are_there_after_a_power_cut",
    ),
    Plant(
        "header-drops-votes",
        "log.wal.writer:encode_header",
        _without_votes,
        "tests/unit/log/partition/test_hard_state.py::test_a_vote_outlives_every_new_file_of_the_log",
    ),
    Plant(
        "suspects-trusted",
        "log.wal.format:WalState.begin",
        _suspects_nobody,
        "tests/unit/log/store/test_boot.py::test_relaxed_group_alone_is_suspect_after_a_power_cut",
    ),
    Plant(
        "doubt-does-nothing",
        "log.partition.log:PartitionLog.mark_suspect",
        nothing,
        "tests/unit/log/copy/test_transfer.py"
        "::test_where_nobody_can_tell_what_went_with_a_copy_the_log_is_suspect",
    ),
    Plant(
        "copy-drops-what-is-beyond",
        "log.partition.log:entries_beyond",
        always([]),
        "tests/unit/log/copy/test_transfer.py"
        "::test_what_was_acknowledged_beyond_the_copy_stays_in_a_damaged_log",
    ),
    Plant(
        "failed-sync-forgotten",
        "log.wal.writer:WalWriter.note_failure",
        nothing,
        "tests/unit/log/store/test_boot.py"
        "::test_failed_sync_leaves_relaxed_groups_suspect_in_the_same_boot",
    ),
    Plant(
        "voters-unsynced",
        "log.partition.log:EntryKind",
        lambda _original: SimpleNamespace(VOTERS=-1),
        "tests/unit/raft/test_relaxed.py"
        "::test_change_of_voters_is_acknowledged_after_its_sync_with_all_before_it",
    ),
    Plant(
        "counts-by-what-it-may-forget",
        "raft.replication:Replication._keeps_configuration",
        always(True),
        "tests/unit/raft/test_relaxed.py"
        "::test_relaxed_leader_counts_by_new_voters_once_its_own_disk_knows_them",
    ),
    Plant(
        "retired-forget",
        "raft.host:RaftHost.retire_raft_group",
        _forgets_all,
        "tests/unit/raft/test_changes.py"
        "::test_retired_replica_keeps_its_term_and_vote_and_never_founds_the_group_again",
    ),
    Plant(
        "producer-epochs-ignored",
        "delivery.leader.appender:check_epoch",
        nothing,
        "tests/unit/delivery/leader/test_appender.py"
        "::test_an_older_epoch_is_fenced_by_stored_and_by_flying_batches",
    ),
)
"""By floors, from the bottom up."""
