"""One client's flood takes neither the node nor anybody else's publishes.

What reviews measured is replayed against a real node, as far as it takes to show it: memory by what
the system says of the process, and the others by a client that publishes all the while.
"""

from __future__ import annotations

import gzip
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns
from tests.certificates import LOOPBACK, Authority
from tests.cluster.flooded import (
    FLOODED,
    MIB,
    RECEIVED_BYTES,
    Door,
    Flooded,
    addresses,
    at_once,
    head,
)
from tests.cluster.processes import Cluster

ADMIN = "root.the-admin-of-the-floods-tests"
MESSAGES = f"/topics/{FLOODED}/messages"
REFUSED = {413, 429, 503}
BODY_BYTES = 16 * MIB
ROWS = b'{"messages":[' + b",".join([b"{}"] * ((BODY_BYTES - 64) // 3)) + b"]}"
HEADERS = b'{"value":"","headers":{' + b",".join(b'"%d":""' % n for n in range(26)) + b"}}"
WIDE = b'{"messages":[' + b",".join([HEADERS] * ((BODY_BYTES - 64) // (len(HEADERS) + 1))) + b"]}"


@pytest.fixture(params=["plain", "tls"])
def flooded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Flooded]:
    yield from serve(tmp_path, is_secure=request.param == "tls")


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Flooded]:
    yield from serve(tmp_path, is_secure=False)


def serve(folder: Path, *, is_secure: bool) -> Iterator[Flooded]:
    key = folder / "admin-key"
    key.write_text(ADMIN)
    key.chmod(0o600)
    settings = ["auth.enabled=true", f"auth.adminKeyFile={key}"]
    trust = None
    if is_secure:
        authority = Authority(folder)
        certificate, private = authority.issue("localhost", *LOOPBACK)
        private.chmod(0o600)
        settings += ["tls.enabled=true", f"tls.certFile={certificate}", f"tls.keyFile={private}"]
        trust = authority.trust()
    cluster = Cluster(folder / "nodes", 1, settings)
    with Flooded(cluster, Door(cluster[0].http_port, trust), ADMIN) as made:
        yield made


def post(flooded: Flooded, body: bytes, key: str, *fields: str) -> int:
    """The status of an answer to a body that is sent as a whole."""
    told = head("POST", MESSAGES, key, f"Content-Length: {len(body)}", *fields)
    with flooded.door.connect("127.0.1.1") as link:
        link.sendall(told + body)
        return status(link)


def status(link: socket.socket) -> int:
    answer = b""
    while b"\r\n" not in answer:
        piece = link.recv(4096)
        if not piece:
            raise ConnectionError(f"hung up after {answer!r}")
        answer += piece
    return int(answer.split()[1])


@pytest.mark.parametrize(
    ("flooded", "rows"),
    [("plain", ROWS), ("tls", WIDE)],
    ids=["plain-empty", "tls-wide"],
    indirect=["flooded"],
)
def test_small_bodies_that_expand_to_many_rows_are_refused_before_they_are_decoded(
    flooded: Flooded, rows: bytes
) -> None:
    packed = gzip.compress(rows, 9)
    key = flooded.key("producer", "flood.")
    assert len(packed) < 64 * 1024

    with flooded.judged():
        told = [
            one
            for _ in range(2)
            for one in at_once(6, lambda _: post(flooded, packed, key, "Content-Encoding: gzip"))
        ]

    assert set(told) <= REFUSED | ({200} if rows is WIDE else set()), told


def test_answers_that_expand_wait_in_few_bytes_for_clients_that_do_not_read(
    flooded: Flooded,
) -> None:
    batch = encode_columns([bytes(MIB)] * 15, codec="zstd") * 4
    producer, consumer = flooded.key("producer", "flood."), flooded.key("consumer", "flood.")
    fields = (f"Content-Type: {BATCH_MEDIA_TYPE}", f"Content-Length: {len(batch)}")
    with flooded.door.connect("127.0.1.1") as link:
        stored = head("POST", f"/topics/{FLOODED}/partitions/0/messages", producer, *fields)
        link.sendall(stored + batch)
        assert status(link) == 200
    read = head("GET", f"/topics/{FLOODED}/partitions/0/messages?offset=0&limit=1000", consumer)
    body = b'{"topic":"%s","limit":1000}' % FLOODED.encode()
    length = f"Content-Length: {len(body)}"

    with flooded.judged() as honest:
        for _ in range(60):
            assert flooded.send("127.0.1.1", read, receives=RECEIVED_BYTES)
        honest.goes_on()
        for number in range(30):
            receive = head("POST", f"/groups/flood.{number}/receive", consumer, length)
            assert flooded.send("127.0.1.1", receive + body, receives=RECEIVED_BYTES)
        honest.goes_on()


def test_uploads_that_do_not_end_are_held_as_far_as_they_have_arrived(flooded: Flooded) -> None:
    key = flooded.key("producer", "flood.")
    told = head("POST", MESSAGES, key, "Transfer-Encoding: chunked")
    links = [flooded.send("127.0.1.1", told + chunk(b"[" * 4096)) for _ in range(64)]
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(1.0):
            for link in links:
                with suppress(OSError):
                    assert link is not None
                    link.sendall(chunk(b"[" * 32 * 1024))

    trickling = threading.Thread(target=trickle)
    trickling.start()
    try:
        with flooded.judged() as honest:
            honest.goes_on(100)
    finally:
        over.set()
        trickling.join()


def test_uploads_that_are_large_and_do_not_end_are_cut_at_what_their_key_may_hold(
    flooded: Flooded,
) -> None:
    key = flooded.key("producer", "flood.")
    told = head("POST", MESSAGES, key, f"Content-Length: {BODY_BYTES}")
    most = bytes(BODY_BYTES - MIB)

    with flooded.judged():
        at_once(32, lambda _: flooded.send("127.0.1.1", told + most))


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def test_logins_that_do_not_end_take_nothing_of_what_publishes_need(flooded: Flooded) -> None:
    count = 4200 if flooded.door.trust is None else 600
    form = "Content-Type: application/x-www-form-urlencoded"
    told = head("POST", "/ui/login", "", form, "Content-Length: 65536") + b"t"

    with flooded.judged() as honest:
        links = [idle(flooded, addresses(4, 2)[number % 4]) for number in range(count)]
        for link in links:
            link.sendall(told)
        honest.goes_on()


def idle(flooded: Flooded, source: str) -> socket.socket:
    """A connection that was used once: it may stay for a while."""
    link = flooded.hold(source)
    link.sendall(head("GET", "/livez"))
    with suppress(OSError):
        link.recv(RECEIVED_BYTES)
    return link


def test_heads_that_do_not_end_are_cut_at_a_bound_for_all_of_a_head(flooded: Flooded) -> None:
    each = 50 if flooded.door.trust is None else 25
    most = "x" * 8000
    told = head("GET", "/health", "", *[f"X-{number}: {most}" for number in range(99)])[:-2]

    with flooded.judged():
        made = at_once(8, lambda thread: [cut(flooded, told, thread) for _ in range(each)])

    assert Counter(one for found in made for one in found) == {True: 8 * each}


def cut(flooded: Flooded, told: bytes, thread: int) -> bool:
    """Whether the node refused it, or hung up, before it had all; not as one that is late."""
    link = flooded.send(addresses(8, 3)[thread], told)
    if link is None:
        return True
    with suppress(OSError):
        return status(link) in (429, 431)
    return True


def test_idle_connections_of_nobody_make_room_for_who_comes_with_a_key(plain: Flooded) -> None:
    with plain.judged() as honest:
        for number in range(8300):
            idle(plain, addresses(3, 4)[number % 3])
        honest.goes_on()


def test_idle_connections_of_an_address_make_room_for_others_of_it(plain: Flooded) -> None:
    (crowded,) = addresses(1, 5)
    with plain.judged():
        for _ in range(4200):
            idle(plain, crowded)
        told = [plain.door.ask("GET", "/livez", source=crowded) for _ in range(20)]

    assert [answer.status for answer in told] == [200] * 20
