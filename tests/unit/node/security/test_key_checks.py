"""Proving API keys: once, off the loop, bounded, and never longer than they hold."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coordinator.access.api_keys import SECRETS_MAX
from coordinator.cluster.state import ClusterState
from coordinator.commands.keys import CreateKey, RevokeKey, RotateKey, SecretDigest
from goqueue.wire.errors import Busy, Unauthenticated, Unavailable
from goqueue.wire.types import Index
from node.api.auth.principal import Principal, Role
from node.security import key_checks, key_secrets
from node.security import proving_queue as proving_line
from node.security.browser_tokens import KeyBrowserTokens
from node.security.key_checks import KeyChecks
from node.security.key_secrets import digest_of, is_of, new_secret, read_token
from node.security.key_sessions import KeySessions

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
SECRET = "0123456789abcdef"
TOKEN = f"app.{SECRET}"


@dataclass
class World:
    """Keys, a clock, and checks over both."""

    workers: ThreadPoolExecutor
    state: ClusterState = field(default_factory=lambda: ClusterState(1))
    now_ms: int = NOW_MS
    stale: bool = False
    refreshed: int = 0
    is_current: bool = True
    results: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.checks = KeyChecks(
            lambda: self.state.keys,
            lambda: self.now_ms,
            self.workers,
            self,
            lambda: self.stale,
            self.refresh,
        )

    def authenticated(self, result: str) -> None:
        self.results.append(result)

    def denied(self, missing: str) -> None:
        raise AssertionError(missing)

    async def refresh(self) -> bool:
        self.refreshed += 1
        return self.is_current

    def do(self, command: CreateKey | RotateKey | RevokeKey) -> None:
        index = Index(self.state.applied_index + 1)
        result = self.state.apply(index, self.now_ms, command)
        assert not isinstance(result, Exception), result

    def create(self, id: str = "app", *, expires_ms: int = 0) -> None:
        self.do(CreateKey(id, "producer", ["orders."], digest_of(SECRET), expires_ms=expires_ms))

    async def result(self, token: str = TOKEN) -> str:
        """What became of a request with this token."""
        if self.checks.known(token) is None:
            with contextlib.suppress(Unauthenticated, Busy, Unavailable):
                await self.checks.prove(token)
        return self.results[-1]


@pytest.fixture
def world() -> Iterator[World]:
    with ThreadPoolExecutor(1) as workers:
        yield World(workers)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads on which a secret was tried."""
    threads: list[int] = []

    def counted(secret: str, digest: SecretDigest) -> bool:
        threads.append(threading.get_ident())
        return is_of(secret, digest)

    monkeypatch.setattr(key_checks, "is_of", counted)
    return threads


async def test_a_secret_is_tried_once_off_the_loop(world: World, tried: list[int]) -> None:
    world.create()
    assert world.checks.known(TOKEN) is None

    found = await asyncio.gather(*(world.checks.prove(TOKEN) for _ in range(20)))

    assert set(found) == {Principal("app", Role.PRODUCER, ("orders.",))}
    assert world.checks.known(TOKEN) == found[0]
    assert len(tried) == SECRETS_MAX and threading.get_ident() not in tried


async def test_a_wrong_secret_is_tried_once_too(world: World, tried: list[int]) -> None:
    world.create()

    for _ in range(5):
        assert await world.result("app.wrong-wrong-wrong") == "bad_secret"

    assert len(tried) == SECRETS_MAX


async def test_an_id_that_is_not_known_costs_as_much_as_one_that_is(
    world: World, tried: list[int]
) -> None:
    for id in ("app", "rotated", "revoked"):
        world.create(id)
    world.do(RotateKey("rotated", digest_of(new_secret()), HOUR_MS))
    world.do(RevokeKey("revoked"))

    costs: dict[str, tuple[int, int]] = {}
    for id in ("app", "rotated", "revoked", "nobody"):
        before = len(tried), world.refreshed
        for _ in range(3):
            await world.result(f"{id}.wrong-wrong-wrong")
        costs[id] = len(tried) - before[0], world.refreshed - before[1]

    assert set(costs.values()) == {(SECRETS_MAX, 3)}, costs


async def test_guessing_evicts_nobody_and_waits_in_a_bounded_line(
    world: World, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_checks, "PROVED_MAX", 3)
    monkeypatch.setattr(proving_line, "PLACES_MAX", 4)
    world.create()
    assert await world.result() == "ok"
    guesses = [f"app.guess-{number:016}" for number in range(10)]

    ends = await asyncio.gather(*map(world.checks.prove, guesses), return_exceptions=True)

    assert sum(isinstance(end, Busy) for end in ends) == 5  # one is tried, and four wait
    assert len(world.checks._refuted) == 3
    before = len(tried)
    assert await world.result() == "ok" and len(tried) == before


