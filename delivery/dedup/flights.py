"""What a leader has admitted and not yet applied: by producer, by request and by message id."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from delivery.dedup.producers import StoredSequence
from goqueue.wire.types import Index, Offset

NOT_PROPOSED = Index(0)
"""The index of what was admitted, but not yet proposed."""


@dataclass(slots=True)
class Flight:
    """What goes into one entry, or has gone into it: known by what identifies its batches."""

    index: Index = NOT_PROPOSED
    producers: list[int] = field(default_factory=list[int])
    requests: list[int] = field(default_factory=list[int])
    message_ids: list[str] = field(default_factory=list[str])
    delayed: int = 0
    """Messages that are not due."""


@dataclass(slots=True)
class Pending:
    """A producer's batch in flight, and the flight that carries it."""

    stored: StoredSequence
    epoch: int
    flight: Flight


class Flights:
    """The flights of one leadership, oldest first, and the one that is boarding."""

    def __init__(self) -> None:
        self.boarding = Flight()
        self.producers: dict[int, deque[Pending]] = {}
        self.requests: dict[int, tuple[Offset, Flight]] = {}
        self.message_ids: dict[str, tuple[Offset, Flight]] = {}
        self.delayed = 0
        """Messages in all flights that are not due."""
        self._flying: deque[Flight] = deque()

    def __len__(self) -> int:
        """Entries proposed and not known to have applied."""
        return len(self._flying)

    def board_producer(self, producer_id: int, epoch: int, stored: StoredSequence) -> None:
        pending = self.producers.setdefault(producer_id, deque())
        pending.append(Pending(stored, epoch, self.boarding))
        self.boarding.producers.append(producer_id)

    def board_request(self, request_id: int, base_offset: Offset) -> None:
        self.requests[request_id] = (base_offset, self.boarding)
        self.boarding.requests.append(request_id)

    def board_ids(self, ids: list[str | None], base_offset: Offset) -> None:
        """Ids that are in flight already stay where they are first."""
        for row, message_id in enumerate(ids):
            if message_id is not None and message_id not in self.message_ids:
                self.message_ids[message_id] = (Offset(base_offset + row), self.boarding)
                self.boarding.message_ids.append(message_id)

    def board_delayed(self, count: int) -> None:
        self.boarding.delayed += count
        self.delayed += count

    def depart(self, index: Index) -> None:
        """What was boarding is proposed in this entry."""
        self.boarding.index = index
        self._flying.append(self.boarding)
        self.boarding = Flight()

    def cancel(self) -> None:
        """What was boarding is in no entry: as if never admitted."""
        for producer_id in self.boarding.producers:
            pending = self.producers[producer_id]
            pending.pop()
            if not pending:
                del self.producers[producer_id]
        self._forget(self.boarding)
        self.boarding = Flight()

    def land(self, applied: Index) -> None:
        """What has applied is in the state; it need not be remembered here."""
        while self._flying and self._flying[0].index <= applied:
            flight = self._flying.popleft()
            for producer_id in flight.producers:
                pending = self.producers[producer_id]
                pending.popleft()
                if not pending:
                    del self.producers[producer_id]
            self._forget(flight)

    def _forget(self, flight: Flight) -> None:
        for request_id in flight.requests:
            del self.requests[request_id]
        for message_id in flight.message_ids:
            del self.message_ids[message_id]
        self.delayed -= flight.delayed
