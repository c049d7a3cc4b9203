"""`Publish`: one message, answered once it is as durable as its topic promises."""

from __future__ import annotations

from goqueue.wire.errors import GoQueueError
from node.listeners.grpc.call import Rpc
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.rows import append, now_ms, place_of, row_of
from node.listeners.grpc.times import put_time
from node.listeners.topics import ensure_topic


async def publish(rpc: Rpc) -> None:
    """Whatever `ack_mode` says: an answer never promises less than HTTP's. Raises what `row_of`,
    `place_of` and `append` do."""
    given = await rpc.request(is_document=False)
    trace = rpc.trace()
    row = row_of(given, rpc.limits.headers_max, trace)
    topic = rpc.seen.target = row.topic
    await ensure_topic(rpc.broker, topic)
    partition = place_of(rpc.broker, row, now_ms())
    try:
        stored = await append(rpc, topic, partition, [row])
    except GoQueueError as error:
        rpc.seen.tell_span("publish", topic, 1, request=trace, error=error.code)
        raise
    place = (topic, partition, int(stored.base_offset))
    rpc.seen.tell_span("publish", topic, 1, places=(place,), request=trace)
    told = pb.PublishResponse(topic=topic, partition=partition, offset=stored.base_offset)
    put_time(told.timestamp, stored.time_ms)
    await rpc.write(told)
