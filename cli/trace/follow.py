"""`goqueue-cli trace ID --follow`: events as they come, whoever leads meanwhile."""

from __future__ import annotations

import asyncio
import json

from cli.output.terminal import note
from cli.run.session import Json, Session
from cli.trace.tree import event_line, print_end, print_head
from goqueue.errors import GoQueueError

LOOK_S = 0.3
TOLD_AGAIN_S = 10.0
"""An outage is told once in a while, and waited out."""
LASTING = "RETAINED"
"""Always the last, and no event of now: it is told in the end."""
ENDS = frozenset({"ACKNOWLEDGED", "DEAD_LETTERED", "PURGED", "SKIPPED"})
BEGINS_AGAIN = frozenset({"REDRIVEN", "REPLAYED"})
ENDS_FOR_ALL = frozenset({"CANCELLED", "EXPIRED"})


async def follow(session: Session, path: str, id: str, group: str | None) -> None:
    """Print each event once, until the group has settled the message; for ever without a group."""
    told: set[str] = set()
    is_table = session.given.output not in ("json", "yaml")
    while True:
        trace = await _patiently(session, path)
        if is_table and not told:
            print_head(session, trace)
        for event in trace["events"]:
            name = _identity(event)
            if name in told or event["event_type"] == LASTING:
                continue
            told.add(name)
            if is_table:
                session.output.line(event_line(event))
            else:
                session.output.record_line({"id": id, **event})
        if group is not None and is_settled(trace["events"], group):
            if is_table:
                print_end(session, trace)
            return
        await asyncio.sleep(LOOK_S)


def is_settled(events: list[Json], group: str) -> bool:
    """Whether the group is done with the message, as its events tell."""
    settled = False
    for event in events:
        kind, told = event["event_type"], event.get("attributes", {})
        if kind in ENDS_FOR_ALL:
            settled = True
        elif told.get("group") == group and (kind in ENDS or kind in BEGINS_AGAIN):
            settled = kind in ENDS
    return settled


def _identity(event: Json) -> str:
    """Replicas are told of again as more of them have the message: that is one event."""
    if event["event_type"] == "REPLICATED":
        return "REPLICATED"
    return json.dumps(event, sort_keys=True)


async def _patiently(session: Session, path: str) -> Json:
    """The timeline, once somebody answers; what can't pass is raised."""
    loop = asyncio.get_running_loop()
    quiet_until_s = loop.time()
    while True:
        try:
            return await session.get(path)
        except GoQueueError as error:
            if not error.retriable and error.code != "connection_failed":
                raise
            if loop.time() >= quiet_until_s:
                note(f"{error.message or error.code}; trying again")
                quiet_until_s = loop.time() + TOLD_AGAIN_S
        await asyncio.sleep(LOOK_S)
