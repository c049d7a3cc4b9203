"""miniqueue's commands: SUBSCRIBE with acks, and TOPICS. PUBLISH is in `publishing`.

SUBSCRIBE gives one message, and the words behind it are about that message: ACK, NACK (to the
front), BACK (to the back) and DACK [seconds] (after a while). Each is answered with OK and the next
message. The connection is the consumer: with its end the message goes back to the front.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from goqueue.wire.errors import GoQueueError, UnknownGroup
from node.api.queue import QueuedMessage, SettleRequest
from node.api.streams import Stream
from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.command import Command
from node.listeners.redis.entries import partitions_of
from node.listeners.redis.replies import OK, Failure, RedisError, Reply, Simple, failure_of
from node.listeners.topics import MINIQUEUE_SETTINGS, MINIQUEUE_SUFFIX
from node.listeners.waiting import room_for

DACK_S = 1
"""What miniqueue's own server always waits."""
DACK_S_MAX = 12 * 3600
INVALID_ACK = Failure("invalid ack command")
INVALID = Failure("invalid command")


class TopicSubscription:
    """Implements `node.listeners.redis.client.Subscription`."""

    def __init__(self, client: Client, topic: str, stream: Stream) -> None:
        self._client = client
        self._topic = topic
        self._stream = stream
        self._message: QueuedMessage | None = None

    async def next(self) -> Reply:
        """The next message, once there is one. Where the client goes, or the node stops, before,
        the connection ends."""
        client = self._client
        found = await client.waited(self._received())
        if found is None:
            client.is_leaving = True
            return Failure("the server is stopping: subscribe again, to another node")
        self._message = found
        return found.value

    async def heard(self, said: list[bytes]) -> AsyncIterator[Reply]:
        """What the client is answered: of a word that is none, only that."""
        client, word = self._client, said[0].upper()
        if word == b"QUIT":
            client.is_leaving = True
            yield OK
            return
        request = self._request(word, said[1:])
        if isinstance(request, Failure):
            with client.observed("unknown", "health"):
                yield request
            return
        try:
            await self._settle(word.decode(), request)
        except GoQueueError as error:
            yield failure_of(error)
            if error.http_status not in (404, 409):
                return  # it may be said again
        else:
            yield OK
        self._message = None  # where it was refused it is another's by now
        yield await self.next()

    async def end(self) -> None:
        """What was not settled goes back to the front, as a failed attempt."""
        await self._stream.end(returned=self._client.is_stopping)

    async def _settle(self, name: str, request: SettleRequest) -> None:
        """Raises what the receipt's end is, where it is none."""
        client = self._client
        with client.observed(name, "settle", self._topic) as seen:
            await client.admit("settle", self._topic)
            (end,) = await self._stream.settle([request])
            if isinstance(end, GoQueueError):
                raise end
            seen.tell_span(request.action, self._topic, 1)

    def _request(self, word: bytes, arguments: list[bytes]) -> SettleRequest | Failure:
        assert self._message is not None
        receipt = self._message.receipt
        if word == b"DACK" and len(arguments) <= 1:
            try:
                seconds = words.number(arguments[0], 0, DACK_S_MAX) if arguments else DACK_S
            except RedisError:
                return Failure("invalid DACK duration argument at position [1]")
            return SettleRequest(receipt, "nack", "delayed", seconds * 1000)
        if word not in (b"ACK", b"NACK", b"BACK", b"DACK"):
            return INVALID_ACK
        if arguments:
            return INVALID
        if word == b"ACK":
            return SettleRequest(receipt, "ack")
        return SettleRequest(receipt, "nack", "given back", 0, to_back=word == b"BACK")

    async def _received(self) -> QueuedMessage:
        client = self._client
        longest_s = client.requests.parts.limits.long_poll_s_max
        while True:
            with room_for(client.requests, client.caller) as room:
                found = await self._stream.receive(
                    [self._topic], limit=1, bytes_max=1, wait_s=longest_s, visibility_ms=None
                )
                if found:
                    client.keep(room)
                    return found[0]
            await client.admit("receive", self._topic)  # the key may have ended meanwhile


async def subscribe(client: Client, arguments: list[bytes]) -> Reply:
    """`topic`: its next message, once there is one."""
    if len(arguments) != 1:
        raise wants(2)
    topic = words.topic(arguments[0])
    await client.admit("receive", topic)
    if not await partitions_of(client, topic):
        await client.broker.topics.ensure_topic(topic, 1)
    group = words.group_of(topic, MINIQUEUE_SUFFIX)
    try:
        await client.broker.groups.group(group, topic)
    except UnknownGroup:
        await client.broker.groups.put_group(group, MINIQUEUE_SETTINGS)
    stream = await client.broker.streams.open(group)
    subscription = TopicSubscription(client, topic, stream)
    client.subscription = subscription
    return await subscription.next()


async def topics(client: Client, arguments: list[bytes]) -> Reply:
    """Their names in brackets, as miniqueue writes them."""
    if arguments:
        raise wants(1)
    return Simple(f"[{' '.join(client.broker.topics.list_topics())}]")


def wants(count: int) -> RedisError:
    """miniqueue's words for a wrong number of words, the command's name counted."""
    return RedisError(f"invalid number of args, want: {count}")


TABLE = (
    Command("SUBSCRIBE", subscribe, "receive", may_wait=True),
    Command("TOPICS", topics, "listTopics"),
)
