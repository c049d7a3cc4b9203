"""Budgets of memory: what one connection, one holder and one node may hold at once, by kind.

A holder is an API key, or an address where there is no key. Whoever needs memory that a client
decides about charges it here first, and gives it back; what does not fit is refused with 429, and
the refusal names the bound. Pure: it counts, and knows of no socket and no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from goqueue.wire.errors import OverBudget
from node.api.auth.hosts import bucket

Name = TypeVar("Name", bound=Hashable)

KIB = 1024
MIB = 1024 * KIB


class Kind(StrEnum):
    """What memory is for. Each kind has bounds of its own, so that none starves another."""

    HEADS = "heads"
    """Request heads that have not arrived as a whole."""
    BODIES = "bodies"
    """Bodies of requests as they arrive, decompressed, until the request is answered."""
    PARTS = "parts"
    """Messages of gRPC's publish streams that have not arrived as a whole: for each stream the
    largest that there may be, as grpcio does not tell."""
    FORMS = "forms"
    """Forms of the console, which who logs in sends without a key."""
    ROWS = "rows"
    """Messages of a publish, decoded."""
    APPENDS = "appends"
    """Batches that wait for their log."""
    ANSWERS = "answers"
    """Answers that a client has not taken yet."""
    POLLS = "polls"
    """Requests that wait for messages."""
    LINKS = "links"
    """Requests of other nodes while they are served, and answers that wait for their link."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one kind, in bytes.

    The last `reserve` of the node's are for holders with at most `small`, with what they ask for:
    those who hold much can't take it from them.
    """

    node: int
    holder: int
    connection: int
    reserve: int
    small: int


BOUNDS: Mapping[Kind, Bounds] = {
    Kind.HEADS: Bounds(64 * MIB, 16 * MIB, 128 * KIB, 8 * MIB, 256 * KIB),
    Kind.BODIES: Bounds(256 * MIB, 64 * MIB, 32 * MIB, 32 * MIB, MIB),
    Kind.PARTS: Bounds(512 * MIB, 128 * MIB, 128 * MIB, 64 * MIB, 8 * MIB),
    Kind.FORMS: Bounds(4 * MIB, MIB, 64 * KIB, MIB, 16 * KIB),
    Kind.ROWS: Bounds(256 * MIB, 64 * MIB, 64 * MIB, 32 * MIB, MIB),
    Kind.APPENDS: Bounds(256 * MIB, 64 * MIB, 64 * MIB, 32 * MIB, MIB),
    Kind.ANSWERS: Bounds(256 * MIB, 64 * MIB, 64 * MIB, 32 * MIB, MIB),
    Kind.POLLS: Bounds(64 * MIB, 16 * MIB, MIB, 8 * MIB, 256 * KIB),
    Kind.LINKS: Bounds(256 * MIB, 128 * MIB, 128 * MIB, 32 * MIB, MIB),
}
"""A quarter of a node's is the most that one holder has of most kinds: three floods at once leave
room for others. The largest body and its rows fit into what one connection may hold."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who memory is charged to. `connection` is whatever tells connections apart."""

    holder: str
    connection: Hashable


def owner_of(address: str, connection: Hashable, key_id: str | None = None) -> Owner:
    """By the key, or by the address where there is none; an IPv6 /64 is one address."""
    return Owner(f"address {bucket(address)}" if key_id is None else f"key {key_id}", connection)


