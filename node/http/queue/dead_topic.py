"""`<topic>.dlq`: a group's dead letters, read as if they were a topic.

Offsets are the messages' own, so a page may skip many, and headers say why each died. A message may
die later than one with a higher offset: to follow deaths, list them by time at /groups/{group}/dlq.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from aiohttp import web
from msgspec import Struct

from goqueue.wire.batch import BATCH_MEDIA_TYPE, DEFAULT, encode_columns
from goqueue.wire.errors import BadRequest, UnknownPartition
from goqueue.wire.ids import DEAD_LETTER_SUFFIX, OFFSET_MAX, validate_topic_name
from goqueue.wire.types import Offset
from node.api.dead_letters import DeadFilter, DeadMessage
from node.api.records import Slice, StoredBatch
from node.api.times import format_time
from node.http.messages import batches
from node.http.messages.fields import lane_name
from node.http.messages.read import MessagesAnswer, TopicMessagesAnswer
from node.http.messages.render import MessageView
from node.http.queue.views import REDRIVES_HEADER, texts_of
from node.http.request.answers import told
from node.http.request.call import Call, answer, validate_group_name
from node.http.request.long_poll import long_poll
from node.http.topics.catalog import OffsetRange

ID_HEADER = "dlq.original_id"
GROUP_HEADER = "dlq.group"
REASON_HEADER = "dlq.reason"
ATTEMPTS_HEADER = "dlq.attempts"
DIED_HEADER = "dlq.died_at"

LOOK_AGAIN_S = 0.5

Handler = Callable[[Call], Awaitable[web.Response]]

_ROOMY = replace(DEFAULT, headers_bytes_max=2 * DEFAULT.headers_bytes_max)
"""A message may have had all the headers that one may have."""
_OFFSET = re.compile(r"\d{1,19}", re.ASCII)


class GroupRequired(BadRequest):
    """Several groups have dead letters in the topic: `groups` names them."""

    code = "group_required"
    text: ClassVar[str] = "several groups have dead letters here: say which with ?group="


class DeadGroup(Struct):
    total: int
    by_reason: dict[str, int]


class DeadTopicAnswer(Struct):
    """A topic's dead letters: how many each group has. Offsets are those of `topic`."""

    name: str
    topic: str
    partitions: int
    num_partitions: int
    total_messages: int
    partition_offsets: dict[str, OffsetRange]
    groups: dict[str, DeadGroup]


def dead_or(ordinary: Handler, dead: Handler) -> Handler:
    """The handler of a topic's path that also serves `<topic>.dlq`."""

    async def handler(call: Call) -> web.Response:
        is_dead = call.params["topic"].endswith(DEAD_LETTER_SUFFIX)
        return await (dead if is_dead else ordinary)(call)

    return handler


async def describe(call: Call) -> web.Response:
    topic = _source(call)
    view = await call.broker.topics.topic(topic)
    asked = call.query.get("group") or None
    counts = await call.broker.letters.dead_groups(topic)
    if asked is not None:
        counts = {asked: counts.get(validate_group_name(asked), {})}
    groups = {
        name: DeadGroup(sum(by_reason.values()), dict(by_reason))
        for name, by_reason in sorted(counts.items())
    }
    total = sum(group.total for group in groups.values())
    return answer(
        DeadTopicAnswer(
            name=topic + DEAD_LETTER_SUFFIX,
            topic=topic,
            partitions=len(view.partitions),
            num_partitions=len(view.partitions),
            total_messages=total,
            partition_offsets={
                str(p.partition): OffsetRange(0, p.next - 1 if total else -1)
                for p in view.partitions
            },
            groups=groups,
        )
    )


async def read(call: Call) -> web.Response:
    """GET /topics/{topic}.dlq/partitions/{partition}/messages, as JSON or as record batches."""
    topic, partition = _source(call), call.partition()
    view = await call.broker.topics.topic(topic)
    if partition >= len(view.partitions):
        raise UnknownPartition(topic, partition)
    offset, limit = _start(call), _limit(call)
    end = view.partitions[partition].next
    wait_s = call.query_wait_s()
    letters = await _read(call, topic, partition, offset, limit)
    if not letters and wait_s and not call.shared.stopping.is_set():
        waiting = _wait(call, topic, partition, offset, limit, wait_s)
        letters = await long_poll(call, waiting) or []
    following = letters[-1].message.offset + 1 if letters else offset
    if BATCH_MEDIA_TYPE in call.request.headers.get("Accept", ""):
        stored = list(map(_stored, letters))
        return batches.slice_answer(call, Slice(stored, Offset(following), Offset(0), end))
    views = list(map(_view, letters))
    return await told(
        call, MessagesAnswer(topic + DEAD_LETTER_SUFFIX, partition, views, following, 0, end)
    )


