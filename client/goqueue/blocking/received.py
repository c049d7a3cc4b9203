"""Received messages that settle themselves, for programs without an event loop."""

from __future__ import annotations

from typing import Any, Protocol

from goqueue.models.options import Action, Position
from goqueue.models.queued import Leased, Received
from goqueue.models.settles import Settled
from goqueue.models.times import Duration


class BlockingSettles(Protocol):
    """Who a received message asks to settle it."""

    def settle_one(
        self,
        message: Leased,
        action: Action,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: Position | None = None,
        visibility: Duration | None = None,
    ) -> Settled: ...


class BlockingReceived(Leased, frozen=True, gc=True):
    """A message leased to this caller until `visible_until_ms`: settle it before. See `Received`;
    the methods are the same, blocking."""

    client: BlockingSettles | None = None

    def ack(self) -> Settled:
        """Done: the group never gets it again."""
        return self._settle("ack")

    def nack(
        self, reason: str = "", *, delay: Duration | None = None, position: Position | None = None
    ) -> Settled:
        """Failed: it comes again after `delay`, or is dead if it has failed too often."""
        return self._settle("nack", reason=reason, delay=delay, position=position)

    def reject(self, reason: str = "") -> Settled:
        """It can't succeed: it is dead at once, to be seen among the group's dead letters."""
        return self._settle("reject", reason=reason)

    def extend(self, visibility: Duration) -> Settled:
        """Needs longer: the lease ends this long after now, at the answer's `visible_at_ms`."""
        return self._settle("extend", visibility=visibility)

    def release(self) -> Settled:
        """Give it back as if it had not been delivered."""
        return self._settle("release")

    def _settle(self, action: Action, **options: Any) -> Settled:
        if self.client is None:
            raise TypeError("only a client's received message can be settled by itself")
        return self.client.settle_one(self, action, **options)


def blocking_received(message: Received, client: BlockingSettles) -> BlockingReceived:
    """The same message, to be settled through `client`."""
    fields = {name: getattr(message, name) for name in Leased.__struct_fields__}
    return BlockingReceived(**fields, client=client)
