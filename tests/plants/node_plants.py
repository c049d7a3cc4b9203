"""Bugs of the node's shell: copies, requests on their way to leaders, publishes, replicas."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from goqueue.wire.types import NodeId
from node.replicas.local import Replicas
from node.storage.copying.source import TransferSource
from raft.errors import Outcome
from tests.plants.plant import Plant, always, nothing

Call = Callable[..., Any]


def _unchecked(_original: Call) -> Call:
    """A chunk is taken as it comes."""
    return lambda _request, answer, _length: answer[4:]


def _served_to_anybody(original: Call) -> Call:
    def session(self: TransferSource, number: int, peer: NodeId) -> Any:
        known = self._sessions.get(number)
        return original(self, number, peer if known is None else known.peer)

    return session


def _repeats_anything(original: Call) -> Call:
    async def call(self: object, *args: object, **named: object) -> object:
        return await original(self, *args, **{**named, "has_identity": True})

    return call


def _doubt_is_denied(original: Call) -> Call:
    def ended(self: object, flight: object, outcome: Outcome, time_ms: int) -> None:
        told = Outcome.NONE if outcome is Outcome.UNKNOWN else outcome
        original(self, flight, told, time_ms)

    return ended


def _answered_as_proposed(original: Call) -> Call:
    def propose(self: Any, requests: list[Any]) -> bool:
        proposed: bool = original(self, requests)
        for request in requests if proposed else ():
            self._answer(request, 0, relaxed=False)
        return proposed

    return propose


def _believed_unchecked(original: Call) -> Call:
    class Passed:
        def cancelled(self) -> bool:
            return False

        def exception(self) -> None:
            return None

    return lambda self, request, _done: original(self, request, Passed())


def _removed_by_what_is_older(_original: Call) -> Call:
    """Any configuration that the cluster group knows without this replica removes it."""

    def is_removed(self: Replicas, state: Any, group: Any) -> bool:
        truth = state.layout.configuration(group)
        return truth is not None and self._me not in state.layout.holders(group)

    return is_removed


def _gives_up(original: Call) -> Call:
    async def round(self: Any) -> float | None:
        with suppress(Exception):
            return cast(float | None, await original(self))
        return None

    return round


NODE_PLANTS = (
    Plant(
        "chunks-unchecked",
        "node.rpc.transfer:decode_chunk",
        _unchecked,
        "tests/unit/node/storage/copying/test_transfer.py::test_a_damaged_chunk_is_asked_for_again",
    ),
    Plant(
        "copies-what-it-has",
        "node.storage.copying.transfer:_lacks",
        always(True),
        "tests/unit/node/storage/copying/test_transfer.py::test_a_replica_that_a_leader_can_go_on_from_is_not_copied",
    ),
    Plant(
        "damage-is-left",
        "node.storage.copying.transfer:Transfers.watch",
        nothing,
        "tests/unit/node/storage/copying/test_transfer.py::test_a_log_damaged_for_longer_than_repair_takes_is_copied",
    ),
    Plant(
        "served-to-anybody",
        "node.storage.copying.source:TransferSource._session",
        _served_to_anybody,
        "tests/unit/node/storage/copying/test_transfer.py::test_only_so_many_copies_are_served_and_only_to_who_asked",
    ),
    Plant(
        "silence-pins",
        "node.storage.copying.source:TransferSource.sweep",
        nothing,
        "tests/unit/node/storage/copying/test_transfer.py::test_a_peer_that_falls_silent_pins_nothing_for_long",
    ),
    Plant(
        "repeats-anything",
        "node.peers.forwarding:Forwarder.call",
        _repeats_anything,
        "tests/unit/node/peers/test_forwarding.py::test_doubt_without_identity_is_told_and_never_repeated",
    ),
    Plant(
        "waits-for-the-deposed",
        "node.peers.forwarding:Forwarder.leader_changed",
        nothing,
        "tests/unit/node/peers/test_forwarding.py::test_a_silent_leader_is_left_as_soon_as_another_is_known",
    ),
    Plant(
        "doubt-is-denied",
        "node.partition.append_queue:AppendQueue._ended",
        _doubt_is_denied,
        "tests/unit/node/partition/test_append_queue.py"
        "::test_losing_leadership_tells_waiting_and_proposed_requests_apart",
    ),
    Plant(
        "answered-as-proposed",
        "node.partition.append_queue:AppendQueue._propose",
        _answered_as_proposed,
        "tests/unit/node/partition/test_append_queue.py::test_nothing_is_answered_before_its_entry_applied",
    ),
    Plant(
        "large-batches-unchecked",
        "node.partition.append_queue:AppendQueue._checked",
        _believed_unchecked,
        "tests/unit/node/partition/test_append_queue_refusals.py"
        "::test_a_large_damaged_batch_is_refused_once_it_is_checked",
    ),
    Plant(
        "offsets-not-taken-back",
        "delivery.leader.appender:Appender.withdraw",
        nothing,
        "tests/unit/node/partition/test_append_queue_refusals.py"
        "::test_offsets_of_a_refused_proposal_are_given_to_the_next_batch",
    ),
    Plant(
        "leases-not-given-back",
        "node.partition.queue:QueueHost.give_back",
        nothing,
        "tests/unit/node/partition/test_queue.py"
        "::test_a_receiver_that_leaves_while_its_entry_is_under_way_gives_back_the_attempt",
    ),
    Plant(
        "changes-unnamed",
        "node.queue.operations:Operations._named",
        lambda _original: lambda _self, op: op,
        "tests/unit/node/queue/test_operations_identity.py"
        "::test_what_would_count_twice_is_named_before_it_is_sent",
    ),
    Plant(
        "founds-by-an-old-state",
        "node.replicas.local:ReplicasOf._is_empty",
        always(False),
        "tests/unit/node/replicas/test_local.py::test_none_is_founded_while_the_state_may_be_older_than_it_was",
    ),
    Plant(
        "removed-by-what-is-older",
        "node.replicas.local:ReplicasOf._is_removed",
        _removed_by_what_is_older,
        "tests/unit/node/replicas/test_local.py"
        "::test_a_replica_that_nobody_names_and_that_holds_newer_entries_is_a_stray",
    ),
    Plant(
        "reconciles-once",
        "node.replicas.reconciler:Reconciler._round",
        _gives_up,
        "tests/unit/node/replicas/test_reconciler.py::test_what_could_not_be_reconciled_is_tried_again",
    ),
)
