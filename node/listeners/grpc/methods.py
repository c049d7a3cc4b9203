"""What there is to call: each method with who may call it, what it takes, and what serves it.

Services are read from the descriptors of what was generated, so a method that has no handler here,
or a handler without a method, fails at the start and not at a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from node.listeners.grpc import health, offsets, settle
from node.listeners.grpc.call import Rpc
from node.listeners.grpc.consume import consume
from node.listeners.grpc.failures import NotImplementedYet
from node.listeners.grpc.health import Health, Serve
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.publish import publish
from node.listeners.grpc.publish_stream import publish_stream
from node.listeners.grpc.reflection import info
from node.listeners.grpc.subscribe import subscribe


@dataclass(frozen=True, slots=True)
class Method:
    """`path` is how it is called, `name` how metrics and the audit log tell it; `operation` is the
    HTTP route's whose policy holds. An endless one is cut off where the node stops."""

    path: str
    name: str
    operation: str
    request_class: Any
    serve: Serve
    is_endless: bool


async def no_transactions(rpc: Rpc) -> None:
    """Raises NotImplementedYet: nothing was done, and a client must not believe it was."""
    raise NotImplementedYet("transactions are not there yet: publish with a producer's identity")


def methods() -> list[Method]:
    """All of them, of all services."""
    files = [pb.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR]
    services = [service for file in files for service in file.services_by_name.values()]
    handlers = _handlers(frozenset(service.full_name for service in services))
    found = list(_methods(services, handlers))
    assert len(found) == len(handlers), "a handler without a method"
    return found


def _methods(services: Iterable[Any], handlers: dict[str, tuple[str, Serve]]) -> Iterator[Method]:
    for service in services:
        for method in service.methods:
            operation, serve = handlers[f"{service.full_name}/{method.name}"]
            yield Method(
                f"/{service.full_name}/{method.name}",
                f"{service.name}.{method.name}",
                operation,
                GetMessageClass(method.input_type),
                serve,
                bool(method.server_streaming),
            )


def _handlers(services: frozenset[str]) -> dict[str, tuple[str, Serve]]:
    """By service and method: the operation, and what serves it."""
    own, found = "goqueue.v1.", Health(services)
    table: dict[str, tuple[str, Serve]] = {
        own + "PublishService/Publish": ("publish", publish),
        own + "PublishService/PublishStream": ("publish", publish_stream),
        own + "ConsumeService/Consume": ("tailTopic", consume),
        own + "ConsumeService/Subscribe": ("streamGroup", subscribe),
        own + "AckService/Ack": ("ackMessage", settle.ack),
        own + "AckService/Nack": ("nackMessage", settle.nack),
        own + "AckService/Reject": ("rejectMessage", settle.reject),
        own + "AckService/ExtendVisibility": ("extendVisibility", settle.extend_visibility),
        own + "AckService/BatchAck": ("ackReceipts", settle.batch_ack),
        own + "OffsetService/CommitOffsets": ("commitOffsets", offsets.commit_offsets),
        own + "OffsetService/FetchOffsets": ("getOffsets", offsets.fetch_offsets),
        own + "OffsetService/ResetOffsets": ("resetOffsets", offsets.reset_offsets),
        own + "HealthService/Check": ("readyz", found.check(health.OWN)),
        own + "HealthService/Watch": ("readyz", found.watch(health.OWN)),
        "grpc.health.v1.Health/Check": ("readyz", found.check(health.STANDARD)),
        "grpc.health.v1.Health/List": ("readyz", found.list),
        "grpc.health.v1.Health/Watch": ("readyz", found.watch(health.STANDARD)),
        "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": (
            "openapi",
            info(services),
        ),
    }
    transactions = pb.DESCRIPTOR.services_by_name["TransactionService"]
    for method in transactions.methods:
        table[f"{transactions.full_name}/{method.name}"] = ("initProducer", no_transactions)
    return table
