"""Requests of listeners: keys and policies as over HTTP, and who is told what became of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from goqueue.wire.errors import (
    BadRequest,
    Forbidden,
    GoQueueError,
    ServerError,
    Unauthenticated,
)
from node.api.auth.access import Access
from node.api.auth.key_verifier import Origin
from node.api.auth.principal import Principal, Role
from node.api.broker import Broker
from node.http.auth.admission import Admission
from node.http.auth.failures import FAILURES_MAX, Failures, TooManyFailures
from node.listeners.parts import ListenerParts
from node.listeners.requests import Requests

TOKEN = "orders.0123456789abcdef"
PRODUCER = Principal("orders", Role.PRODUCER, ("orders.",))


class Keys:
    """Knows one key, once it was proved, until it is revoked."""

    def __init__(self) -> None:
        self.is_proved = self.is_revoked = False

    def known(self, token: str) -> Principal | None:
        return PRODUCER if self.is_proved and not self.is_revoked and token == TOKEN else None

    async def prove(self, token: str, origin: Origin) -> Principal:
        if token != TOKEN or self.is_revoked:
            raise Unauthenticated("no such key", reason="unknown")
        self.is_proved = True
        return PRODUCER

    def refused(self, result: str) -> None:
        return None

    def denied(self, missing: str) -> None:
        return None


class Told:
    """What metrics and the audit log were told."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, str, int]] = []
        self.accesses: list[Access] = []

    def answered(
        self, protocol: str, operation: str, code: str, seconds: float, count: int = 1
    ) -> None:
        self.answers.append((protocol, operation, code, count))

    def connected(self, protocol: str, count: int) -> None:
        return None


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def requests(keys: Keys, told: Told) -> Requests:
    broker = cast(Broker, object())
    failures = Failures(lambda: 0.0)
    parts = ListenerParts(
        broker,
        admission=Admission(keys, failures),
        metrics=told,
        on_access=told.accesses.append,
    )
    return Requests("redis", parts)


async def test_who_brings_no_key_is_refused_and_told_so(requests: Requests) -> None:
    caller = requests.caller("10.0.0.1", 1)
    with pytest.raises(Unauthenticated) as refused:
        await requests.admit(caller, "publish", "orders.new")
    assert refused.value.data["reason"] == "missing"


async def test_a_key_may_do_what_its_role_and_prefixes_allow(requests: Requests) -> None:
    caller = requests.caller("10.0.0.1", 1)
    await requests.login(caller, TOKEN)
    await requests.admit(caller, "publish", "orders.new")
    assert caller.principal == PRODUCER
    assert caller.owner.holder == "key orders"
    for operation, topic in (("publish", "bills"), ("receive", "orders.new"), ("no", None)):
        with pytest.raises(Forbidden):
            await requests.admit(caller, operation, topic)


async def test_a_key_that_is_revoked_is_refused_on_a_connection_that_stays(
    requests: Requests, keys: Keys
) -> None:
    caller = requests.caller("10.0.0.1", 1)
    await requests.login(caller, TOKEN)
    keys.is_revoked = True
    with pytest.raises(Unauthenticated):
        await requests.admit(caller, "publish", "orders.new")


async def test_who_guesses_keys_has_to_wait_and_a_wrong_one_leaves_the_old(
    requests: Requests,
) -> None:
    caller = requests.caller("10.0.0.1", 1)
    await requests.login(caller, TOKEN)
    for _ in range(FAILURES_MAX):
        with pytest.raises(Unauthenticated):
            await requests.login(caller, "orders.ffffffffffffffff")
    with pytest.raises(TooManyFailures):
        await requests.login(caller, "orders.ffffffffffffffff")
    await requests.admit(caller, "publish", "orders.new")


async def test_without_keys_everybody_may_do_all() -> None:
    requests = Requests("redis", ListenerParts(cast(Broker, object())))
    caller = requests.caller("10.0.0.1", 1)
    await requests.login(caller, "anything")
    await requests.admit(caller, "deleteTopic", "orders.new")
    assert caller.broker is requests.parts.broker


async def test_each_end_is_counted_and_told_by_its_code(requests: Requests, told: Told) -> None:
    caller = requests.caller("10.0.0.1", 1)
    ends: list[tuple[BaseException | None, type[BaseException] | None, str]] = [
        (None, None, ""),
        (BadRequest("no"), BadRequest, "bad_request"),
        (ValueError("bug"), ServerError, "internal"),
        (ConnectionResetError(), ConnectionResetError, "given_up"),
    ]
    for error, raised, code in ends:
        told.answers.clear()
        try:
            with requests.observed(caller, "XADD", "createTopic", "t", 3):
                if error is not None:
                    raise error
        except (GoQueueError, ConnectionError) as found:
            assert raised is not None and isinstance(found, raised)
        assert told.answers == [("redis", "XADD", code, 3)]
        access = told.accesses[-1]
        assert (access.operation, access.method, access.target) == ("createTopic", "redis", "t")
        assert (access.code, access.remote) == (code, "10.0.0.1")


async def test_the_audit_log_is_told_whose_key_was_refused(requests: Requests, told: Told) -> None:
    caller = requests.caller("10.0.0.1", 1)
    await requests.login(caller, TOKEN)
    with pytest.raises(Forbidden), requests.observed(caller, "DEL", "deleteTopic", "bills"):
        await requests.admit(caller, "deleteTopic", "bills")
    found: Any = told.accesses[-1].principal
    assert found == PRODUCER and told.accesses[-1].status == 403
