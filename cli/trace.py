"""`goqueue-cli trace`: one message's life as a tree."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from cli.errors import EXIT_USAGE, CliError
from cli.options import command
from cli.session import Json, Session, path
from goqueue.wire.errors import GoQueueError
from goqueue.wire.ids import MessageId

EVENT_WIDTH = 12


async def trace(
    session: Session,
    message: Annotated[
        str, typer.Argument(metavar="ID", help="TOPIC:PARTITION:OFFSET.", show_default=False)
    ],
) -> None:
    """Show what happened to a message: published, replicated, delivered, retained until when."""
    try:
        found = MessageId.parse(message)
    except GoQueueError as error:
        raise CliError(
            error.message, hint="an id is topic:partition:offset", exit_code=EXIT_USAGE
        ) from None
    async with session:
        answer = await session.get(path("messages", found, "timeline"))
    session.output.detail(answer, lambda: print_tree(session, answer))


def print_tree(session: Session, trace: Json) -> None:
    """The tree of the README: facts, timeline, attempts, latency."""
    line = session.output.line
    line(f"Message: {trace['id']}")
    line(f"Topic: {trace['topic']}")
    line(f"Partition: {trace['partition']}")
    line(f"Offset: {trace['offset']}")
    line()
    line("Timeline:")
    events = trace["events"]
    for number, event in enumerate(events, 1):
        branch = "└─" if number == len(events) else "├─"
        facts = " ".join(f"{k}={fact_text(v)}" for k, v in event.get("attributes", {}).items())
        name = f"{event['event_type']:<{EVENT_WIDTH}}"
        line(f"{branch} {event['timestamp']}  {name}  {facts}".rstrip())
    line()
    line(f"Delivery Attempts: {trace.get('delivery_attempts', 0)}")
    line(f"Total Latency: {latency_text(events)}")


def fact_text(value: object) -> str:
    """`[node-1, node-2]` for lists, as the README shows them."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(str(item) for item in value) + "]"
    return str(value)


def latency_text(events: list[Json]) -> str:
    """Publish to final ack, or to replication while nothing has settled the message."""
    times = {event["event_type"]: _time(event["timestamp"]) for event in events}
    began = times.get("PUBLISHED")
    for name, meaning in (
        ("ACKNOWLEDGED", "final ack"),
        ("REJECTED", "rejection"),
        ("DEAD", "dead letter"),
        ("REPLICATED", "replicated"),
    ):
        if began is not None and name in times:
            seconds = (times[name] - began).total_seconds()
            return f"{seconds:.3f}s (publish to {meaning})"
    return "-"


def register(app: typer.Typer) -> None:
    command(app, "trace")(trace)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
