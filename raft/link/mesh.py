"""The links of one node to its peers: dialed, accepted, kept alive, and shared by all Raft groups.

Every node dials every peer it has no link to, and accepts at any time, so a node that restarts is
back as fast as it can dial. Two nodes keep one connection; `raft.link.admission` says which.

A link is up when the peer's first status has arrived, and down when its connection is lost.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from goqueue.background import TaskSet
from goqueue.wire.types import PARTITION_ID_BYTES, NodeId, PartitionId
from raft.link.admission import Standing, Verdict, check_listen, judge_inbound
from raft.link.charge import Charge, free
from raft.link.config import DEFAULT_LIMITS, Address, Endpoint, LinkEvents, LinkLimits, Status
from raft.link.connection import STUCK, Connection
from raft.link.failed import FailedHandshakes
from raft.link.frames import FrameError, Kind
from raft.link.handshake import NONCE_BYTES, Acceptor, Dialer, Identity
from raft.link.listener import Listener
from raft.link.rpc import Caller, Handler, LinkDown, Responder
from raft.link.tls import certificate_nodes
from raft.link.traffic import Traffic

LEVELS = "levels"
"""Where a status that was received tells the feature levels that its sender speaks: a Spoken."""

_log = structlog.get_logger("link")
_GROUPS_CACHED_MAX = 4096
_UNLISTED_MAX = 256
_STOP_S = 1.0
_DUPLICATE = "duplicate"
_encode_status = msgspec.msgpack.Encoder(enc_hook=str).encode
_decode_status = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Peer:
    """One other node: its address if it is listed, and the connection that stands."""

    def __init__(self, node: NodeId, address: Address | None) -> None:
        self.node = node
        self.address = address
        self.link: Connection | None = None
        self.dialing: Connection | None = None
        self.status: Status = {}
        self.caller: Caller | None = None
        self.responder: Responder | None = None
        self.unlinked = asyncio.Event()
        self.unlinked.set()
        self.dialer: asyncio.Task[None] | None = None
        self.complaint = ""


class PeerMesh:
    """The peer link of one node, used on one loop's thread.

    A status that was received carries the `incarnation` of the peer, and under `LEVELS` what it
    speaks, as the handshake has proven them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        peers: dict[NodeId, Address],
        events: LinkEvents,
        *,
        limits: LinkLimits = DEFAULT_LIMITS,
        charge: Charge = free,
    ) -> None:
        self.node = endpoint.node
        self._endpoint = endpoint
        self._levels = endpoint.levels
        self._listen = endpoint.listen
        self._secret = b"" if endpoint.tls else endpoint.secret
        self._tls = endpoint.tls
        self._events = events
        self._limits = limits
        self._charge = charge
        self._rng = random.Random(os.urandom(16))
        self._peers: dict[NodeId, Peer] = {}
        self._addresses = dict(peers)
        self._handlers: dict[str, Handler] = {}
        self._shaking: dict[Connection, None] = {}
        self._partition_ids: dict[bytes, PartitionId] = {}
        self._tasks = TaskSet("link", "link_task_failed")
        self._listener: Listener | None = None
        self._client_context: ssl.SSLContext | None = None
        self._running = False
        self.failed_handshakes = FailedHandshakes()
        self.traffic: dict[NodeId, Traffic] = {}
        """Of each peer that a link was established with; forgotten with the peer."""

    @property
    def address(self) -> Address:
        """Where this node listens; the port is the real one after `start`."""
        return (self._listener and self._listener.address) or self._listen

    async def start(self) -> None:
        """Listen, and begin to dial. Raises InsecureListen, OSError or ssl.SSLError."""
        check_listen(self._listen[0], is_protected=bool(self._secret or self._tls))
        server_context = self._tls.server_context() if self._tls else None
        self._client_context = self._tls.client_context() if self._tls else None
        listener = Listener(self._accepted, server_context, self._limits, self.failed_handshakes)
        await listener.start(*self._listen)
        self._listener = listener
        self._running = True
        self._tasks.begin(self._tell_status())
        self.set_peers(self._addresses)

    async def stop(self) -> None:
        """Close every link, sending what waits within a second. Idempotent; raises nothing."""
        self._running = False
        if self._listener is not None:
            await self._listener.stop()
        connections = [p.link for p in self._peers.values() if p.link] + list(self._shaking)
        connections += [p.dialing for p in self._peers.values() if p.dialing]
        tasks = self._tasks.cancel()
        for peer in self._peers.values():
            tasks += self._hang_up(peer)
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([c.closed for c in connections], timeout=_STOP_S)
            for connection in connections:
                connection.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_S)
        self._peers.clear()

    def set_peers(self, peers: dict[NodeId, Address]) -> None:
        """Replace the table of peers: new ones are dialed, missing ones cut and kept out.

        Where nodes that are not in the table may connect, missing ones are only dialed no more. A
        changed address counts from the next dial on.
        """
        self._addresses = {node: address for node, address in peers.items() if node != self.node}
        if not self._running:
            return
        for node in [n for n in self._peers if n not in self._addresses]:
            if self._limits.admit_unlisted:
                self._leave_unlisted(self._peers[node])
            else:
                self._forget(self._peers[node])
        for node, address in self._addresses.items():
            peer = self._peer(node)
            peer.address = address
            if peer.dialer is None:
                peer.dialer = self._tasks.begin(self._dial(peer))

    def tell_levels(self) -> None:
        """This node knows of a higher finished level: peers that can't speak it are cut, and the
        others told before anything else that is sent from now on."""
        for peer in list(self._peers.values()):
            if peer.link is None:
                continue
            refused = self._levels.refusal(peer.node, peer.link.peer.levels)
            if refused is not None:
                peer.link.cut(refused)
            else:
                peer.link.put_urgent(Kind.STATUS, self._status())

    def connected(self) -> dict[NodeId, Status]:
        """The latest status of every peer whose link is up."""
        return {
            n: p.status
            for n, p in self._peers.items()
            if p.link and p.link.is_up and not p.link.reason
        }

    def send(
        self, node: NodeId, partition_id: PartitionId, parts: Sequence[bytes | memoryview]
    ) -> bool:
        """Queue one Raft frame; False when there is no link. Delivery is never promised."""
        peer = self._peers.get(node)
        if peer is None or peer.link is None or not peer.link.is_up:
            return False
        return peer.link.put(Kind.RAFT, [partition_id.pack(), *parts])

    def backlog_bytes(self, node: NodeId) -> int:
        """Bytes sent to this peer that its socket has not taken; 0 without a link."""
        peer = self._peers.get(node)
        return peer.link.backlog_bytes if peer is not None and peer.link is not None else 0

    def handle(self, method: str, handler: Handler) -> None:
        """Serve a method to peers. A GoQueueError it raises reaches the caller as it is."""
        if method in self._handlers:
            raise ValueError(f"method {method} has a handler")
        self._handlers[method] = handler

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        """Ask a peer. Raises LinkDown, Timeout, RemoteError or Busy. Cancelling stops the wait."""
        peer = self._peers.get(node)
        if peer is None or peer.link is None or peer.caller is None or not peer.link.is_up:
            raise LinkDown(node, sent=False)
        return await peer.caller.request(method, payload, timeout_s)

    # What connections tell (raft.link.connection.Owner).

    def opened(self, connection: Connection) -> None:
        sock = connection.extra("socket")
        if isinstance(sock, socket.socket) or hasattr(sock, "setsockopt"):
            _tune(sock)
        self._shaking[connection] = None
        if connection.is_inbound:
            inbound = [c for c in self._shaking if c.is_inbound]
            if len(inbound) > self._limits.unauthenticated_max:
                del self._shaking[inbound[0]]
                inbound[0].cut("too many open handshakes")

    def admit(self, connection: Connection) -> str | None:
        node = connection.peer.node
        if self._tls is not None and node not in certificate_nodes(connection.extra("peercert")):
            return f"the certificate does not stand for {node}"
        if not self._running:
            return "stopping"
        if node not in self._addresses and not self._may_join_unlisted(node):
            return f"{node} is not in this node's table of peers"
        refused = self._levels.refusal(node, connection.peer.levels)
        if refused is not None:
            return refused
        return self._admit_inbound(self._peer(node)) if connection.is_inbound else None

    def established(self, connection: Connection) -> None:
        peer = self._peer(connection.peer.node)
        if peer.link is not None:
            self._unlink(peer, "replaced by a newer connection")
        peer.link = connection
        connection.traffic = self.traffic.setdefault(peer.node, connection.traffic)
        peer.unlinked.clear()
        put, room = connection.put, connection.room
        peer.caller = Caller(peer.node, put, room, self._limits)
        peer.responder = Responder(peer.node, put, room, self._handlers, self._limits, self._charge)
        connection.put_urgent(Kind.STATUS, self._status())

    def received(self, connection: Connection, kind: int, payload: memoryview) -> None:
        peer = self._peers.get(connection.peer.node)
        if peer is None or peer.link is not connection:
            raise FrameError("not the link to this peer any more")
        if kind == Kind.STATUS:
            self._receive_status(peer, connection, payload)
            return
        if not connection.is_up or peer.caller is None or peer.responder is None:
            raise FrameError("a message before the first status")
        if kind == Kind.RAFT:
            self._receive_frame(peer.node, payload)
        elif kind == Kind.REQUEST:
            peer.responder.requested(payload)
        elif kind == Kind.ANSWER:
            peer.caller.answered(payload)
        elif kind == Kind.FAILURE:
            peer.caller.failed(payload)

    def lost(self, connection: Connection) -> None:
        self._shaking.pop(connection, None)
        if connection.failure and self._running and not connection.reason.startswith(_DUPLICATE):
            address, claims = connection.extra("peername"), connection.peer.node
            self.failed_handshakes.add(connection.failure, connection.reason, address, claims)
        peer = self._peers.get(connection.peer.node)
        if peer is not None and peer.link is connection:
            self._unlink(peer, connection.reason)
        if peer is not None and peer.link is None and peer.address is None and self._running:
            self._drop(peer)

    # Accepting and dialing.

    @property
    def _me(self) -> Identity:
        return Identity(self.node, self._endpoint.incarnation, self._levels.spoken)

    def _accepted(self) -> Connection:
        handshake = Acceptor(self._me, self._secret, os.urandom(NONCE_BYTES))
        return Connection(self, handshake, self._limits, asyncio.get_running_loop())

    def _admit_inbound(self, peer: Peer) -> str | None:
        standing, dialing, link = Standing.NONE, peer.dialing, peer.link
        if link is not None and not link.reason:
            standing = Standing.ACCEPTED if link.is_inbound else Standing.DIALED
        challenged = dialing is not None and dialing.challenged and not dialing.reason
        verdict = judge_inbound(self.node, peer.node, standing, challenged=challenged)
        if verdict is Verdict.REFUSE:
            return f"{_DUPLICATE}: this node is connecting too"
        if verdict is Verdict.REFUSE_AND_PROBE and link is not None:
            link.put_urgent(Kind.STATUS, self._status())
            return f"{_DUPLICATE}: a connection to this node stands"
        if dialing is not None:
            dialing.cut("the peer's own connection came first")
        return None

    async def _dial(self, peer: Peer) -> None:
        loop, limits = asyncio.get_running_loop(), self._limits
        delay_s = limits.redial_first_s
        while True:
            await peer.unlinked.wait()
            assert peer.address is not None, "who is dialed is in the table"
            dialer = Dialer(self._me, self._secret, os.urandom(NONCE_BYTES), peer.node)
            connection = Connection(self, dialer, limits, loop)
            peer.dialing = connection
            try:
                async with asyncio.timeout(limits.dial_timeout_s):
                    await loop.create_connection(
                        lambda made=connection: made,
                        *peer.address,
                        ssl=self._client_context,
                        server_hostname=peer.node if self._tls else None,
                    )
                    succeeded = await connection.settled
                complaint = connection.reason
            except Exception as error:  # noqa: BLE001 - whatever ends one dial, the next is due
                succeeded, complaint = False, str(error) or "no answer in time"
                connection.cut(complaint)
            finally:
                peer.dialing = None
            self._complain(peer, "" if succeeded or not peer.unlinked.is_set() else complaint)
            delay_s = limits.redial_first_s if succeeded else delay_s
            await asyncio.sleep(delay_s * self._rng.uniform(0.5, 1.0))
            delay_s = min(delay_s * 2, limits.redial_max_s)

    def _complain(self, peer: Peer, complaint: str) -> None:
        if complaint.startswith(_DUPLICATE):
            return
        if complaint and complaint != peer.complaint:
            _log.warning("peer_not_reached", peer=peer.node, reason=complaint)
        peer.complaint = complaint

    # Status and silence.

    async def _tell_status(self) -> None:
        loop, limits = asyncio.get_running_loop(), self._limits
        last = loop.time()
        while True:
            await asyncio.sleep(limits.status_interval_s)
            now, stalled = loop.time(), loop.time() - last > 2 * limits.status_interval_s
            last = now
            try:
                status = self._status()
            except Exception:  # noqa: BLE001 - what tells it may recover; silence is noticed
                _log.exception("status_not_told")
                continue
            for peer in self._peers.values():
                if peer.link is not None:
                    peer.link.put_urgent(Kind.STATUS, status)
            if not stalled:
                self._cut_silent(now)

    def _cut_silent(self, now: float) -> None:
        """After a stall of this node nobody is cut: what peers sent may not have been read yet."""
        for connection in list(self._shaking):
            if now - connection.opened_at > self._limits.handshake_s:
                connection.cut("the handshake took too long")
        for peer in list(self._peers.values()):
            if peer.link is None:
                continue
            silent_s = now - peer.link.heard_at
            peer.link.traffic.heartbeats_missed += silent_s > 2 * self._limits.status_interval_s
            if silent_s > self._limits.silence_s:
                peer.link.cut(f"silent for {self._limits.silence_s:.1f} s")
            elif peer.link.takes_nothing_s(now) > self._limits.silence_s:
                peer.link.cut(STUCK)

    def _status(self) -> bytes:
        status = _encode_status(self._events.hello())
        if len(status) > self._limits.status_bytes_max:
            raise ValueError(f"a status of {len(status)} bytes")
        return status

    def _receive_status(self, peer: Peer, connection: Connection, payload: memoryview) -> None:
        if len(payload) > self._limits.status_bytes_max:
            raise FrameError("the status is too long")
        try:
            status = _decode_status(payload)
        except (msgspec.DecodeError, RecursionError, ValueError):
            raise FrameError("the status is not a map") from None
        status["incarnation"] = connection.peer.incarnation
        status[LEVELS] = connection.peer.levels
        peer.status = status
        connection.traffic.heartbeats += 1
        if not connection.is_up:
            connection.is_up = True
            connection.traffic.connects += 1
            self._shaking.pop(connection, None)
            _log.info("peer_up", peer=peer.node, inbound=connection.is_inbound)
            self._call(self._events.on_up, peer.node, status)
        else:
            self._call(self._events.on_status, peer.node, status)

    def _receive_frame(self, node: NodeId, payload: memoryview) -> None:
        if len(payload) < PARTITION_ID_BYTES:
            raise FrameError("a Raft frame without a group")
        packed = bytes(payload[:PARTITION_ID_BYTES])
        partition_id = self._partition_ids.get(packed)
        if partition_id is None:
            if len(self._partition_ids) >= _GROUPS_CACHED_MAX:
                self._partition_ids.clear()
            partition_id = self._partition_ids[packed] = PartitionId.unpack(packed)
        self._call(self._events.on_frame, node, partition_id, payload[PARTITION_ID_BYTES:])

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        if not self._running:
            return
        try:
            callback(*args)
        except Exception:  # noqa: BLE001 - a receiver's fault must not look like the peer's
            _log.exception("peer_callback_failed", callback=getattr(callback, "__qualname__", "?"))

    # The table of peers.

    def _peer(self, node: NodeId) -> Peer:
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = Peer(node, self._addresses.get(node))
        return peer

    def _may_join_unlisted(self, node: NodeId) -> bool:
        has_place = node in self._peers or len(self._peers) < _UNLISTED_MAX
        return self._limits.admit_unlisted and has_place

    def _unlink(self, peer: Peer, reason: str) -> None:
        connection, was_up = peer.link, peer.link is not None and peer.link.is_up
        self._hang_up(peer)
        peer.link = None
        if connection is not None:
            connection.cut(reason)
        peer.unlinked.set()
        if was_up:
            self.traffic.setdefault(peer.node, Traffic()).losses += self._running
            _log.info("peer_down", peer=peer.node, reason=reason)
            self._call(self._events.on_down, peer.node)

    def _hang_up(self, peer: Peer) -> list[asyncio.Task[None]]:
        caller, responder = peer.caller, peer.responder
        peer.caller = peer.responder = None
        if caller is not None:
            caller.close()
        return responder.close() if responder is not None else []

    def _forget(self, peer: Peer) -> None:
        if peer.dialer is not None:
            peer.dialer.cancel()
        if peer.dialing is not None:
            peer.dialing.cut("removed from the table of peers")
        if peer.link is not None:
            self._unlink(peer, "removed from the table of peers")
        self._drop(peer)

    def _leave_unlisted(self, peer: Peer) -> None:
        """It is dialed no more, and forgotten once it has no link."""
        if peer.dialer is not None:
            peer.dialer.cancel()
            peer.dialer = None
        if peer.dialing is not None:
            peer.dialing.cut("removed from the table of peers")
        peer.address = None
        if peer.link is None:
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        self._peers.pop(peer.node, None)
        self.traffic.pop(peer.node, None)


def _tune(sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
