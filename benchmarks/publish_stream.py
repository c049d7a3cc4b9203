"""One stream of gRPC: messages up, an answer to each down, and the same with nothing behind it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from benchmarks.bare import served
from benchmarks.connection import BadAnswer
from benchmarks.payloads import MASK, fingerprint, sample
from benchmarks.processes import cpu_seconds
from benchmarks.publish import Load
from node.listeners.grpc.protocol import goqueue_pb2 as pb

METHOD = "/goqueue.v1.PublishService/PublishStream"
ECHO_METHOD = "/bench.Echo/Echo"
VALUES = 32
UNANSWERED_MAX = 1000
"""As many as a node takes before it answers."""
ANSWERED_S = 60.0
ECHO = """
import asyncio, sys, grpc, uvloop

async def echo(requests, context):
    async for data in requests:
        yield data

class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(echo)

async def main():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handlers(),))
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()

uvloop.run(main())
"""


@asynccontextmanager
async def bare_echo() -> AsyncIterator[tuple[tuple[str, int], int]]:
    """The address and the process id of a server that sends back the bytes that it gets."""
    async with served(ECHO) as (port, pid):
        yield ("127.0.0.1", port), pid


async def publish(
    address: tuple[str, int], method: str, topic: str, size: int, seconds: float, pid: int
) -> Load:
    """Send for so long, then wait for what is not answered. Raises BadAnswer where an answer is an
    error, or there is not exactly one for each message."""
    values = sample(size, VALUES)
    requests = [
        pb.PublishStreamRequest(correlation_id=str(n), topic=topic, value=value).SerializeToString()
        for n, value in enumerate(values)
    ]
    answer_class = pb.PublishStreamResponse if method == METHOD else pb.PublishStreamRequest
    sent, answered = Counter[str](), Counter[str]()
    room = asyncio.Semaphore(UNANSWERED_MAX)
    host, port = address
    cpu_before, began = cpu_seconds([pid]), time.perf_counter()
    async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
        call = channel.stream_stream(method)()

        async def send() -> None:
            until = began + seconds
            while True:
                for number, request in enumerate(requests):
                    await room.acquire()
                    await call.write(request)
                    sent[str(number)] += 1
                if time.perf_counter() >= until:
                    break
            await call.done_writing()

        sending = asyncio.ensure_future(send())
        try:
            async with asyncio.timeout(seconds + ANSWERED_S):
                while (data := await call.read()) is not grpc.aio.EOF:
                    told = answer_class.FromString(data)
                    if method == METHOD and told.HasField("error"):
                        raise BadAnswer(f"PublishStream: {told.error}")
                    answered[told.correlation_id] += 1
                    room.release()
                took = time.perf_counter() - began
                await sending
        finally:
            sending.cancel()
    if answered != sent:
        raise BadAnswer(f"{method}: {sent.total()} sent, {answered.total()} answered")
    total = sum(count * fingerprint([values[int(number)]]) for number, count in answered.items())
    return Load(answered.total(), took, cpu_seconds([pid]) - cpu_before, total & MASK, [0.0])
