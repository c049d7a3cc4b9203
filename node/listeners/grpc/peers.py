"""The connections that have calls, as the node counts them: in the caps of all its listeners."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.wire.errors import Unavailable
from node.api.auth.hosts import bucket
from node.http.connections.crowd import Crowd


class _Peer:
    """One connection, as a `Guest` of the crowd. It makes room for nobody: it is never idle there,
    and grpcio cuts none off."""

    def __init__(self, address: str) -> None:
        self.address = bucket(address)
        self.is_leaving = False
        self.calls = 0

    def abort(self) -> None:
        return None


class Peers:
    """Those of one listener. grpcio tells of calls only, so a connection is there from the first of
    its calls that are under way to the last. Loop thread only."""

    def __init__(self, crowd: Crowd, told: Callable[[int], None]) -> None:
        """`told` is how many there are, whenever that changes."""
        self._crowd = crowd
        self._told = told
        self._all: dict[str, _Peer] = {}

    def enter(self, name: str, address: str) -> None:
        """A call of the connection that grpcio calls so. Raises Unavailable where the node, or the
        address, has as many connections as it may."""
        peer = self._all.get(name)
        if peer is None:
            peer = _Peer(address)
            if not self._crowd.enter(peer):
                self._crowd.leave(peer)
                raise Unavailable("too many connections")
            self._crowd.idle.remove(peer)
            self._all[name] = peer
            self._told(len(self._all))
        peer.calls += 1

    def leave(self, name: str) -> None:
        """One that has entered is over."""
        peer = self._all[name]
        peer.calls -= 1
        if not peer.calls:
            del self._all[name]
            self._crowd.leave(peer)
            self._told(len(self._all))
