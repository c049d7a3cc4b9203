"""POST /topics/{topic}/archived: an archive tells how far it holds each partition.

Where a topic waits for its archive, messages may go once they are below what was reported. So
whoever may report can have data deleted, and needs the role that may change the topic.
"""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct, json

from goqueue.wire.errors import BadRequest
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX
from goqueue.wire.types import Offset
from node.api.archive import PartitionArchive
from node.api.times import format_time
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body


class ArchivedBody(Body):
    """All messages below these offsets are in the archive, committed there.

    `archive` is where: the location of its files. `positions`: by partition. `topic_id` refuses
    what is meant for a topic of this name that was deleted since. `replace`: this archive takes the
    place of another one, from the positions given here on, be they smaller.
    """

    archive: Annotated[str, Meta(min_length=1, max_length=1024)]
    positions: dict[str, Annotated[int, Meta(ge=0, le=OFFSET_MAX)]]
    topic_id: str | None = None
    replace: bool | None = None


class ArchivedPartition(Struct):
    """One partition: all below `position` is archived. `lag` messages are not, of which the first
    was stored `lag_seconds` ago; `required`: none of them goes before it is."""

    partition: int
    archive: str
    position: int
    reported_at: str | None
    required: bool
    lag: int
    lag_seconds: float


class ArchivedAnswer(Struct):
    topic: str
    partitions: list[ArchivedPartition]


_BODY = json.Decoder(ArchivedBody)


async def report(call: Call) -> web.Response:
    topic = call.topic()
    wanted = await call.document(_BODY)
    positions = {_partition(name): Offset(at) for name, at in wanted.positions.items()}
    if not positions:
        raise BadRequest("positions: none are given")
    found = await call.broker.archives.archived(
        topic,
        wanted.archive.rstrip("/") or "/",
        positions,
        topic_id=wanted.topic_id,
        anew=bool(wanted.replace),
    )
    return answer(ArchivedAnswer(topic, [archived_row(n, found[n]) for n in sorted(found)]))


def archived_row(partition: int, view: PartitionArchive) -> ArchivedPartition:
    """As answers show it."""
    return ArchivedPartition(
        partition,
        view.location,
        view.position,
        format_time(view.reported_ms) if view.reported_ms else None,
        view.required,
        view.lag,
        round(view.lag_ms / 1000, 3),
    )


def _partition(name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) <= 7) or int(name) > PARTITIONS_MAX:
        raise BadRequest(f"positions: {name[:40]!r} is no partition")
    return int(name)