async def test_a_proof_ends_with_its_key(world: World, tried: list[int]) -> None:
    world.create(expires_ms=NOW_MS + HOUR_MS)
    assert await world.result() == "ok"

    world.now_ms += HOUR_MS
    assert await world.result() == await world.result() == "expired"
    assert len(tried) == SECRETS_MAX
    world.create("other")
    assert await world.result(f"other.{SECRET}") == "ok"
    world.do(RevokeKey("other"))
    assert await world.result(f"other.{SECRET}") == "revoked"


async def test_a_rotation_needs_no_new_proof_of_the_old_secret_until_its_grace_is_over(
    world: World, tried: list[int]
) -> None:
    world.create()
    assert await world.result() == "ok"
    fresh = new_secret()

    world.do(RotateKey("app", digest_of(fresh), HOUR_MS))
    assert await world.result() == "ok" and len(tried) == SECRETS_MAX
    assert await world.result(f"app.{fresh}") == "ok"

    world.now_ms += HOUR_MS
    assert await world.result() == "expired"
    assert await world.result(f"app.{fresh}") == "ok"


async def test_a_key_that_is_revoked_while_its_secret_is_tried_opens_nothing(world: World) -> None:
    world.create()
    proving = asyncio.ensure_future(world.checks.prove(TOKEN))
    await asyncio.sleep(0)

    world.do(RevokeKey("app"))

    with pytest.raises(Unauthenticated):
        await proving


async def test_nobody_is_turned_away_before_the_leader_was_asked(world: World) -> None:
    assert await world.result() == "unknown" and world.refreshed == 1
    world.is_current = False
    assert await world.result() == "stale"

    world.create()
    assert await world.result() == "ok"
    assert await world.result("app.wrong-wrong-wrong") == "stale"


async def test_keys_that_are_too_old_let_nobody_in(world: World) -> None:
    world.create()
    assert await world.result() == "ok"

    world.stale = True

    assert world.checks.known(TOKEN) is None
    with pytest.raises(Unavailable):
        await world.checks.prove(TOKEN)


async def test_who_guesses_is_not_told_which_ids_there_are(world: World) -> None:
    world.create()
    told = []
    for token in ("nobody.0123456789abcdef", "app.wrong-wrong-wrong"):
        with pytest.raises(Unauthenticated) as error:
            await world.checks.prove(token)
        told.append(error.value.to_body())

    assert told[0] == told[1]


def test_digests_are_salted_and_of_a_named_scheme() -> None:
    one, other = digest_of(SECRET), digest_of(SECRET)

    assert one != other and SECRET.encode() not in one.digest
    assert is_of(SECRET, one) and not is_of(SECRET + "x", one)
    assert not is_of(SECRET, SecretDigest("scrypt-99-8-1", one.salt, one.digest))


@pytest.mark.parametrize("text", ["", "root", "root.", ".secret", "root.short", "root.\x00" * 9])
def test_a_file_that_holds_no_key_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "admin-key"
    path.write_text(text)

    with pytest.raises(ValueError, match="id"):
        read_token(str(path))


def test_made_up_ids_and_secrets_are_random_enough() -> None:
    random.seed(1)

    assert len({key_secrets.new_id() for _ in range(100)}) == 100
    assert all(len(new_secret()) == 43 for _ in range(10))


async def test_a_node_that_hears_of_nobody_lets_nobody_in_by_a_proof_and_logs_out(
    world: World,
) -> None:
    world.create()
    await world.checks.prove(TOKEN)
    keys, now_ms = (lambda: world.state.keys), (lambda: world.now_ms)
    given = (keys, now_ms, world.checks.digest, b"a secret", lambda: world.stale)
    sessions, tokens = KeySessions(*given), KeyBrowserTokens(*given)
    session, token = sessions.begin(TOKEN)[0], tokens.make(TOKEN)[0]

    world.stale = True
    with pytest.raises(Unavailable, match="too long"):
        sessions.principal(session)
    with pytest.raises(Unavailable, match="too long"):
        tokens.principal(token, is_open=True)
    await sessions.end(session)

    world.stale = False
    assert tokens.principal(token, is_open=False).key_id == "app"
    with pytest.raises(Unauthenticated):
        sessions.principal(session)
