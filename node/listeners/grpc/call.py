"""One call on its way through a handler: what came, what goes, and who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import DecodeError

from goqueue.background import TaskSet
from goqueue.wire.errors import BadRequest, GoQueueError, OverBudget, PayloadTooLarge
from node.api.broker import Broker
from node.api.spans import TRACEPARENT, TRACESTATE, Carried
from node.http.budget.memory import Held, Kind
from node.http.messages.trace_context import of_request
from node.http.text.errors import RequestTimeout
from node.listeners.grpc.library import EOF, Context, Metadata, grpc
from node.listeners.grpc.limits import GrpcLimits
from node.listeners.parts import ListenerParts
from node.listeners.requests import Caller, Observed, Requests

BODY_TIMES = 2
"""What a request holds in its own size: as it came, and decoded."""


@dataclass(slots=True)
class Desk:
    """What the calls of one listener share."""

    parts: ListenerParts
    requests: Requests
    limits: GrpcLimits
    given: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    """By the receipt of a message that a stream was given: what that stream has, receipts all."""
    behind: TaskSet = field(default_factory=lambda: TaskSet("node", "grpc_cleanup_failed"))
    """What is still to be done once a call is over: giving back, leaving a group."""


class Rpc:
    """One call. Loop thread only."""

    def __init__(
        self,
        desk: Desk,
        context: Context,
        caller: Caller,
        request_class: Any,
        seen: Observed,
        metadata: Metadata,
    ) -> None:
        self.desk = desk
        self.caller = caller
        self.seen = seen
        self.on_stop: Callable[[], object] | None = None
        """What ends it where the node stops; a plain call is waited for."""
        self.moves_on_drain = False
        """Whether a drain of the node ends it, too: another node goes on."""
        self.is_moved = False
        """Whether one has ended it."""
        self._context = context
        self._request_class = request_class
        self._metadata = metadata
        self._body: Held | None = None

    @property
    def broker(self) -> Broker:
        """The node's, as far as the key reaches."""
        return self.caller.broker

    @property
    def limits(self) -> GrpcLimits:
        return self.desk.limits

    @property
    def is_stopping(self) -> bool:
        return self.desk.parts.stopping.is_set()

    def hold(self, kind: Kind, size: int = 0) -> Held:
        """A charge to whoever asks. Raises OverBudget."""
        return self.desk.requests.hold(self.caller, kind, size)

    async def room(self, kind: Kind, size: int) -> Held:
        """As `hold`, after a moment in line where there is no room now."""
        return await self.desk.requests.room(self.caller, kind, size)

    def deadline_s(self, most_s: float) -> float:
        """How long to wait for the cluster: the rest of the client's deadline, at most so long."""
        left_s = self._context.time_remaining()
        return most_s if left_s is None else max(0.0, min(most_s, left_s))

    def trace(self) -> Carried | None:
        """The trace context in the call's metadata."""
        return of_request({name: self.metadata(name) for name in (TRACEPARENT, TRACESTATE)})

    def metadata(self, name: str) -> str:
        """The first text of that name; empty for none."""
        found = (value for key, value in self._metadata if key == name)
        first = next(found, "")
        return first if isinstance(first, str) else ""

    async def admit_again(self, operation: str) -> None:
        """For what lasts: raises Unauthenticated or Forbidden where the key holds no longer."""
        await self.desk.requests.admit(self.caller, operation)

    # what the client says

    async def request(self, *, is_document: bool = True) -> Any:
        """The one request of a call. Raises BadRequest for none, or what is none; RequestTimeout
        where it does not arrive, PayloadTooLarge, and OverBudget where there is no room for it."""
        data = await self._arrived()
        if data is EOF:
            raise BadRequest(f"the call ended without its {self._name}")
        if is_document and len(data) > self.limits.document_bytes_max:
            limit = self.limits.document_bytes_max
            raise PayloadTooLarge(f"a {self._name} over {limit} bytes", limit=limit)
        return self.parse(data)

    async def read(self) -> bytes | None:
        """The next message of a stream, which nothing is charged for yet; None at its end. Raises
        ConnectionResetError where nobody is there."""
        data = await self._next()
        return None if data is EOF else data

    def parse(self, data: bytes) -> Any:
        """Raises BadRequest."""
        try:
            return self._request_class.FromString(data)
        except DecodeError:
            raise BadRequest(f"this is no {self._name}") from None

    # what it is told

    async def write(self, message: Any) -> None:
        """Returns once the client's windows have room for it. Raises ConnectionResetError where
        nobody is there."""
        try:
            await self._context.write(message.SerializeToString())
        except grpc.aio.BaseError:
            raise ConnectionResetError from None

    def done(self) -> None:
        """Nothing is held any more. Idempotent."""
        if self._body is not None:
            self._body.release()

    # private

    @property
    def _name(self) -> str:
        return str(self._request_class.DESCRIPTOR.name)

    async def _next(self) -> Any:
        try:
            return await self._context.read()
        except grpc.aio.BaseError:
            raise ConnectionResetError from None

    async def _arrived(self) -> Any:
        """Its bytes, charged. What comes slowly is charged at its most meanwhile."""
        http, loop = self.desk.parts.limits, asyncio.get_running_loop()
        body = self._body = self.hold(Kind.BODIES)
        refused: list[OverBudget] = []

        def is_slow() -> None:
            try:
                body.grow(self.limits.message_bytes_max)
            except OverBudget as error:
                refused.append(error)
                scope.reschedule(loop.time())

        scope = asyncio.timeout(http.body_grace_s)
        slow = loop.call_later(self.limits.slow_s, is_slow)
        try:
            async with scope:
                data = await self._next()
        except TimeoutError:
            if refused:
                raise refused[0] from None
            if not scope.expired():
                raise
            raise RequestTimeout from None
        finally:
            slow.cancel()
        if data is not EOF:
            body.resize(BODY_TIMES * len(data))
        return data


def address_of(peer: str) -> str:
    """The address of grpcio's `ipv4:10.1.2.3:4567` or `ipv6:%5B::1%5D:4567`."""
    _, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") or rest


def token_of(metadata: Metadata) -> str | None:
    """The key that a call brings: `authorization: Bearer <id>.<secret>`, or `x-api-key`. None for
    none, and "" for what can be no key, or for two of them."""
    found = set[str]()
    for name, value in metadata:
        if name == "x-api-key":
            found.add(value.strip() if isinstance(value, str) else "")
        elif name == "authorization":
            scheme, _, token = str(value).strip().partition(" ")
            found.add(token.strip() if scheme.lower() == "bearer" else "")
    if not found:
        return None
    return found.pop() if len(found) == 1 else ""


def raised(outcome: object) -> Any:
    """The outcome, or the error that it is, raised."""
    if isinstance(outcome, GoQueueError):
        raise outcome
    return outcome
