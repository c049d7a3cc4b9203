"""Settling receipts: sorted by partition and by what is to become of them, each told its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.groups.settings import Group
from delivery.entries.ops import (
    ACK,
    EXTEND,
    LEASE_EXPIRED,
    NACK,
    OK,
    REJECT,
    RELEASE,
    STALE,
    Result,
    Settle,
    Settled,
    SettledResult,
)
from goqueue.wire.errors import (
    BadReceipt,
    GoQueueError,
    NotFound,
    NotInFlight,
    OutcomeUnknown,
    ReceiptExpired,
    StaleGeneration,
    UnknownGroup,
)
from goqueue.wire.types import Offset, PartitionId
from node.api.claims import NOBODY, Claim
from node.api.queue import SettleRequest, SettleView
from node.cluster.host import ClusterHost
from node.queue.group_admin import GroupsBroker, claim_in
from node.queue.operations import Operations
from node.queue.receipt import Receipt, decode_receipt
from node.queue.receipts import KeyNotKnown, Receipts

ACTIONS = {"ack": ACK, "nack": NACK, "reject": REJECT, "extend": EXTEND, "release": RELEASE}

_Kind = tuple[int, str, str, int | None, bool, int]
"""(group, action, reason, delay, to the back, visibility): receipts that are alike share one."""


@dataclass(slots=True)
class _Alike:
    """Receipts of one partition that end in the same way: (row of the request, receipt)."""

    rows: list[tuple[int, Receipt]] = field(default_factory=list[tuple[int, Receipt]])

    def operation(self, kind: _Kind, request_id: int, claim: Claim) -> tuple[Settled, list[int]]:
        """The operation, and the rows in the order of its results."""
        deliveries: dict[int, list[tuple[int, int]]] = {}
        for row, receipt in self.rows:
            deliveries.setdefault(receipt.delivery, []).append((row, receipt.offset))
        group, action, reason, delay_ms, to_back, visibility_ms = kind
        settled = Settled(
            group,
            ACTIONS[action],
            [
                (delivery, [offset for _row, offset in found])
                for delivery, found in deliveries.items()
            ],
            reason,
            -1 if delay_ms is None else delay_ms,
            to_back,
            visibility_ms,
            request_id,
            claim.member,
            claim.generation,
        )
        return settled, [row for found in deliveries.values() for row, _offset in found]


_Place = tuple[str, str, dict[_Kind, _Alike]]
"""A group's and a topic's name, and the receipts of one partition."""


class Settles:
    """Implements `node.api.queue.Receipts`, at the leaders of partitions. Loop thread only."""

    def __init__(
        self,
        cluster: ClusterHost,
        groups: GroupsBroker,
        operations: Operations,
        receipts: Receipts,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._operations = operations
        self._receipts = receipts
        self._rng = rng
        self._group_names: dict[int, str] = {}

    async def settle(
        self,
        requests: Sequence[SettleRequest],
        group: str | None = None,
        claim: Claim = NOBODY,
    ) -> list[SettleView | GoQueueError]:
        named = None if group is None else await self._groups.find(group)
        results: list[SettleView | GoQueueError] = [OutcomeUnknown()] * len(requests)
        places: dict[bytes, _Place] = {}
        found: dict[PartitionId, dict[_Kind, _Alike]] = {}
        receipts: dict[int, tuple[Receipt, str, str]] = {}
        read = await self._read([request.receipt for request in requests])
        for row, (request, receipt) in enumerate(zip(requests, read, strict=True)):
            if isinstance(receipt, GoQueueError):
                results[row] = receipt
                continue
            try:
                place = places.get(receipt.head)
                if place is None:
                    names = await self._names(receipt, named)
                    place = (*names, found.setdefault(receipt.partition, {}))
                    places[receipt.head] = place
            except GoQueueError as error:
                results[row] = error
                continue
            receipts[row] = (receipt, place[0], place[1])
            kind = (
                receipt.group,
                request.action,
                request.reason,
                request.delay_ms,
                request.to_back,
                request.visibility_ms,
            )
            alike = place[2].get(kind)
            if alike is None:
                alike = place[2][kind] = _Alike()
            alike.rows.append((row, receipt))
        settling = [self._settle(partition, kinds, claim) for partition, kinds in found.items()]
        if len(found) == 1 and self._operations.are_led_here(next(iter(found))):
            ends = [await settling[0]]  # no task, nor has a receive one that goes along with it
        else:
            ends = await asyncio.gather(*settling)
        for end in ends:
            for row, outcome in end:
                results[row] = _view(*receipts[row], outcome)
        return results

    async def _read(self, texts: Sequence[str]) -> list[Receipt | GoQueueError]:
        """As `Receipts.read`. A node that does not know a key first catches up."""
        read = self._receipts.read(texts)
        if any(isinstance(one, KeyNotKnown) for one in read):
            await self._cluster.refresh()
            read = self._receipts.read(texts)
        return read

    async def receipt_places(self, receipts: Sequence[str]) -> list[tuple[str, str] | None]:
        """As `Receipts` names it. A node that does not know one first catches up."""
        found = self._places(receipts)
        if any(place is None or not place[1] for place in found):
            await self._cluster.refresh()
            found = self._places(receipts)
        return found

    def _places(self, receipts: Sequence[str]) -> list[tuple[str, str] | None]:
        state = self._cluster.state
        found: list[tuple[str, str] | None] = []
        for text in receipts:
            try:
                receipt = decode_receipt(text)
            except BadReceipt:
                found.append(None)
                continue
            topic, group = state.topic_of(receipt.partition.topic), state.group_of(receipt.group)
            name = "" if group is None else group.name
            found.append(None if topic is None else (topic.name, name))
        return found

    async def _settle(
        self, partition: PartitionId, kinds: dict[_Kind, _Alike], claim: Claim
    ) -> list[tuple[int, tuple[Settle, SettledResult] | GoQueueError]]:
        """(row, what became of it) for all receipts of one partition."""
        operations = [
            alike.operation(kind, self._rng.getrandbits(63) or 1, self._claim(kind[0], claim))
            for kind, alike in kinds.items()
        ]
        try:
            answer = await self._operations.put(partition, [op for op, _rows in operations])
        except GoQueueError as error:
            return [(row, error) for _op, rows in operations for row in rows]
        return [
            end
            for (_op, rows), result in zip(operations, answer.results, strict=True)
            for end in _ends(rows, result)
        ]

    def _claim(self, group: int, claim: Claim) -> Claim:
        known = self._cluster.state.group_of(group)
        return claim if known is None else claim_in(known, claim)

    async def _names(self, receipt: Receipt, group: Group | None) -> tuple[str, str]:
        """The receipt's group and topic by name. Raises NotFound for one that is gone, or is not
        the group that was named."""
        if group is not None and receipt.group != group.id:
            raise NotFound(f"this is no receipt of group {group.name}", group=group.name)
        names = self._known(receipt)
        if names is None:  # another node may just have made them
            await self._cluster.refresh()
            names = self._known(receipt)
        if names is None:
            raise NotFound("the receipt's group or topic is gone")
        return names

    def _known(self, receipt: Receipt) -> tuple[str, str] | None:
        state = self._cluster.state
        topic = state.topic_of(receipt.partition.topic)
        group = self._group_name(receipt.group)
        if topic is None or group is None or receipt.partition.partition >= len(topic.partitions):
            return None
        return group, topic.name

    def _group_name(self, id: int) -> str | None:
        """The living group with this id."""
        groups = self._cluster.state.groups
        known = groups.get(self._group_names.get(id, ""))
        if known is None or known.id != id:
            self._group_names = {group.id: name for name, group in groups.items()}
        return self._group_names.get(id)


def _ends(
    rows: list[int], result: Result
) -> list[tuple[int, tuple[Settle, SettledResult] | GoQueueError]]:
    if isinstance(result, SettledResult):
        return [(row, (settle, result)) for row, settle in zip(rows, result.settles, strict=True)]
    return [(row, UnknownGroup("")) for row in rows]


_REFUSALS: dict[int, type[GoQueueError]] = {
    LEASE_EXPIRED: ReceiptExpired,
    STALE: StaleGeneration,
}


def _view(
    receipt: Receipt,
    group: str,
    topic: str,
    outcome: tuple[Settle, SettledResult] | GoQueueError,
) -> SettleView | GoQueueError:
    if not isinstance(outcome, GoQueueError) and outcome[0].code == OK:
        settle, result = outcome
        return SettleView(
            group,
            topic,
            receipt.partition.partition,
            receipt.offset,
            settle.outcome,
            settle.attempts,
            settle.visible_at_ms,
            Offset(result.committed_offset),
            result.advanced,
            result.in_flight,
        )
    facts: dict[str, Any] = {
        "topic": topic,
        "partition": receipt.partition.partition,
        "offset": receipt.offset,
    }
    if isinstance(outcome, UnknownGroup):
        return NotInFlight(group=group, **facts)
    if isinstance(outcome, GoQueueError):
        return outcome
    return _REFUSALS.get(outcome[0].code, NotInFlight)(group=group, **facts)
