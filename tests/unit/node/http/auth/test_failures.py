"""Who guesses API keys: how soon they have to wait, who else has to, and by which address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import pytest

from node.api.auth.hosts import bucket
from node.api.auth.key_verifier import Origin
from node.broker.node import NodeBroker
from node.config.file import ConfigError, load_config
from node.http.auth.addresses import Addresses
from node.http.auth.authenticator import Authenticator
from node.http.auth.failures import ADDRESSES_MAX, FAILURES_MAX, WINDOW_S, Failures, TooManyFailures
from node.http.server.app import Entrance, HttpFront
from tests.one_node import Keys, cluster_of
from tests.unit.node.http.conftest import Answer, Client, Clock

WRONG = "nobody.0123456789abcdef"


class Seconds:
    """Monotonic time that moves when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def keys(broker: NodeBroker, clock: Clock) -> Iterator[Keys]:
    with ThreadPoolExecutor(1) as workers:
        yield Keys(cluster_of(broker), clock, workers)


@pytest.fixture
async def locked(
    broker: NodeBroker, keys: Keys, seconds: Seconds, orders: str
) -> AsyncIterator[Client]:
    authenticator = Authenticator(
        keys.checks, failures=Failures(seconds), addresses=Addresses(["127.0.0.1"])
    )
    front = HttpFront(broker, port=0, entrance=Entrance(authenticator=authenticator, keys=keys))
    await front.start()
    async with aiohttp.ClientSession() as session:
        yield Client(session, front)
    await front.stop()


async def ask(client: Client, token: str, address: str = "") -> Answer:
    headers = {"X-API-Key": token} | ({"X-Forwarded-For": address} if address else {})
    return await client.get("/topics", headers=headers)


async def made(keys: Keys, id: str) -> str:
    more: dict[str, Any] = {"name": "", "role": "readonly", "prefixes": [""], "expires_ms": 0}
    return (await keys.create_key(id, **more)).secret


async def test_guesses_are_limited_and_the_answer_says_for_how_long(
    locked: Client, seconds: Seconds
) -> None:
    for number in range(FAILURES_MAX):
        assert (await ask(locked, f"{WRONG}{number}")).status == 401

    refused = await ask(locked, WRONG)
    assert (refused.status, refused.json["code"]) == (429, "too_many_failures")
    assert refused.headers["Retry-After"] == str(round(WINDOW_S))
    assert refused.json["retriable"] is True

    seconds.now_s += WINDOW_S + 1
    assert (await ask(locked, WRONG)).status == 401


async def test_keys_that_were_proved_and_other_addresses_are_served_meanwhile(
    locked: Client, keys: Keys
) -> None:
    proved, late = await made(keys, "proved"), await made(keys, "late")
    assert (await ask(locked, proved)).status == 200
    for number in range(FAILURES_MAX + 5):
        await ask(locked, f"{WRONG}{number}")

    assert (await ask(locked, proved)).status == 200
    assert (await ask(locked, late)).status == 429, "nothing is tried for this address"
    assert (await ask(locked, late, address="192.0.2.1")).status == 200


async def test_address_is_the_one_that_a_trusted_proxy_has_seen(locked: Client) -> None:
    for number in range(FAILURES_MAX):
        await ask(locked, f"{WRONG}{number}", address=f"203.0.113.{number}, 192.0.2.9")

    assert (await ask(locked, WRONG, address="192.0.2.9")).status == 429
    assert (await ask(locked, WRONG, address="192.0.2.10")).status == 401


async def test_requests_without_a_key_are_no_guesses(locked: Client) -> None:
    for _ in range(FAILURES_MAX + 5):
        assert (await locked.get("/topics")).status == 401


def test_table_is_bounded(seconds: Seconds) -> None:
    failures = Failures(seconds)
    for number in range(ADDRESSES_MAX + 50):
        failures.add(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")

    assert len(failures._known) == ADDRESSES_MAX


def test_sites_of_ipv6_count_as_one(seconds: Seconds) -> None:
    failures = Failures(seconds)
    for number in range(FAILURES_MAX):
        failures.add(f"2001:db8:1:2::{number:x}")

    with pytest.raises(TooManyFailures):
        failures.check("2001:db8:1:2:ffff::1")
    failures.check("2001:db8:1:3::1")
    assert failures.origin("2001:db8:1:2:ffff::1") == Origin("2001:db8:1:2::/64", FAILURES_MAX)
    assert failures.origin("2001:db8:1:3::1").failures == 0
    seconds.now_s += WINDOW_S
    assert failures.origin("2001:db8:1:2:ffff::1").failures == 0
    assert bucket("::ffff:10.0.0.1") == "10.0.0.1"


class Request:
    """What of a request tells an address."""

    def __init__(self, remote: str, *forwarded: str) -> None:
        from multidict import CIMultiDict

        self.remote = remote
        self.headers = CIMultiDict([("X-Forwarded-For", text) for text in forwarded])


@pytest.mark.parametrize(
    ("remote", "forwarded", "address"),
    [
        ("192.0.2.1", ["203.0.113.5"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["1.1.1.1, 203.0.113.5, 10.0.0.2"], "203.0.113.5"),
        ("10.0.0.1", ["1.1.1.1", "203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", ["unknown, 10.0.0.3"], "10.0.0.3"),
        ("10.0.0.1", ["10.0.0.4"], "10.0.0.4"),
        ("", ["203.0.113.5"], ""),
    ],
)
def test_address_of_a_request(remote: str, forwarded: list[str], address: str) -> None:
    request: Any = Request(remote, *forwarded)

    assert Addresses(["10.0.0.0/8"]).of(request) == address


def test_proxies_are_networks() -> None:
    with pytest.raises(ConfigError, match="networks"):
        load_config(env={}, overrides={"auth.trustedProxies": "10.0.0.0/99"})