async def read_topic(call: Call) -> web.Response:
    """GET /topics/{topic}.dlq/messages: from the beginning, by partition and offset."""
    topic, limit = _source(call), _limit(call)
    count = len((await call.broker.topics.topic(topic)).partitions)
    found: list[MessageView] = []
    reached: dict[str, int] = {}
    starts = _starts(call, count)
    left = call.limits.read_bytes_max
    for partition in range(count):
        start = reached[str(partition)] = starts.get(partition, 0)
        if len(found) < limit and left > 0:
            letters = await _read(call, topic, partition, start, limit - len(found))
            found += map(_view, letters)
            left -= sum(len(letter.message.value) for letter in letters)
            if letters:
                reached[str(partition)] = letters[-1].message.offset + 1
    return await told(call, TopicMessagesAnswer(topic + DEAD_LETTER_SUFFIX, found, reached))


async def _wait(
    call: Call, topic: str, partition: int, offset: int, limit: int, wait_s: float
) -> Sequence[DeadMessage]:
    """The first that die within the time; nobody tells of them, so it looks again and again."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + wait_s
    letters: Sequence[DeadMessage] = ()
    while not letters and (left_s := ends_s - loop.time()) > 0:
        await asyncio.sleep(min(left_s, LOOK_AGAIN_S))
        letters = await _read(call, topic, partition, offset, limit)
    return letters


async def _read(
    call: Call, topic: str, partition: int, offset: int, limit: int
) -> Sequence[DeadMessage]:
    """Dead letters at and after the offset."""
    group = await _group(call, topic)
    if group is None:
        return []
    which = DeadFilter(partition=partition)
    page = await call.broker.letters.dead_letters(
        group, topic, which, after=(partition, offset), limit=limit
    )
    return page.messages


async def _group(call: Call, topic: str) -> str | None:
    """The group that is asked for, or the only one there is. Raises GroupRequired."""
    asked = call.query.get("group")
    if asked:
        return validate_group_name(asked)
    groups = sorted(await call.broker.letters.dead_groups(topic))
    if len(groups) > 1:
        raise GroupRequired(groups=groups)
    return groups[0] if groups else None


def _why(letter: DeadMessage) -> dict[str, str]:
    """The headers that a dead letter has besides its own."""
    message = letter.message
    redriven = {REDRIVES_HEADER: str(letter.redrives)} if letter.redrives else {}
    return {
        **redriven,
        ID_HEADER: f"{message.topic}:{message.partition}:{message.offset}",
        GROUP_HEADER: letter.group,
        REASON_HEADER: letter.reason,
        ATTEMPTS_HEADER: str(letter.attempts),
        DIED_HEADER: format_time(letter.died_ms),
    }


def _stored(letter: DeadMessage) -> StoredBatch:
    """A batch of this one letter."""
    message, why = letter.message, _why(letter)
    kept = tuple((name, value) for name, value in message.headers if name not in why)
    return StoredBatch(
        message.offset,
        message.time_ms,
        encode_columns(
            [None if message.is_null else message.value],
            [message.key],
            timestamps_ms=message.time_ms,
            lanes=message.lane,
            headers=[(*kept, *((name, text.encode()) for name, text in why.items()))],
            deliver_at_ms=[message.deliver_at_ms],
            expires_at_ms=[message.expires_at_ms],
            message_ids=[message.message_id],
            limits=_ROOMY,
        ),
    )


def _view(letter: DeadMessage) -> MessageView:
    message = letter.message
    texts = texts_of(message)
    headers = {**(texts.headers or {}), **_why(letter)}
    return MessageView(
        offset=message.offset,
        timestamp=format_time(message.time_ms),
        value=texts.value,
        priority=lane_name(message.lane),
        key=texts.key,
        headers=headers,
        message_id=message.message_id,
        value_encoding=texts.value_encoding,
        key_encoding=texts.key_encoding,
        header_encodings=texts.header_encodings,
        partition=message.partition,
    )


def _source(call: Call) -> str:
    return validate_topic_name(call.params["topic"].removesuffix(DEAD_LETTER_SUFFIX))


def _limit(call: Call) -> int:
    limits = call.limits
    return call.query_int("limit", limits.read_records_default, 1, limits.read_records_max)


def _start(call: Call) -> int:
    text = call.query.get("offset", "")
    if text in ("", "earliest"):
        return 0
    if not _OFFSET.fullmatch(text) or int(text) > OFFSET_MAX:
        raise BadRequest(f"offset: {text[:40]!r} is not a number from 0, or earliest")
    return int(text)


def _starts(call: Call, partitions: int) -> dict[int, int]:
    """`0:12,1:7`, as an earlier answer's next_offsets had it."""
    starts: dict[int, int] = {}
    for part in filter(None, call.query.get("offsets", "").split(",")):
        partition, _, offset = part.partition(":")
        known = _OFFSET.fullmatch(partition) and _OFFSET.fullmatch(offset)
        if not known or int(partition) >= partitions or int(offset) > OFFSET_MAX:
            raise BadRequest(f"offsets: {part[:40]!r} is not partition:offset")
        starts[int(partition)] = int(offset)
    return starts
