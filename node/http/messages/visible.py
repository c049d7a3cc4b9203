"""What of a read is visible: due, not expired, not cancelled; without losing what is not yet due.

A reader of the plain log sees every message, and its position is an offset. Once messages that are
not due are left out, an offset alone can't say both how far it has come and what it has not seen:
so a position never passes a delayed message by itself. A visible read ends before the first one
that is not due, and says until when in `blocked_until`; a long poll waits for that moment. Whoever
would rather have what comes behind it says `skip_pending`: then the answer names every message that
it passed, and when it is due, so that the reader may come back for it by its offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress

from goqueue.wire.batch import resolve_ms
from goqueue.wire.layout import HAS_DELIVER_AT, HAS_EXPIRES_AT
from node.api.records import Slice, Visibility
from node.http.messages.render import Cut, MessageView, Room, cut_slice, render
from node.http.text.pieces import Chunk


@dataclass(slots=True)
class Seen:
    """What an answer shows of one partition."""

    following: int
    """Where reading goes on."""
    runs: list[tuple[int, Chunk]] = field(default_factory=list[tuple[int, Chunk]])
    """(log time, some of its messages), in order."""
    blocked_until_ms: int | None = None
    """When the message at `following` is due."""
    pending: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(offset, when it is due) of the messages that were passed."""
    ended: bool = False
    """Whether there was no room for all."""

    @property
    def views(self) -> list[MessageView]:
        return [view for _, chunk in self.runs for view in chunk.rows]


async def see(found: Slice, offset: int, limit: int, room: Room, *, skip_pending: bool) -> Seen:
    """The rows at and after `offset` among the first `limit`, as many as there is room for; all of
    them, unless the slice tells what is visible. Raises OverBudget."""
    start = max(offset, found.log_start)
    cuts, following = cut_slice(found, start, limit)
    seen = Seen(following)
    visibility = found.visibility
    withdrawn = frozenset(visibility.withdrawn if visibility else ())
    for cut in cuts:
        shown: list[bool] | None = None
        if visibility is not None and is_mixed(cut, visibility, withdrawn):
            shown = judge(cut, visibility, withdrawn, seen, skip_pending=skip_pending)
            cut.last = cut.first + len(shown)
        chunks = await render(cut, room) if cut.last > cut.first else []
        count = sum(len(chunk.rows) for chunk in chunks)
        if count < cut.last - cut.first:
            _end_early(seen, cut.stored.base_offset + cut.first + count)
        if shown is not None:
            are_shown = iter(shown)
            chunks = [
                Chunk(list(compress(chunk.rows, are_shown)), chunk.weight) for chunk in chunks
            ]
        seen.runs += ((cut.stored.time_ms, chunk) for chunk in chunks)
        if seen.ended or seen.blocked_until_ms is not None:
            break
    return seen


def _end_early(seen: Seen, offset: int) -> None:
    """There is no room for the message at this offset, nor for those behind it."""
    seen.following, seen.blocked_until_ms, seen.ended = offset, None, True
    seen.pending = [(at, due_ms) for at, due_ms in seen.pending if at < offset]


def is_mixed(cut: Cut, visibility: Visibility, withdrawn: frozenset[int]) -> bool:
    """Whether any of these rows may be hidden."""
    timed = cut.batch.header.flags & (HAS_DELIVER_AT | HAS_EXPIRES_AT)
    return bool(timed or visibility.ttl_ms or withdrawn)


def judge(
    cut: Cut,
    visibility: Visibility,
    withdrawn: frozenset[int],
    seen: Seen,
    *,
    skip_pending: bool,
) -> list[bool]:
    """Whether each row is shown, up to the one that blocks the read, which `seen` then tells."""
    rows, time_ms, now_ms = slice(cut.first, cut.last), cut.stored.time_ms, visibility.time_ms
    default_ms = time_ms + visibility.ttl_ms if visibility.ttl_ms else None
    times = zip(cut.batch.deliver_at()[rows], cut.batch.expires_at()[rows], strict=True)
    shown: list[bool] = []
    for offset, (deliver_at, expires_at) in enumerate(times, cut.stored.base_offset + cut.first):
        end_ms = resolve_ms(expires_at, time_ms) or default_ms
        due_ms = resolve_ms(deliver_at, time_ms) or 0
        gone = offset in withdrawn or (end_ms is not None and end_ms <= now_ms)
        if not gone and due_ms > now_ms:
            if not skip_pending:
                seen.following, seen.blocked_until_ms = offset, due_ms
                break
            seen.pending.append((offset, due_ms))
        shown.append(not gone and due_ms <= now_ms)
    return shown
