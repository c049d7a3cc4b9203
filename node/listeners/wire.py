"""One connection of a listener: bytes in bounded pieces, writes that wait, memory that is charged.

What a client has sent and nobody has read is charged to it (`Kind.BODIES`), and so is what was
written and it has not taken (`Kind.ANSWERS`); reading stops while much is unread, and writers wait
while much is unsent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from goqueue.wire.errors import OverBudget, Unavailable
from node.api.auth.hosts import bucket
from node.http.budget.memory import Budgets, Held, Kind, Owner, owner_of
from node.http.connections.crowd import Crowd

UNREAD_BYTES_MAX = 1 << 16
"""Beyond it, reading stops until what is there was read; one piece of the system's is on top."""
UNSENT_BYTES_MAX = 1 << 14
"""Beyond it, writers wait. Less of it is charged to nobody, as over HTTP."""


class Wire(asyncio.Protocol):
    """A connection that is read by one task and written to by any. Loop thread only.

    `serve` is called once it is made, and is to begin that task; not where the node has no room
    for it: `refused` is what its client is told then.
    """

    def __init__(
        self,
        crowd: Crowd,
        budgets: Budgets,
        serve: Callable[[Wire], None],
        refused: Callable[[Unavailable], bytes],
        left: Callable[[Wire], None],
    ) -> None:
        self.address = ""
        """Of an IPv6 site, its /64."""
        self.is_leaving = False
        self.peer = ""
        """The address as it is."""
        self.partial_since_s = 0.0
        """Since when a request has been arriving that is not here as a whole; 0 while none is. The
        protocol says so, and the sweep cuts those that take too long."""
        self.partial_bytes = 0
        """How much of it is here."""
        self.stalled_since_s = 0.0
        self.unsent_seen_bytes = 0
        """What `unsent_bytes` was when the sweep came by."""
        self._crowd = crowd
        self._budgets = budgets
        self._serve = serve
        self._refused = refused
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._charged: Held | None = None
        self._sent: Held | None = None
        self._overfull: OverBudget | None = None
        self._is_eof = False
        self._is_dropping = False
        self._arrived: asyncio.Future[None] | None = None
        self._taken: list[asyncio.Future[None]] = []
        self._is_paused = False
        self._is_full = False
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._done: asyncio.Future[None] = self._loop.create_future()

    # what is read and written

    async def read(self) -> bytes:
        """What has arrived, once there is something; b"" where the client will send no more. Raises
        OverBudget where there was no room for it: nothing more is read then."""
        while not self._unread and not self._is_eof and self._overfull is None:
            self._arrived = self._loop.create_future()
            try:
                await self._arrived
            finally:
                self._arrived = None
        if self._overfull is not None:
            raise self._overfull
        data = bytes(self._unread)
        self._unread.clear()
        if self._charged is not None:
            self._charged.release()
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
        return data

    @property
    def has_unread(self) -> bool:
        """Whether `read` returns at once."""
        return bool(self._unread) or self._is_eof or self._overfull is not None

    async def write(self, data: bytes) -> None:
        """Return once most of it is on its way. Raises ConnectionError where nobody is there, and
        OverBudget where the client's unsent answers find no room: none of it is written then."""
        self.send(data)
        await self.drained()

    def send(self, data: bytes) -> None:
        """As `write`, without waiting: `drained` does."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has hung up")
        if len(data) + self.unsent_bytes > UNSENT_BYTES_MAX:
            if self._sent is None:
                self._sent = self._budgets[Kind.ANSWERS].hold(self.owner)
            self._sent.resize(self.unsent_bytes + len(data))
        transport.write(data)
        if self._sent is not None and not self._is_full:
            self._sent.release()

    async def drained(self) -> None:
        """Until no more than `UNSENT_BYTES_MAX` is unsent. Raises ConnectionError."""
        while self._is_full:
            waiting: asyncio.Future[None] = self._loop.create_future()
            self._taken.append(waiting)
            await waiting
        if self._transport is None:
            raise ConnectionResetError("the client has hung up")

    def hung_up(self) -> asyncio.Future[None]:
        """Done once the connection is closed. It is shared: don't cancel it."""
        return self._gone

    def said_all(self) -> asyncio.Future[None]:
        """Done once its client sends no more, or is gone: nobody waits for messages any more. It is
        shared: don't cancel it."""
        return self._done

    def end_reading(self) -> None:
        """What has arrived is still read, and nothing after it: as if the client had said all."""
        self._end()

    async def linger(self, seconds: float) -> None:
        """Nothing more is said, and what the client still sends is dropped for so long, so that it
        gets to read what it was told: a socket that is closed with something unread is reset."""
        transport = self._transport
        if transport is None or self._done.done():
            return
        self._is_dropping = True
        self._unread.clear()
        if self._charged is not None:
            self._charged.release()
        if transport.can_write_eof():
            transport.write_eof()
        if self._is_paused:
            self._is_paused = False
            transport.resume_reading()
        await asyncio.wait((self._done,), timeout=seconds)

    def close(self) -> None:
        """Once what was written is sent. Idempotent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()

    def is_known(self) -> None:
        """Its client has shown that it may come in: it makes no room for others."""
        self._crowd.idle.remove(self)

    @property
    def unsent_bytes(self) -> int:
        """What was written and the system has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def is_waiting(self) -> bool:
        """Whether its client is waited for, to take more."""
        return self._is_full

    @property
    def tls_version(self) -> str | None:
        """None on a plain connection."""
        if self._transport is None:
            return None
        found = self._transport.get_extra_info("ssl_object")
        return None if found is None else str(found.version())

    @property
    def alpn(self) -> str | None:
        """The protocol that TLS has chosen, None where it chose none."""
        if self._transport is None:
            return None
        found = self._transport.get_extra_info("ssl_object")
        return None if found is None else cast("str | None", found.selected_alpn_protocol())

    @property
    def owner(self) -> Owner:
        """Who its memory is charged to, before and after a key was brought."""
        return owner_of(self.address, self)

    # as the loop calls it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(UNSENT_BYTES_MAX)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        self.address = bucket(self.peer)
        self._charged = self._budgets[Kind.BODIES].hold(self.owner)
        if self._crowd.enter(self):
            self._serve(self)
        else:
            self._transport.write(self._refused(Unavailable("too many connections")))
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._overfull is not None or self._charged is None or self._is_dropping:
            return
        try:
            self._charged.grow(len(data))
        except OverBudget as error:
            self._overfull = error
            self._pause()
        else:
            self._unread += data
            if len(self._unread) > UNREAD_BYTES_MAX:
                self._pause()
        self._wake()

    def eof_received(self) -> bool:
        """What was asked before is still answered."""
        self._end()
        return self.tls_version is None

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.leave(self)
        self._transport = None
        self._unread.clear()
        if self._charged is not None:
            self._charged.release()
        if self._sent is not None:
            self._sent.release()
        self._end()
        self.resume_writing()
        if not self._gone.done():
            self._gone.set_result(None)
        self._left(self)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._sent is not None:
            self._sent.release()
        for waiting in self._taken:
            if not waiting.done():
                waiting.set_result(None)
        self._taken.clear()

    # private

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _end(self) -> None:
        self._is_eof = True
        if not self._done.done():
            self._done.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
