"""Where a group stands: commit, seek, resume after a halt, and keys parked by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from goqueue.wire.errors import BadRequest
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX, validate_topic_name
from node.api.times import parse_time_ms
from node.http.groups.consumer_identity import Generation, Member, claim_of
from node.http.messages.fields import Message, key_of
from node.http.messages.render import text_or_base64
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body

EARLIEST, LATEST = -1, -2

_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_Partition = Annotated[int, Meta(ge=0, lt=2**31)]


class CommitBody(Body):
    """Everything below each partition's offset is settled: `{"0": 12}`.

    A member (in its generation) commits what it owns, others what nobody does, `force` anything.
    """

    topic: str
    offsets: dict[str, int]
    member: Member | None = None
    generation: Generation | None = None
    force: bool | None = None


class SeekBody(Body):
    """`to` is earliest, latest, an offset, or a time in RFC 3339; `time` takes epoch milliseconds
    too. All partitions, unless one is named. Those that members have are refused unless `force` is
    given, or the member that has them asks."""

    topic: str
    partition: _Partition | None = None
    to: str | int | None = None
    time: str | int | None = None
    member: Member | None = None
    generation: Generation | None = None
    force: bool | None = None


class OffsetsAnswer(Struct):
    """The group's offsets after it: everything below them is settled."""

    group: str
    topic: str
    offsets: dict[str, int]


class ResumeBody(Body):
    """All topics, unless one is named."""

    topic: str | None = None


class ResumedAnswer(Struct):
    """How many halted partitions go on."""

    group: str
    resumed: int


class KeyBody(Body):
    topic: str
    key: str
    key_encoding: str | None = None


class KeyAnswer(Struct):
    """How many messages of the key wait, or waited until now."""

    group: str
    topic: str
    key: str
    parked: bool
    waiting: int


class ParkedKey(Struct, omit_defaults=True):
    topic: str
    partition: int
    key: str
    waiting: int
    key_encoding: str | None = None


class ParkedAnswer(Struct):
    """`stale`: some leaders did not tell in time, and keys may be missing."""

    group: str
    parked: list[ParkedKey]
    stale: bool


_COMMIT = msgspec.json.Decoder(CommitBody)
_SEEK = msgspec.json.Decoder(SeekBody)
_RESUME = msgspec.json.Decoder(ResumeBody)
_KEY = msgspec.json.Decoder(KeyBody)


async def commit(call: Call) -> web.Response:
    group = call.group()
    wanted = await call.document(_COMMIT)
    topic = validate_topic_name(wanted.topic)
    offsets = committed_below(wanted.offsets)
    claim = claim_of(wanted.member, wanted.generation, force=wanted.force)
    return _answer(group, topic, await call.broker.positions.commit(group, topic, offsets, claim))


async def seek(call: Call) -> web.Response:
    group = call.group()
    wanted = await call.document(_SEEK)
    topic = validate_topic_name(wanted.topic)
    offset, time_ms = _target(wanted)
    claim = claim_of(wanted.member, wanted.generation, force=wanted.force)
    offsets = await call.broker.positions.seek(
        group, topic, wanted.partition, offset=offset, time_ms=time_ms, claim=claim
    )
    return _answer(group, topic, offsets)


async def resume(call: Call) -> web.Response:
    group = call.group()
    topic = (await call.document(_RESUME, empty=b"{}")).topic
    if topic is not None:
        validate_topic_name(topic)
    return answer(ResumedAnswer(group, await call.broker.queue.resume(group, topic)))


async def park(call: Call) -> web.Response:
    return await _park(call, release=False)


async def release(call: Call) -> web.Response:
    return await _park(call, release=True)


async def parked(call: Call) -> web.Response:
    group = call.group()
    topic = call.query.get("topic") or None
    if topic is not None:
        validate_topic_name(topic)
    view = await call.broker.groups.group(group, topic)
    keys = [
        ParkedKey(place.topic, place.partition, text, waiting, encoding)
        for place in view.partitions
        for key, waiting in place.parked
        for text, encoding in [text_or_base64(key)]
    ]
    return answer(ParkedAnswer(group, keys, view.stale))


async def _park(call: Call, *, release: bool) -> web.Response:
    group = call.group()
    wanted = await call.document(_KEY)
    topic = validate_topic_name(wanted.topic)
    key = key_of(Message(key=wanted.key, key_encoding=wanted.key_encoding))
    if key is None:
        raise BadRequest("key is required")
    waiting = await call.broker.queue.park(group, topic, key, release=release)
    return answer(KeyAnswer(group, topic, wanted.key, not release, waiting))


def committed_below(given: Mapping[str, int]) -> dict[int, int]:
    """Partition -> offset, of a JSON object. Raises BadRequest with every problem."""
    problems: list[str] = []
    for partition, offset in given.items():
        if not _NUMBER.fullmatch(partition) or int(partition) > PARTITIONS_MAX:
            problems.append(f"{partition[:40]!r} is not a partition")
        if not 0 <= offset <= OFFSET_MAX:
            problems.append(f"{partition[:40]}: {str(offset)[:40]} is not an offset")
    if not given:
        problems.append("nothing to commit")
    if problems:
        raise BadRequest(f"offsets: {'; '.join(problems[:20])}")
    return {int(partition): offset for partition, offset in given.items()}


def _target(wanted: SeekBody) -> tuple[int | None, int | None]:
    """An offset (or EARLIEST, LATEST), or a time."""
    if (wanted.to is None) == (wanted.time is None):
        raise BadRequest("give either to (earliest, latest, an offset or a time) or time")
    if wanted.time is not None:
        return None, parse_time_ms(str(wanted.time)[:100], "time")
    text = str(wanted.to)[:100]
    if text in ("earliest", "latest"):
        return (EARLIEST if text == "earliest" else LATEST), None
    if _NUMBER.fullmatch(text) and int(text) <= OFFSET_MAX:
        return int(text), None
    if isinstance(wanted.to, int):
        raise BadRequest(f"to: {text[:40]} is not an offset")
    return None, parse_time_ms(text, "to")


def _answer(group: str, topic: str, offsets: dict[int, int]) -> web.Response:
    shown = {str(partition): offset for partition, offset in sorted(offsets.items())}
    return answer(OffsetsAnswer(group, topic, shown))
