"""GET /admin/audit: what was done and what was denied, in the order in which it was stored."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

import msgspec
from aiohttp import web

from goqueue.wire.errors import BadRequest, Unavailable, UnknownTopic
from goqueue.wire.ids import AUDIT_TOPIC, OFFSET_MAX
from goqueue.wire.types import Offset
from node.api.auth.audit import OUTCOMES, AuditRecord
from node.api.records import Slice
from node.api.times import parse_time_ms
from node.http.messages.render import MessageView, Room
from node.http.messages.visible import see
from node.http.request.answers import PAGE_BYTES_MIN, PAGE_TIMES, page_room, told
from node.http.request.call import Call, answer

RECORDS_DEFAULT, RECORDS_MAX = 100, 1000
SCANNED_MAX = 5000
"""Records that one answer looks at: those that are asked for may be rare."""
PAGE = 1000
_RECORD = msgspec.json.Decoder(AuditRecord)


class StoredRecord(AuditRecord, kw_only=True):
    """A record and where it stands."""

    offset: int


class AuditAnswer(msgspec.Struct):
    """Records, oldest first. `next` is the offset to go on from, `end` where the log ends; `stale`
    where no leader has confirmed that."""

    records: list[StoredRecord]
    next: int
    end: int
    stale: bool = False


async def read(call: Call) -> web.Response:
    """From `offset` or `from_time` on; else the last ones, of 5,000 where only some are wanted.
    `wait` waits for one."""
    limit = call.query_int("limit", RECORDS_DEFAULT, 1, RECORDS_MAX)
    outcome = call.query.get("outcome", "")
    if outcome and outcome not in OUTCOMES:
        raise BadRequest(f"outcome: {outcome[:40]!r} is none of {', '.join(OUTCOMES)}")
    wanted = {
        "who": call.query.get("key", ""),
        "action": call.query.get("action", ""),
        "outcome": outcome,
    }
    try:
        return await told(call, await _find(call, {k: v for k, v in wanted.items() if v}, limit))
    except UnknownTopic:  # nothing has been recorded yet
        await asyncio.sleep(min(call.query_wait_s(), 1.0))
        return answer(AuditAnswer([], 0, 0))


async def _find(call: Call, wanted: dict[str, str], limit: int) -> AuditAnswer:
    """The first that are wanted from a given place on, else the last."""
    at = await _given_start(call)
    is_tail = at is None
    if at is None:
        at = await _before_end(call, SCANNED_MAX if wanted else limit)
    found: deque[StoredRecord] = deque(maxlen=limit)
    wait_s, scanned, end, stale = call.query_wait_s(), 0, at, False
    while scanned < SCANNED_MAX:
        views, page = await _page(call, at, wait_s if not scanned else 0.0)
        end, stale = page.end_offset, page.stale
        for view in views:
            at = view.offset + 1
            record = _record(view)
            if record and all(getattr(record, name) == text for name, text in wanted.items()):
                found.append(record)
                if len(found) == limit and not is_tail:
                    return AuditAnswer(list(found), at, end, stale)
        at = max(at, page.next_offset)
        scanned += max(1, len(views))
        if at >= end or stale:
            break
    return AuditAnswer(list(found), at, end, stale)


async def _given_start(call: Call) -> int | None:
    """Raises BadRequest."""
    if "offset" in call.query:
        return call.query_int("offset", 0, 0, OFFSET_MAX)
    if text := call.query.get("from_time"):
        return await call.broker.records.offset_at(AUDIT_TOPIC, 0, parse_time_ms(text, "from_time"))
    return None


async def _before_end(call: Call, count: int) -> int:
    """So many records before the end. Raises Unavailable."""
    ends = await call.broker.records.end_offsets(AUDIT_TOPIC)
    if 0 not in ends:
        raise Unavailable("the leader of the audit log does not answer")
    earliest, end = ends[0]
    return max(earliest, end - count)


async def _page(call: Call, at: int, wait_s: float) -> tuple[list[MessageView], Slice]:
    """Stored records from there, all those of a slice."""
    bytes_max = PAGE_BYTES_MIN if wait_s else call.limits.read_bytes_max
    with await page_room(call, bytes_max) as held:
        found = await call.broker.records.read(
            AUDIT_TOPIC,
            0,
            Offset(at),
            max_records=PAGE,
            max_bytes=held.size // PAGE_TIMES,
            wait_s=wait_s,
        )
        held.grow(sum(len(stored.batch) for stored in found.batches))
        room = Room(call.limits.read_bytes_max, held)
        seen = await see(found, at, PAGE, room, skip_pending=False)
    return seen.views, replace(found, next_offset=Offset(seen.following))


def _record(view: MessageView) -> StoredRecord | None:
    """None for what a newer version has written in another way."""
    try:
        record = _RECORD.decode(view.value or "")
    except msgspec.DecodeError:
        return None
    return StoredRecord(**msgspec.structs.asdict(record), offset=view.offset)
