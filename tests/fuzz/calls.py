"""Calls of gRPC whose requests were sound once: answered, or refused by name; never at fault."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import grpc
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from node.listeners.grpc.protocol import goqueue_pb2 as pb
from tests.fuzz.mutation import EXTREMES, any_of
from tests.fuzz.raw import Tally

AT_ONCE = 8
WAITING_S = 0.3
"""Streams go on until then."""
OPENED = 5
"""Messages that are sent on a stream of both sides, at most."""
AT_FAULT = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}
OF_THE_CLIENT = "Internal error from Core"
"""What grpcio's own client says where a call was over before it had said all."""
FILES = (pb.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
}


def samples(path: str, topic: str, group: str, rng: random.Random) -> list[bytes]:
    """Sound requests of a method, and some with numbers at their bounds."""
    made = []
    for _ in range(4):
        request = GetMessageClass(METHODS[path].input_type)()
        _fill(request, topic, group, rng)
        made.append(request.SerializeToString())
    return made


async def fuzz(address: str, topic: str, group: str, rng: random.Random, count: int) -> Tally:
    """So many calls, a few at a time, over one channel."""
    tally, turns = Tally(), asyncio.Semaphore(AT_ONCE)
    async with grpc.aio.insecure_channel(address) as channel:

        async def one() -> None:
            async with turns:
                path = rng.choice(list(METHODS))
                kept = samples(path, topic, group, rng)
                bodies = [any_of(kept, rng) for _ in range(rng.randrange(1, OPENED))]
                await _call(channel, path, bodies, tally)

        await asyncio.gather(*(one() for _ in range(count)))
    return tally


async def _call(
    channel: grpc.aio.Channel, path: str, bodies: Sequence[bytes], tally: Tally
) -> None:
    tally.sent += 1
    call = channel.stream_stream(path)(timeout=WAITING_S)
    try:
        for body in bodies if METHODS[path].client_streaming else bodies[:1]:
            await call.write(body)
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass
    except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):  # it is over
        pass
    code = await call.code()
    tally.statuses[code.value[0]] += 1
    if code in AT_FAULT and await call.details() != OF_THE_CLIENT:
        tally.defects.append(f"{path} {code.name} {await call.details()}: {list(bodies)!r}")


def _fill(message: object, topic: str, group: str, rng: random.Random) -> None:
    names = {"topic": topic, "topics": topic, "group_id": group}
    for field in message.DESCRIPTOR.fields:  # type: ignore[attr-defined]
        if rng.random() < 0.3:
            continue
        of_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if of_map:
            getattr(message, field.name)["a"] = "b"
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            for one in [inner.add() for _ in range(2)] if field.is_repeated else [inner]:
                _fill(one, topic, group, rng)
        else:
            value = names.get(field.name) or _value(field, rng)
            if field.is_repeated:
                getattr(message, field.name).extend([value] * rng.choice((1, 2, 50)))
            else:
                setattr(message, field.name, value)


def _value(field: object, rng: random.Random) -> object:
    kind = field.cpp_type  # type: ignore[attr-defined]
    if kind == field.CPPTYPE_STRING:  # type: ignore[attr-defined]
        text = rng.choice(("", "x", "ü", "a" * 300))
        is_text = field.type == field.TYPE_STRING  # type: ignore[attr-defined]
        return text if is_text else text.encode()
    if kind == field.CPPTYPE_BOOL:  # type: ignore[attr-defined]
        return rng.random() < 0.5
    if kind == field.CPPTYPE_ENUM:  # type: ignore[attr-defined]
        return rng.choice((0, 1, 2, 3, 99))
    bits = 32 if kind == field.CPPTYPE_INT32 else 64  # type: ignore[attr-defined]
    extreme = rng.choice(EXTREMES) % (1 << (bits - 1))
    return rng.choice((0, 1, 2, 10, extreme, -1))