class Budget:
    """What is charged for one kind."""

    def __init__(self, kind: Kind, bounds: Bounds) -> None:
        self.kind = kind
        self.bounds = bounds
        self.used = 0
        self.refused: Counter[str] = Counter()
        """How often each bound was run into, by its name: connection, holder, share, node."""
        self._holders: dict[str, int] = {}
        self._connections: dict[Hashable, int] = {}

    def hold(self, owner: Owner, size: int = 0) -> Held:
        """A charge that can grow. Raises OverBudget where there is no room for its beginning."""
        held = Held(self, owner)
        held.grow(size)
        return held

    def held_by(self, holder: str) -> int:
        return self._holders.get(holder, 0)

    def charge(self, owner: Owner, size: int) -> None:
        """Raises OverBudget, and charges nothing then. `Held` gives back what it charged."""
        bounds = self.bounds
        holding = self._holders.get(owner.holder, 0) + size
        connection = self._connections.get(owner.connection, 0) + size
        used = self.used + size
        if connection > bounds.connection:
            self._refuse("connection", bounds.connection)
        if holding > bounds.holder:
            self._refuse("holder", bounds.holder)
        if used > bounds.node:
            self._refuse("node", bounds.node)
        if used > bounds.node - bounds.reserve and holding > bounds.small:
            self._refuse("share", bounds.reserve)
        self.used = used
        self._holders[owner.holder] = holding
        self._connections[owner.connection] = connection

    def release(self, owner: Owner, size: int) -> None:
        self.used -= size
        _take(self._holders, owner.holder, size)
        _take(self._connections, owner.connection, size)

    def _refuse(self, bound: str, limit: int) -> NoReturn:
        self.refused[bound] += 1
        raise OverBudget(self.kind, bound, limit)


class Held:
    """Bytes charged to one owner: they grow, and are given back at once, or some of them earlier.

    As a context manager it gives them back at the end of its block.
    """

    __slots__ = ("_budget", "_owner", "size")

    def __init__(self, budget: Budget, owner: Owner) -> None:
        self._budget = budget
        self._owner = owner
        self.size = 0

    def grow(self, size: int) -> None:
        """Raises OverBudget, and stays as it is then."""
        if size:
            self._budget.charge(self._owner, size)
            self.size += size

    def shrink(self, size: int) -> None:
        if size:
            self._budget.release(self._owner, size)
            self.size -= size

    def resize(self, size: int) -> None:
        """Raises OverBudget where it would grow too far, and stays as it is then."""
        if size > self.size:
            self.grow(size - self.size)
        else:
            self.shrink(self.size - size)

    def release(self) -> None:
        """Idempotent."""
        self.shrink(self.size)

    def hand_over(self, holder: str) -> None:
        """It is this holder's from now on, whatever it grows to. Raises OverBudget where that one
        has no room for what it is now, and stays as it is then."""
        if holder != self._owner.holder:
            owner = replace(self._owner, holder=holder)
            self._budget.charge(owner, self.size)
            self._budget.release(self._owner, self.size)
            self._owner = owner

    def split(self, size: int) -> Held:
        """So much of it, as a charge of its own."""
        assert size <= self.size
        other = Held(self._budget, self._owner)
        other.size, self.size = size, self.size - size
        return other

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class Reserved:
    """A charge made beforehand, for all that one piece of work will hold: that is taken from it
    first, and charged only where it comes to more. As a context manager it gives back the rest."""

    __slots__ = ("_held", "used")

    def __init__(self, held: Held) -> None:
        self._held = held
        self.used = 0

    @property
    def size(self) -> int:
        return self._held.size

    def grow(self, size: int) -> None:
        """Raises OverBudget, and stays as it is then."""
        self._held.grow(max(0, self.used + size - self._held.size))
        self.used += size

    def shrink(self, size: int) -> None:
        self.used -= size

    def fit(self) -> None:
        """Give back what is not used."""
        self._held.resize(self.used)

    def split(self, size: int) -> Held:
        """So much of what is used, as a charge that outlives this one."""
        self.used -= size
        return self._held.split(size)

    def release(self) -> None:
        """Idempotent."""
        self._held.release()
        self.used = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class Budgets:
    """Those of one node, one for each kind. Loop thread only."""

    def __init__(self, bounds: Mapping[Kind, Bounds] | None = None) -> None:
        given = {**BOUNDS, **(bounds or {})}
        self._all = {kind: Budget(kind, given[kind]) for kind in Kind}

    def __getitem__(self, kind: Kind) -> Budget:
        return self._all[kind]

    @property
    def all(self) -> tuple[Budget, ...]:
        return tuple(self._all.values())

    def hold(self, kind: Kind, owner: Owner, size: int = 0) -> Held:
        """See `Budget.hold`."""
        return self._all[kind].hold(owner, size)


def _take(counts: dict[Name, int], name: Name, size: int) -> None:
    """What holds nothing is forgotten."""
    left = counts[name] - size
    assert left >= 0
    if left:
        counts[name] = left
    else:
        del counts[name]
