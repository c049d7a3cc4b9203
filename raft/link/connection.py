"""One TCP or TLS connection to a peer: handshake first, then sealed frames, with back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

from goqueue.wire.types import Incarnation, NodeId
from raft.link.config import LinkLimits
from raft.link.failed import Failure
from raft.link.frames import (
    FrameError,
    Kind,
    Opener,
    Outbox,
    Reassembly,
    Sealer,
    messages,
)
from raft.link.handshake import Acceptor, Dialer, HandshakeError, Identity, refusal
from raft.link.room import Room
from raft.link.traffic import Traffic

STUCK = "it does not read what it is sent"


class Owner(Protocol):
    """What a connection tells the mesh. Every call comes from the loop, none from `send`."""

    def opened(self, connection: Connection) -> None:
        """The socket is connected; the handshake begins."""

    def admit(self, connection: Connection) -> str | None:
        """The peer has proven itself; a text refuses it and is sent as the reason."""

    def established(self, connection: Connection) -> None:
        """Both sides are proven: frames may be sent."""

    def received(self, connection: Connection, kind: int, payload: memoryview) -> None:
        """One whole message. Raises FrameError to have the connection cut."""

    def lost(self, connection: Connection) -> None:
        """The connection is gone; told once, last."""


class Connection(asyncio.Protocol):
    """Bytes to messages and back, for one connection.

    All messages put in one turn of the loop leave together. What the socket does not take waits
    here, counted by `backlog_bytes`; above the limit the connection is cut.
    """

    def __init__(
        self,
        owner: Owner,
        handshake: Dialer | Acceptor,
        limits: LinkLimits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.opened_at = self.heard_at = loop.time()
        self.reason = ""
        self.failure: Failure | None = None
        """What was wrong with the handshake, once something was."""
        self.is_up = False
        """Whether the peer's first status has arrived; kept by the mesh."""
        self.settled: asyncio.Future[bool] = loop.create_future()
        """True once established, False if lost before."""
        self.closed: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._handshake = handshake
        self._limits = limits
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._handshake_bytes = 0
        self._outbox = Outbox()
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._reassembly = Reassembly(limits.message_bytes_max)
        self._paused = False
        self._flush_scheduled = False
        self.room = Room(limits.write_high_bytes)
        """Of requests and answers; what else is put is bounded by who puts it."""
        self.traffic = Traffic()
        """Counted on; the owner gives it the peer's."""
        self._written_bytes = self._taken_bytes = 0
        self._taken_at = self.opened_at

    @property
    def is_inbound(self) -> bool:
        return isinstance(self._handshake, Acceptor)

    @property
    def is_established(self) -> bool:
        """Proven both ways and not cut."""
        return self._sealer is not None and not self.reason

    @property
    def challenged(self) -> bool:
        """Whether a dialed node has answered."""
        return isinstance(self._handshake, Dialer) and self._handshake.challenged

    @property
    def peer(self) -> Identity:
        """Who the other side says it is; proven once admitted."""
        return self._handshake.peer or Identity(NodeId("?"), Incarnation(0))

    @property
    def backlog_bytes(self) -> int:
        """Bytes put and not yet taken by the kernel."""
        if self._transport is None or self._transport.is_closing():
            return self._outbox.byte_count
        return self._outbox.byte_count + self._transport.get_write_buffer_size()

    @property
    def _end_bytes(self) -> int:
        """Where what is put ends, counted from the connection's beginning."""
        return self._written_bytes + self._outbox.byte_count

    def takes_nothing_s(self, now: float) -> float:
        """For how long what waits for the peer did not become less, as the calls of this saw it."""
        backlog_bytes = self.backlog_bytes
        taken_bytes = self._end_bytes - backlog_bytes
        if not backlog_bytes or taken_bytes > self._taken_bytes:
            self._taken_bytes, self._taken_at = taken_bytes, now
        return now - self._taken_at

    def extra(self, name: str) -> object:
        """A fact about the transport, as asyncio names it."""
        return self._transport.get_extra_info(name) if self._transport else None

    def put(self, kind: Kind, parts: Sequence[bytes | memoryview]) -> bool:
        """Queue one message; False when the connection is cut or not established."""
        if self.reason or self._sealer is None:
            return False
        self._outbox.put(kind, parts)
        if self.backlog_bytes > self._limits.backlog_bytes_max:
            self.cut(STUCK)
            return False
        if kind in (Kind.REQUEST, Kind.ANSWER):
            self.room.put(self._end_bytes, sum(map(len, parts)))
        self._schedule_flush()
        return True

    def put_urgent(self, kind: Kind, payload: bytes) -> None:
        """Queue one small message ahead of what waits."""
        if self.is_established:
            self._outbox.put_urgent(kind, payload)
            self._schedule_flush()

    def cut(self, reason: str, *, tell: bool = False) -> None:
        """Close at once; `tell` sends the reason first, in the handshake only."""
        if self.reason:
            return
        self.reason = reason
        if self._transport is None:
            return
        if tell and self._sealer is None:
            self._transport.write(refusal(reason))
            self._transport.close()
        else:
            self._transport.abort()

    def close(self) -> None:
        """Send what waits, then close; the caller bounds the wait for `closed`."""
        if self._transport is None:
            self.reason = self.reason or "closed by this node"
            self.closed.set_result(None)
        if self.reason or self._transport is None:
            return
        self._paused = False
        while self.is_established and self._outbox and self._write_some():
            pass
        self.reason = "closed by this node"
        self._transport.close()

    def abort(self) -> None:
        """Drop the socket even while closing."""
        self.reason = self.reason or "aborted"
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_bytes)
        self.room.open(lambda: self._end_bytes - self.backlog_bytes)
        if self.reason:
            self._transport.abort()
            return
        self._owner.opened(self)
        if isinstance(self._handshake, Dialer) and not self.reason:
            self._transport.write(self._handshake.start())

    def data_received(self, data: bytes) -> None:
        if self.reason:
            return
        self.heard_at = self._loop.time()
        try:
            if self._opener is None:
                self._shake_hands(data)
            else:
                self.traffic.received_bytes += len(data)
                self._receive(self._opener, data)
        except HandshakeError as error:
            self.failure = error.failure
            self.cut(str(error), tell=True)
        except FrameError as error:
            self.cut(str(error))

    def eof_received(self) -> bool | None:
        return None

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reason = self.reason or (str(exc) if exc else "closed by the peer")
        if self.is_inbound and self._sealer is None:
            self.failure = self.failure or Failure.UNFINISHED
        if not self.settled.done():
            self.settled.set_result(False)
        if not self.closed.done():
            self.closed.set_result(None)
        self._outbox = Outbox()
        self.room.close()
        self._owner.lost(self)

    def _shake_hands(self, data: bytes) -> None:
        assert self._transport is not None
        handshake = self._handshake
        self._handshake_bytes += len(data)
        over = self._handshake_bytes > self._limits.handshake_bytes_max
        if over and isinstance(handshake, Acceptor):
            raise HandshakeError("too many bytes before a proof")
        answer = handshake.feed(data)
        if isinstance(handshake, Acceptor) and handshake.proven:
            refused = self._owner.admit(self)
            if refused is not None:
                raise HandshakeError(refused, Failure.REFUSED)
            answer += handshake.accept()
        if answer:
            self._transport.write(answer)
        if handshake.keys is None:
            if over:
                raise HandshakeError("too many bytes before a proof")
            return
        if isinstance(handshake, Dialer):
            refused = self._owner.admit(self)
            if refused is not None:
                raise HandshakeError(refused, Failure.REFUSED)
        self._sealer, self._opener = Sealer(handshake.keys.send), Opener(handshake.keys.receive)
        self.settled.set_result(True)
        self._owner.established(self)
        if handshake.rest:
            self._receive(self._opener, handshake.rest)

    def _receive(self, opener: Opener, data: bytes) -> None:
        received, traffic = self._owner.received, self.traffic
        for body in opener.feed(data):
            traffic.received_frames += 1
            for kind, payload in messages(body):
                if kind == Kind.CHUNK:
                    whole = self._reassembly.add(payload)
                    if whole is not None:
                        received(self, *whole)
                else:
                    received(self, kind, payload)
                if self.reason:
                    return

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled and not self._paused:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        while self._outbox and not self._paused and not self.reason and self._write_some():
            pass
        self.room.look()

    def _write_some(self) -> bool:
        """False when the socket is gone and only `connection_lost` is still to come."""
        assert self._transport is not None and self._sealer is not None
        if self._transport.is_closing():
            return False
        lines: list[bytes] = []
        size = 0
        while size < self._limits.write_high_bytes:
            body = self._outbox.take_body()
            if body is None:
                break
            lines += self._sealer.seal(body)
            size += len(body)
            self.traffic.sent_frames += 1
        self.traffic.sent_bytes += size
        self._written_bytes += sum(map(len, lines))
        self._transport.writelines(lines)
        return True
