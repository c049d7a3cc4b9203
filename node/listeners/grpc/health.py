"""Whether this node may be sent work, for probes and balancers: grpc.health.v1, and GoQueue's own.

Both say the same: SERVING while the node is ready, as /readyz has it, and NOT_SERVING before, and
once it stops. They ask for no key, as /readyz asks for none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from grpc_health.v1 import health_pb2

from goqueue.wire.errors import NotFound
from node.listeners.grpc.call import Rpc
from node.listeners.grpc.protocol import goqueue_pb2 as pb

LOOK_S = 1.0
"""How often a watched node is looked at."""
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
"""The numbers that both protocols have."""

Serve = Callable[[Rpc], Awaitable[None]]


class UnknownService(NotFound):
    """No service of this listener is called that."""

    code = "unknown_service"


class Health:
    """The answers of one listener, for its services and the node as a whole, which is ""."""

    def __init__(self, services: frozenset[str]) -> None:
        self._services = services

    def check(self, answer: Any) -> Serve:
        """`Check`, which answers in this class. Raises UnknownService."""

        async def serve(rpc: Rpc) -> None:
            given = await rpc.request()
            status = self._status(rpc, given.service)
            if status == SERVICE_UNKNOWN:
                raise UnknownService(f"no service {given.service[:100]!r} here")
            await rpc.write(answer(status=status))

        return serve

    def watch(self, answer: Any) -> Serve:
        """`Watch`: the status now, and each time that it is another one. Of a service that is not
        there it says so, and goes on, as the protocol has it."""

        async def serve(rpc: Rpc) -> None:
            given, told = await rpc.request(), None
            while True:
                status = self._status(rpc, given.service)
                if status != told:
                    await rpc.write(answer(status=status))
                    told = status
                await asyncio.sleep(LOOK_S)

        return serve

    async def list(self, rpc: Rpc) -> None:
        """`List` of grpc.health.v1: all of them at once."""
        await rpc.request()
        told: Any = health_pb2.HealthListResponse()  # pyright: ignore[reportAttributeAccessIssue]
        for service in ("", *sorted(self._services)):
            told.statuses[service].status = self._status(rpc, service)
        await rpc.write(told)

    def _status(self, rpc: Rpc, service: str) -> int:
        if service and service not in self._services:
            return SERVICE_UNKNOWN
        is_serving = not rpc.is_stopping and rpc.broker.node.ready().ready
        return SERVING if is_serving else NOT_SERVING


STANDARD, OWN = health_pb2.HealthCheckResponse, pb.HealthCheckResponse
"""Answers of both protocols."""
