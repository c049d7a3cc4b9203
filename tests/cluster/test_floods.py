"""One client's flood takes neither the node nor anybody else's publishes.

What reviews measured is replayed against a real node, as far as it takes to show it: memory by what
the system says of the process, and the others by a client that publishes all the while.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.certificates import LOOPBACK, Authority
from tests.cluster.flooded import (
    RECEIVED_BYTES,
    Door,
    Flooded,
    addresses,
    at_once,
    head,
)
from tests.cluster.processes import Cluster

ADMIN = "root.the-admin-of-the-floods-tests"


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


def status(link: socket.socket) -> int:
    answer = b""
    while b"\r\n" not in answer:
        piece = link.recv(4096)
        if not piece:
            raise ConnectionError(f"hung up after {answer!r}")
        answer += piece
    return int(answer.split()[1])


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
