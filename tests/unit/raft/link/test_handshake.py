"""The handshake: both ends prove the secret, and nothing recorded or bounced proves anything."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from dataclasses import replace
from typing import Any

import pytest

from goqueue.wire.types import Incarnation, NodeId
from log.levels import Spoken
from raft.link import handshake
from raft.link.handshake import (
    NONCE_BYTES,
    Acceptor,
    Dialer,
    HandshakeError,
    Identity,
    Part,
    Refused,
    refusal,
)

SECRET = b"secret"
LATER = Spoken(3, 9, 4)
A, B = Identity(NodeId("a"), Incarnation(2**64 - 1)), Identity(NodeId("b"), Incarnation(7))


def dialer(me: Identity = A, target: str = "b", secret: bytes = SECRET) -> Dialer:
    return Dialer(me, secret, os.urandom(NONCE_BYTES), NodeId(target))


def acceptor(me: Identity = B, secret: bytes = SECRET) -> Acceptor:
    return Acceptor(me, secret, os.urandom(NONCE_BYTES))


def run(left: Dialer, right: Acceptor) -> list[bytes]:
    """Shake hands to the end; every message, in order."""
    hello = left.start()
    challenge = right.feed(hello)
    proof = left.feed(challenge)
    assert right.feed(proof) == b""
    answer = right.accept()
    assert left.feed(answer + b"frames") == b""
    return [hello, challenge, proof, answer]


def test_both_sides_learn_who_the_other_is_and_share_opposite_keys() -> None:
    left, right = dialer(), acceptor()

    run(left, right)

    assert left.peer == B
    assert right.peer == A
    assert left.keys is not None
    assert right.keys is not None
    assert (left.keys.send, left.keys.receive) == (right.keys.receive, right.keys.send)
    assert left.keys.send != left.keys.receive
    assert left.rest == b"frames"


def test_handshake_works_one_byte_at_a_time() -> None:
    left, right = dialer(), acceptor()

    def slowly(side: Dialer | Acceptor, data: bytes) -> bytes:
        return b"".join(side.feed(data[i : i + 1]) for i in range(len(data)))

    proof = slowly(left, slowly(right, left.start()))
    slowly(right, proof)
    slowly(left, right.accept())

    assert left.keys is not None


def test_secret_never_travels() -> None:
    secret = b"\x01 an unlikely run of bytes \x02"

    sent = b"".join(run(dialer(secret=secret), acceptor(secret=secret)))

    assert secret not in sent


def test_dialer_with_another_secret_is_refused_before_the_acceptor_proves_anything() -> None:
    left, right = dialer(secret=b"guess"), acceptor()
    proof = left.feed(right.feed(left.start()))

    with pytest.raises(HandshakeError, match="another cluster secret"):
        right.feed(proof)
    with pytest.raises(HandshakeError):
        right.accept()


def test_acceptor_with_another_secret_is_refused() -> None:
    left, right = dialer(), acceptor(secret=b"guess")
    right.feed(left.feed(right.feed(left.start())) and b"")
    right.proven = True

    with pytest.raises(HandshakeError, match="another cluster secret"):
        left.feed(right.accept())


def test_recorded_dialer_proves_nothing_to_a_new_acceptor() -> None:
    hello, _, proof, _ = run(dialer(), acceptor())

    replayed = acceptor()
    replayed.feed(hello)

    with pytest.raises(HandshakeError, match="proof"):
        replayed.feed(proof)


def test_recorded_acceptor_proves_nothing_to_a_new_dialer() -> None:
    _, challenge, _, answer = run(dialer(), acceptor())

    again = dialer()
    again.start()
    again.feed(challenge)

    with pytest.raises(HandshakeError, match="proof"):
        again.feed(answer)


def test_bounced_dialer_meets_itself_and_stops() -> None:
    left = dialer()

    with pytest.raises(HandshakeError):
        left.feed(left.start())


def test_reflected_challenge_makes_no_proof_of_the_other_role() -> None:
    """An attacker answers a's dial as b, and uses a's own acceptor as its oracle."""
    left, oracle = dialer(A, "b"), acceptor(A)
    hello = left.start()

    with pytest.raises(HandshakeError):
        oracle.feed(hello)


def test_dialers_proof_is_not_the_acceptors() -> None:
    left, right = dialer(), acceptor()
    proof = left.feed(right.feed(left.start()))

    with pytest.raises(HandshakeError, match="proof"):
        left.feed(proof)


def test_altered_identity_breaks_the_proof() -> None:
    left, right = dialer(), acceptor()
    hello = bytearray(left.start())
    hello[11] ^= 1
    challenge = right.feed(bytes(hello))

    with pytest.raises(HandshakeError, match="proof"):
        right.feed(left.feed(challenge))


def test_node_that_answers_under_another_name_is_refused() -> None:
    left, right = dialer(target="c"), acceptor(B)

    with pytest.raises(HandshakeError, match="this is b"):
        right.feed(left.start())


def test_namesake_is_refused() -> None:
    with pytest.raises(HandshakeError, match="calls itself b"):
        acceptor(B).feed(dialer(B, "b").start())


def test_both_sides_learn_which_levels_the_other_speaks() -> None:
    left, right = dialer(replace(A, levels=Spoken(2, 5, 3))), acceptor(replace(B, levels=LATER))

    run(left, right)

    assert left.peer is not None
    assert left.peer.levels == LATER
    assert right.peer is not None
    assert right.peer.levels == Spoken(2, 5, 3)


def test_hello_of_a_later_version_is_read_up_to_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has a later layout's number, and more at its end; both count for the proof."""
    made = handshake._identity_part

    def later(*given: Any) -> bytes:
        part = bytearray(made(*given) + b"what comes later")
        part[1:3] = (len(part) - 3).to_bytes(2, "little")
        part[9:11] = (7).to_bytes(2, "little")
        return bytes(part)

    monkeypatch.setattr(handshake, "_identity_part", later)
    left, right = dialer(), acceptor()
    run(left, right)

    assert left.peer == B
    assert right.peer == A
    assert left.keys is not None


