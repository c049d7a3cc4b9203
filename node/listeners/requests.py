"""The one place that a command, or a call, goes through: who asks, whether they may, who is told.

A listener makes a `Caller` for each connection (or call) and does its work inside `observed`:

    with requests.observed(caller, "XADD", "publish", topic) as seen:
        await requests.admit(caller, "publish", topic)
        ... = await caller.broker.records.append(...)

What leaves the block as a `GoQueueError` is counted and told by its code, and raised again; any
other exception is logged, and raised as `ServerError`. A listener turns that into its own words.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Hashable
from itertools import count
from types import TracebackType
from typing import Self

from goqueue.wire.errors import GoQueueError, ServerError
from node.api.auth.access import Access
from node.api.auth.principal import Principal, refused_by
from node.api.broker import Broker
from node.api.records import AppendResult
from node.api.spans import Carried, Place, Work
from node.http.auth.scoped_broker import broker_for
from node.http.budget.memory import Held, Kind, Owner, owner_of
from node.listeners.parts import ListenerParts

GIVEN_UP = "given_up"
"""The code of what nobody waits for any more: its client hung up, or its deadline has passed."""
GIVEN_UP_STATUS = 499

log = logging.getLogger(__name__)


class Caller:
    """Who asks, over one connection: an address, and a key once one was brought.

    `broker` is the node's, as far as the key reaches; `owner` is who memory is charged to.
    """

    __slots__ = ("_connection", "address", "broker", "owner", "principal", "token")

    def __init__(self, broker: Broker, address: str, connection: Hashable) -> None:
        self.address = address
        self.token: str | None = None
        """The key as it was sent, which was proved then; it is looked at again for each command,
        so that one that was revoked is refused at once."""
        self.principal: Principal | None = None
        self.broker = broker
        self._connection = connection
        self.owner: Owner = owner_of(address, connection)

    def is_now(self, principal: Principal | None, broker: Broker) -> None:
        """It is known who asks: that key, which `broker`, the node's, is held against."""
        if principal != self.principal:
            self.principal = principal
            self.broker = broker_for(broker, principal)
            key_id = None if principal is None else principal.key_id
            self.owner = owner_of(self.address, self._connection, key_id)


class Requests:
    """Those of one listener. `protocol` is its label in metrics, and the method in the audit log:
    redis, h2 or grpc."""

    def __init__(self, protocol: str, parts: ListenerParts) -> None:
        self.protocol = protocol
        self.parts = parts
        self._prefix = os.urandom(6).hex()
        self._numbers = count(1)

    def caller(self, address: str, connection: Hashable) -> Caller:
        return Caller(self.parts.broker, address, connection)

    async def login(self, caller: Caller, token: str) -> None:
        """Whoever calls brings this key from now on; where no keys are asked for, nobody looks at
        it. Raises Unauthenticated, Busy, or TooManyFailures, and the key before it counts then."""
        admission = self.parts.admission
        if admission.is_locked:
            principal = await admission.prove(token, caller.address)
            caller.token = token
            caller.is_now(principal, self.parts.broker)

    async def admit(self, caller: Caller, operation: str, topic: str | None = None) -> None:
        """Let the caller do what the HTTP route of that operation does: the same `POLICIES`. Topics
        and groups are held against the key by `caller.broker` besides, however they are named.

        Raises Unauthenticated where a key is needed, or the caller's holds no longer, Forbidden
        where it may not do this, which names what is missing.
        """
        admission = self.parts.admission
        principal = await admission.admit(caller.token, caller.address, operation, topic)
        if principal is not None:
            caller.is_now(principal, self.parts.broker)

    def observed(
        self, caller: Caller, name: str, operation: str, target: str = "", count: int = 1
    ) -> Observed:
        """A block that is one request. `name` is one of the listener's own names, for metrics;
        `operation` the one whose policy it is held against, for the audit log; `target` what it is
        about, such as a topic; `count` how many commands it answers at once."""
        return Observed(self, caller, name, operation, target, count)

    def hold(self, caller: Caller, kind: Kind, size: int = 0) -> Held:
        """A charge to the caller; it is whoever asked's to give back. Raises OverBudget."""
        return self.parts.budgets.hold(kind, caller.owner, size)

    async def room(self, caller: Caller, kind: Kind, size: int) -> Held:
        """As `hold`, after a moment in line where there is no room now."""
        parts, holder = self.parts, caller.owner.holder
        return await parts.lines.wait(
            kind, holder, parts.limits.room_wait_s, lambda: self.hold(caller, kind, size)
        )

    async def append(
        self,
        caller: Caller,
        topic: str,
        partition: int,
        batch: bytes,
        deadline_s: float | None = None,
    ) -> AppendResult:
        """Store a batch that this node has encoded, within `limits.append_deadline_s` unless told
        otherwise. Raises what `room` and `Records.append` do."""
        if deadline_s is None:
            deadline_s = self.parts.limits.append_deadline_s
        with await self.room(caller, Kind.APPENDS, len(batch)):
            return await caller.broker.records.append(
                topic, partition, batch, deadline_s=deadline_s, validated=True
            )

    def next_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers):x}"


class Observed:
    """One request, from its beginning on: see `Requests.observed`."""

    __slots__ = ("_began_ns", "_began_s", "_of", "caller", "count", "name", "operation", "target")

    def __init__(
        self,
        of: Requests,
        caller: Caller,
        name: str,
        operation: str,
        target: str,
        count: int,
    ) -> None:
        self.caller = caller
        self.name = name
        self.operation = operation
        self.target = target
        self.count = count
        self._of = of
        self._began_s = 0.0
        self._began_ns = 0

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        if self._of.parts.spans is not None:
            self._began_ns = time.time_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._tell("", 200, self.caller.principal)
        elif isinstance(error, GoQueueError):
            principal = refused_by(error) or self.caller.principal
            self._tell(error.code, error.http_status, principal)
        elif isinstance(error, Exception) and not isinstance(error, ConnectionError):
            log.error(
                "command failed",
                exc_info=error,
                extra={"protocol": self._of.protocol, "command": self.name},
            )
            told = ServerError()
            self._tell(told.code, told.http_status, self.caller.principal)
            raise told from error
        else:  # a cancellation, or nobody is there
            self._tell(GIVEN_UP, GIVEN_UP_STATUS, self.caller.principal)

    def tell_span(
        self,
        operation: str,
        topic: str,
        count: int,
        *,
        group: str = "",
        places: tuple[Place, ...] = (),
        request: Carried | None = None,
        error: str = "",
    ) -> None:
        """Export a span of what was done with messages: publish, receive, ack, nack, reject, extend
        or release. `request` is the caller's trace, where its protocol carries one."""
        spans = self._of.parts.spans
        if spans is not None:
            spans.tell(
                Work(operation, self._began_ns, request, topic, count, places, (), group, error)
            )

    def _tell(self, code: str, status: int, principal: Principal | None) -> None:
        parts, protocol = self._of.parts, self._of.protocol
        took_s = time.monotonic() - self._began_s
        parts.metrics.answered(protocol, self.name, code, took_s, self.count)
        if parts.on_access is not None:
            parts.on_access(
                Access(
                    self.operation,
                    protocol,
                    self.target or self.name,
                    principal,
                    status,
                    code,
                    self._of.next_id(),
                    self.caller.address,
                )
            )
