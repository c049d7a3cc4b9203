"""Who is connected to this node, by whatever protocol: how many, from where, and who makes room."""

from __future__ import annotations

from collections import Counter
from typing import Protocol, cast

from node.http.budget.limits import HttpLimits
from node.http.connections.handshakes import Handshakes
from node.http.connections.idle import Idle


class Guest(Protocol):
    """A connection. It may be asked for by its identity."""

    address: str
    """Of an IPv6 site, its /64."""
    is_leaving: bool
    """Cut to make room, and counted no longer."""

    def __hash__(self) -> int: ...

    def abort(self) -> None: ...


class Crowd:
    """The connections of a node's listeners, within the caps that they have together.

    At a cap, the longest idle of those whose clients have not shown that they may come in makes
    room for a new one. Loop thread only.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.idle = Idle()
        self.handshakes = Handshakes()
        """Of those that are no connections yet; in no other count."""
        self._limits = limits
        self._count = 0
        self._per_address: Counter[str] = Counter()

    @property
    def open_count(self) -> int:
        """Connections from accept on, also those whose TLS is not done."""
        return self._count + len(self.handshakes)

    def count_from(self, address: str) -> int:
        """As `open_count`, from one address."""
        return self._per_address[address] + self.handshakes.count_from(address)

    def enter(self, guest: Guest) -> bool:
        """Whether there is room for it; it is counted until it leaves either way, and idle where
        there is."""
        self.handshakes.end(guest)
        self._count += 1
        self._per_address[guest.address] += 1
        has_room = self._has_room(guest.address)
        if has_room:
            self.idle.add(guest, guest.address)
        return has_room

    def leave(self, guest: Guest) -> None:
        """Its connection is closed."""
        if guest.is_leaving:
            guest.is_leaving = False
        else:
            self._forget(guest)

    def make_room(self, address: str | None = None) -> bool:
        """Cut the longest idle of those that nobody knows, of this address or of all; False where
        there is none."""
        guest = cast("Guest | None", self.idle.oldest(address))
        if guest is None:
            return False
        guest.is_leaving = True
        self._forget(guest)
        guest.abort()
        return True

    def _has_room(self, address: str) -> bool:
        limits = self._limits
        if self._per_address[address] > limits.connections_per_address_max:
            return self.make_room(address)
        if self._count > limits.connections_max:
            return self.make_room()
        return True

    def _forget(self, guest: Guest) -> None:
        self.idle.remove(guest)
        self._count -= 1
        self._per_address[guest.address] -= 1
        if not self._per_address[guest.address]:
            del self._per_address[guest.address]
