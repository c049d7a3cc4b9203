"""Applying what is committed, and local snapshots of what is applied."""

from __future__ import annotations

import logging

from goqueue.wire.types import Index
from log.entry import Entry, EntryKind
from log.errors import EntryDamaged
from log.levels import Unspoken
from raft.configuration import pack_snapshot, unpack_snapshot
from raft.errors import ApplyFailed, Unsafe
from raft.interfaces import SnapshotWork
from raft.membership import Membership
from raft.proposals import Proposals
from raft.roles import Roles
from raft.state import State

logger = logging.getLogger("raft")

_OWN_KINDS = (EntryKind.NOOP, EntryKind.VOTERS)


class Apply:
    """The apply loop, and where the newest local snapshot ends."""

    def __init__(
        self, state: State, roles: Roles, membership: Membership, proposals: Proposals
    ) -> None:
        self._state = state
        self._log = state.log
        self._host = state.host
        self._roles = roles
        self._membership = membership
        self._proposals = proposals
        self._applying = False
        self._snapshot_index = 0
        self._unapplied: list[Entry] = []
        """Committed entries that were read, and come next."""

    def apply_committed(self) -> bool:
        """Applies until all is applied or the slice of time is over; then the rest is due soon.

        Whether anything was applied. An exception of the state machine stops this replica, but for
        Unspoken, which only ends the applying.
        """
        state = self._state
        first = state.applied_index
        if first >= state.commit_index or self._applying or state.unspoken:
            return False
        until = state.now() + state.config.apply_slice_s
        self._applying = True
        try:
            while state.applied_index < state.commit_index:
                if not self._apply_some(until):
                    break
        finally:
            self._applying = False
        if not state.halted and not state.unspoken:
            if state.applied_index < state.commit_index:
                self._host.wake()
            if state.applied_index - self._snapshot_index >= state.config.snapshot_entries:
                self._host.snapshot_due()
        return state.applied_index > first

    def _apply_some(self, until: float) -> bool:
        """Applies entries read at once; False when time is up or the replica has stopped."""
        state = self._state
        now = state.now
        unapplied = self._unapplied = self._unapplied or self._read_committed()
        while unapplied:
            entry = unapplied.pop()
            result: object = None
            try:
                if entry.kind not in _OWN_KINDS:
                    result = state.machine.apply(entry)
                elif entry.kind == EntryKind.VOTERS:
                    self._membership.find(entry)
            except Unspoken as error:
                self._cannot_read(entry.index, error)
                return False
            except Exception as error:  # noqa: BLE001 - whatever it is, this replica stops
                self._apply_failed(entry.index, error)
                return False
            state.applied_index = entry.index
            if entry.kind == EntryKind.VOTERS:
                self._membership.applied(entry.index)
            self._proposals.applied(entry, result)
            if entry.index == state.noop_index:
                self._roles.serve()
            if state.halted or now() >= until:
                return False
        return True

    def _read_committed(self) -> list[Entry]:
        """The next entries to apply, the first one last. What no slice had time for waits for the
        next one: reading it again from the disk could take all of that."""
        config, applied = self._state.config, self._state.applied_index
        count = min(config.apply_entries, self._state.commit_index - applied)
        first = Index(applied + 1)
        return self._log.entries(first, max_bytes=config.apply_bytes, max_count=count)[::-1]

    def _cannot_read(self, index: int, error: Unspoken) -> None:
        state = self._state
        state.unspoken = (
            f"entry {index} was written by a version that speaks a higher feature level: {error}"
        )
        logger.error("group %s on %s applies no more: %s", state.id, state.node, state.unspoken)
        self._unapplied.clear()
        self._roles.stand_by()

    def _apply_failed(self, index: int, error: Exception) -> None:
        failure = ApplyFailed(f"group {self._state.id}: entry {index} can't be applied: {error!r}")
        failure.__cause__ = error
        self._roles.fail(failure)

    # -- local snapshots

    def take_snapshot(self, *, again: bool = False) -> SnapshotWork | None:
        """The applied state as work for any thread; None while it is ahead of what is durable, and
        where the newest snapshot is as new, unless it is to be stored `again`."""
        state = self._state
        applied = Index(state.applied_index)
        stored = 0 if again else self._snapshot_index
        if state.halted or applied <= stored or applied > self._log.durable_index:
            return None
        self._snapshot_index = applied
        as_of = self._membership.as_of(applied)
        return self._log.save_snapshot(applied, pack_snapshot(as_of, state.machine.snapshot()))

    def restore_snapshot(self) -> None:
        """Begins where the newest local snapshot ends; all before it was committed.

        A snapshot beyond the log's end (a relaxed log lost its tail in a power cut) is ignored
        where the log can be replayed from its beginning. Raises EntryDamaged where none that the
        log continues can be read, so that the replica is to be copied; Unsafe where none is there.
        """
        state, log = self._state, self._log
        found = log.latest_snapshot()
        if found is not None and (found[0] <= log.last_index or log.first_index > 1):
            index, content = found
            configuration, content = unpack_snapshot(content)
            if configuration is not None:
                self._membership.begin_from(configuration)
            state.machine.restore(index, content)
            self._snapshot_index = state.applied_index = index
            state.commit_index = index
        applied = state.applied_index
        if applied < log.first_index - 1 and log.quarantined:
            first, last = applied + 1, log.first_index - 1
            raise EntryDamaged(str(state.id), first, last, "no snapshot to begin from")
        if not log.first_index - 1 <= applied <= log.last_index:
            raise Unsafe(
                f"group {state.id}: state up to entry {applied}, but the log holds "
                f"{log.first_index} to {log.last_index}"
            )
