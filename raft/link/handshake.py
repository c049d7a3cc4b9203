"""How two nodes prove to each other that they hold the cluster's secret, without sending it.

    dialer   -> HELLO      who it is, its nonce, its feature levels, the id it means to reach
    acceptor -> CHALLENGE  who it is, its nonce, its feature levels
    dialer   -> PROOF      HMAC-SHA256(secret, "dialer" | transcript)
    acceptor -> PROOF      HMAC-SHA256(secret, "acceptor" | transcript)

The transcript is every byte of HELLO and CHALLENGE, so a proof holds for these two nodes, data
directories, roles and nonces only: it can't be replayed, reflected, or moved to another
connection. The acceptor proves last, so a stranger who dials learns nothing to guess against. Both
directions' frame keys are derived from secret and transcript. Any side may answer REFUSED with a
reason instead. With mutual TLS the secret is empty and the certificates prove the identities that
HELLO and CHALLENGE tell; the caller compares them.

Both are, little-endian: magic (6), layout u16, incarnation u64, nonce (32), lengths of the two ids
u8, the lowest and the highest level spoken u16, the finished level known u16 (0: none), own id,
sought id; then whatever later versions add, which is left unread. What stands before keeps its
place for ever, so that versions which can't run together can still say so. Layout 1, that of
release 0.1.0, told no levels.

Pure: bytes in, bytes out; the nonce comes from the caller.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from enum import IntEnum

from goqueue.wire.types import Incarnation, NodeId
from log.levels import Spoken
from raft.link.failed import Failure

MAGIC = b"GQPEER"
LAYOUT = 2
"""A later layout only adds at the end."""
NONCE_BYTES = 32
NODE_ID_BYTES_MAX = 253

_HEAD = struct.Struct("<BH")
_LAYOUT = struct.Struct("<6sH")
_IDENTITY = struct.Struct(f"<6sHQ{NONCE_BYTES}sBBHHH")
_BODY_BYTES_MAX = 1024
"""With room for what later versions add."""
_REFUSAL_BYTES_MAX = 200
_REFUSED_BY_FIRST = "peer protocol "
_FIRST_RELEASE = (
    "0.1.0 and later versions can't run together: stop all nodes, then start them with the new"
    " version (docs/operations/upgrade.md)"
)


class Part(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    REFUSED = 4


class HandshakeError(Exception):
    """The other side is not a peer, or not one that may connect."""

    def __init__(self, reason: str, failure: Failure = Failure.MALFORMED) -> None:
        super().__init__(reason)
        self.failure = failure


class Refused(HandshakeError):
    """The other side said no, and why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a node says it is, and what it speaks."""

    node: NodeId
    incarnation: Incarnation
    levels: Spoken = field(default_factory=Spoken)


@dataclass(frozen=True, slots=True)
class Keys:
    """The frame keys of one connection, seen from one side."""

    send: bytes
    receive: bytes


class Handshake:
    """What both roles share: reading parts off the stream, the transcript, the keys.

    `feed` returns bytes to send. `peer` is known from the first part on but proven only when
    `keys` is set; `rest` is what followed the last part.
    """

    label: bytes
    peer_label: bytes

    def __init__(self, me: Identity, secret: bytes, nonce: bytes) -> None:
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes")
        self.me = me
        self.peer: Identity | None = None
        self.keys: Keys | None = None
        self.rest = b""
        self._secret = secret
        self._nonce = nonce
        self._transcript = hashlib.sha256()
        self._buffer = bytearray()

    def _next_part(self) -> tuple[Part, bytes, bytes] | None:
        """(part, body, raw bytes) at the head of the buffer, or None if incomplete."""
        if len(self._buffer) < _HEAD.size:
            return None
        number, length = _HEAD.unpack_from(self._buffer)
        if number not in frozenset(Part) or length > _BODY_BYTES_MAX:
            raise HandshakeError("not a peer's handshake")
        end = _HEAD.size + length
        if len(self._buffer) < end:
            return None
        raw = bytes(self._buffer[:end])
        del self._buffer[:end]
        body = raw[_HEAD.size :]
        if number == Part.REFUSED:
            raise Refused(_reason(body), Failure.REFUSED)
        return Part(number), body, raw

    def _prove(self, label: bytes) -> bytes:
        return hmac.digest(self._secret, b"proof:" + label + self._transcript.digest(), "sha256")

    def _check_proof(self, body: bytes) -> None:
        if not hmac.compare_digest(self._prove(self.peer_label), body):
            raise HandshakeError("the proof does not match: another cluster secret", Failure.PROOF)

    def _finish(self) -> None:
        def key(label: bytes) -> bytes:
            material = b"frames:" + label + self._transcript.digest()
            return hmac.digest(self._secret, material, "sha256")

        self.keys = Keys(send=key(self.label), receive=key(self.peer_label))
        self.rest, self._buffer = bytes(self._buffer), bytearray()


class Dialer(Handshake):
    """The side that opened the connection. `challenged` says that the acceptor has answered."""

    label, peer_label = b"dialer", b"acceptor"

    def __init__(self, me: Identity, secret: bytes, nonce: bytes, target: NodeId) -> None:
        super().__init__(me, secret, nonce)
        self._target = target
        self.challenged = False

    def start(self) -> bytes:
        """HELLO."""
        raw = _identity_part(Part.HELLO, self.me, self._nonce, self._target)
        self._transcript.update(raw)
        return raw

    def feed(self, data: bytes) -> bytes:
        """Bytes to send. Raises HandshakeError; after it only closing is left."""
        self._buffer += data
        answer = b""
        while self.keys is None and (found := self._next_part()) is not None:
            part, body, raw = found
            if part == Part.CHALLENGE and not self.challenged:
                answer += self._answer(body, raw)
            elif part == Part.PROOF and self.challenged:
                self._check_proof(body)
                self._finish()
            else:
                raise HandshakeError(f"{part.name} out of order")
        return answer

    def _answer(self, body: bytes, raw: bytes) -> bytes:
        self.challenged = True
        peer, nonce, _ = _parse_identity(body)
        if peer.node != self._target:
            raise HandshakeError(f"expected {self._target}, found {peer.node}")
        if nonce == self._nonce:
            raise HandshakeError("the nonce came back: a reflection")
        self.peer = peer
        self._transcript.update(raw)
        return _part(Part.PROOF, self._prove(self.label))


class Acceptor(Handshake):
    """The side that was dialed. After `proven`, the caller decides: `accept()` or `refusal()`."""

    label, peer_label = b"acceptor", b"dialer"

    def __init__(self, me: Identity, secret: bytes, nonce: bytes) -> None:
        super().__init__(me, secret, nonce)
        self.proven = False

    def feed(self, data: bytes) -> bytes:
        """Bytes to send. Raises HandshakeError; after it only closing is left."""
        self._buffer += data
        answer = b""
        while not self.proven and (found := self._next_part()) is not None:
            part, body, raw = found
            if part == Part.HELLO and self.peer is None:
                answer += self._challenge(body, raw)
            elif part == Part.PROOF and self.peer is not None:
                self._check_proof(body)
                self.proven = True
            else:
                raise HandshakeError(f"{part.name} out of order")
        return answer

    def accept(self) -> bytes:
        """The own proof; `keys` holds from here on."""
        if not self.proven:
            raise HandshakeError("the peer has not proven itself")
        self._finish()
        return _part(Part.PROOF, self._prove(self.label))

    def _challenge(self, body: bytes, raw: bytes) -> bytes:
        peer, nonce, target = _parse_identity(body)
        if target != self.me.node:
            raise HandshakeError(f"{peer.node} looks for {target}: this is {self.me.node}")
        if peer.node == self.me.node:
            raise HandshakeError(f"another node calls itself {peer.node}")
        if nonce == self._nonce:
            raise HandshakeError("the nonce came back: a reflection")
        self.peer = peer
        answer = _identity_part(Part.CHALLENGE, self.me, self._nonce, NodeId(""))
        self._transcript.update(raw)
        self._transcript.update(answer)
        return answer


def refusal(reason: str) -> bytes:
    """REFUSED, to be sent before closing."""
    return _part(Part.REFUSED, reason.encode()[:_REFUSAL_BYTES_MAX])


def _reason(body: bytes) -> str:
    told = body[:_REFUSAL_BYTES_MAX].decode("utf-8", "replace")
    return _FIRST_RELEASE if told.startswith(_REFUSED_BY_FIRST) else told


def _part(part: Part, body: bytes) -> bytes:
    return _HEAD.pack(part, len(body)) + body


def _identity_part(part: Part, me: Identity, nonce: bytes, target: NodeId) -> bytes:
    node, sought = me.node.encode(), target.encode()
    if not 0 < len(node) <= NODE_ID_BYTES_MAX or len(sought) > NODE_ID_BYTES_MAX:
        raise ValueError("a node id has 1 to 253 bytes")
    levels = me.levels
    head = _IDENTITY.pack(
        MAGIC,
        LAYOUT,
        me.incarnation,
        nonce,
        len(node),
        len(sought),
        levels.lowest,
        levels.highest,
        levels.finished,
    )
    return _part(part, head + node + sought)


def _parse_identity(body: bytes) -> tuple[Identity, bytes, NodeId]:
    if len(body) < _LAYOUT.size:
        raise HandshakeError("not a peer's handshake")
    magic, layout = _LAYOUT.unpack_from(body)
    if magic != MAGIC or (layout >= LAYOUT and len(body) < _IDENTITY.size):
        raise HandshakeError("not a peer's handshake")
    if layout < LAYOUT:
        raise HandshakeError(_FIRST_RELEASE)
    (_, _, incarnation, nonce, node_bytes, target_bytes, lowest, highest, finished) = (
        _IDENTITY.unpack_from(body)
    )
    names = body[_IDENTITY.size : _IDENTITY.size + node_bytes + target_bytes]
    try:
        node, target = names[:node_bytes].decode(), names[node_bytes:].decode()
    except UnicodeDecodeError:
        raise HandshakeError("a node id is not UTF-8") from None
    if not node or len(names) < node_bytes + target_bytes:
        raise HandshakeError("not a peer's handshake")
    levels = Spoken(lowest, highest, finished)
    return Identity(NodeId(node), Incarnation(incarnation), levels), nonce, NodeId(target)
