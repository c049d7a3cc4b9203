"""Server reflection: grpcurl and the like learn what there is to call, without the .proto."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from grpc_reflection.v1alpha import reflection

from node.listeners.grpc.call import Rpc
from node.listeners.grpc.health import Serve


def info(services: Iterable[str]) -> Serve:
    """`ServerReflectionInfo` over the descriptors of these services."""
    servicer = reflection.aio.ReflectionServicer(sorted(services))

    async def serve(rpc: Rpc) -> None:
        answers: Any = servicer.ServerReflectionInfo(_asked(rpc), None)
        async for answer in answers:
            await rpc.write(answer)

    return serve


async def _asked(rpc: Rpc) -> AsyncIterator[Any]:
    while (data := await rpc.read()) is not None:
        yield rpc.parse(data)