def first_hello(node: bytes = b"a", target: bytes = b"b") -> bytes:
    """What release 0.1.0 sends."""
    body = struct.pack("<6sHQ32sB", b"GQPEER", 1, 7, os.urandom(32), len(node)) + node + target
    return struct.pack("<BH", Part.HELLO, len(body)) + body


def test_first_release_is_refused_with_what_to_do() -> None:
    with pytest.raises(HandshakeError, match="stop all nodes, then start them with the new"):
        acceptor().feed(first_hello())


def test_refusal_by_the_first_release_is_told_as_what_to_do() -> None:
    left = dialer()
    left.start()

    with pytest.raises(Refused, match="stop all nodes, then start them with the new"):
        left.feed(refusal("peer protocol 2: this node speaks 1"))


def test_advice_for_the_first_release_arrives_whole() -> None:
    with pytest.raises(HandshakeError) as refused:
        acceptor().feed(first_hello())

    assert refusal(str(refused.value)).endswith(b"upgrade.md)")


def test_reason_of_a_refusal_arrives() -> None:
    left = dialer()
    left.start()

    with pytest.raises(Refused, match="table is full"):
        left.feed(refusal("table is full"))


def test_proof_before_a_hello_is_refused() -> None:
    _, _, proof, _ = run(dialer(), acceptor())

    with pytest.raises(HandshakeError, match="out of order"):
        acceptor().feed(proof)


def test_junk_raises_only_handshake_errors_and_never_proves() -> None:
    rng = random.Random(1)
    hello = dialer().start()
    for _ in range(5000):
        side = acceptor()
        data = bytearray(hello if rng.random() < 0.6 else rng.randbytes(120))
        for _ in range(rng.randrange(6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(HandshakeError):
            side.feed(bytes(data) + rng.randbytes(rng.randrange(50)))
        assert not side.proven
        assert side.keys is None
