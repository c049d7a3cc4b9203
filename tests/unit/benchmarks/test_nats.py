"""NATS as a peer: what it does not have, or refuses, is no figure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from benchmarks.nats import Link

STORED = b'{"stream":"s","seq":1}'
REFUSED = b'{"error":{"code":503}}'


class Server:
    """Answers each message with the next of `answers`, in pieces of a few bytes."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.acked: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\n")
        while line := await reader.readline():
            words = line.split()
            if words[0] == b"PING":
                writer.write(b"PING\r\nPONG\r\n")
            elif words[0] == b"PUB":
                payload = (await reader.readexactly(int(words[-1]) + 2))[:-2]
                if payload == b"+ACK":
                    self.acked.append(words[1])
                    continue
                for answer in self.answers.pop(0).split(b"|"):
                    told = answer.replace(b"INBOX", words[2])
                    for at in range(0, len(told), 5):
                        writer.write(told[at : at + 5])
                        await writer.drain()
        writer.close()


def message(payload: bytes, reply: bytes = b"") -> bytes:
    return b"MSG INBOX 1 %b %d\r\n%b\r\n" % (reply, len(payload), payload)


STATUS = b"HMSG INBOX 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    one = Server()
    listening = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield one


async def test_what_is_stored_is_acknowledged(server: Server) -> None:
    link = await Link.open(server.port)
    server.answers = [message(STORED)] * 3

    await link.publish([link.request_of("s", b"x" * 100)] * 3)

    server.answers = [message(STORED), message(REFUSED)]
    with pytest.raises(RuntimeError, match="503"):
        await link.publish([link.request_of("s", b"x")] * 2)
    link.close()


async def test_messages_are_pulled_up_to_a_status_and_acked_each(server: Server) -> None:
    link = await Link.open(server.port)
    server.answers = [message(b"one", b"$1") + b"|" + message(b"two", b"$2") + b"|" + STATUS]

    given = await link.pull("s", 10)
    link.ack(given)
    server.answers = [message(json.dumps({"state": {"messages": 2}}).encode())]
    told = await link.ask("$JS.API.STREAM.INFO.s", {})

    assert [one.payload for one in given] == [b"one", b"two"]
    assert server.acked == [b"$1", b"$2"]
    assert told == {"state": {"messages": 2}}
    link.close()


async def test_a_server_that_goes_ends_who_waits(server: Server) -> None:
    link = await Link.open(server.port)
    server.answers = [b"-ERR 'Maximum Payload Violation'\r\n"]

    with pytest.raises(ConnectionError):
        await link.publish([link.request_of("s", b"x")])
    link.close()
