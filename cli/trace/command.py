"""`goqueue-cli trace`: where a message is, and what happened to it."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from cli.output.errors import EXIT_NOT_FOUND, EXIT_UNAVAILABLE, EXIT_USAGE, CliError
from cli.output.formats import Column, Format
from cli.output.terminal import warn
from cli.run.options import command
from cli.run.session import Json, Session
from cli.trace import events as trace_events
from cli.trace import search as trace_search
from cli.trace.default_command import DefaultGroup
from cli.trace.follow import follow
from cli.trace.search import print_found
from cli.trace.tree import details_text, print_tree
from cli.trace.why import print_why
from goqueue.errors import BadRequest
from goqueue.transport.http import join
from goqueue.wire.ids import MessageId

ALIKE_MAX = 100
_HEX = frozenset("0123456789abcdefABCDEF")
_TRACE_ID_CHARACTERS = 32

app = typer.Typer(
    cls=DefaultGroup,
    help="Where a message is, and what happened to it. `trace ID` is `trace show ID`; "
    "`trace -- ID` is for an id that is named like a verb.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
trace_search.register(app)
trace_events.register(app)


@command(app, "show")
async def show(
    session: Session,
    message: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="TOPIC:PARTITION:OFFSET, a W3C trace id, or its producer's message_id.",
            show_default=False,
        ),
    ],
    topic: Annotated[
        str | None, typer.Option(help="ID is its producer's message_id, in this topic only.")
    ] = None,
    following: Annotated[
        bool, typer.Option("--follow", "-f", help="Print events as they come.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Follow until this group has settled it.")
    ] = None,
) -> None:
    """Show what happened to a message: published, replicated, delivered, retained until when.

    Prints a tree, in a pipe too, unless -o says json or yaml. Of several messages with the id, it
    lists them. --follow goes on until the group has settled the message, or Ctrl-C.
    """
    if group is not None and not following:
        raise CliError("--group goes with --follow", exit_code=EXIT_USAGE)
    async with session:
        found = await _meant(session, message, topic)
        if found is None:
            return
        path = join("messages", found, "timeline")
        if following:
            await follow(session, path, found, group)
            return
        answer = await session.get(path)
    if answer.get("stale"):
        warn("stale: no leader answered in time, and more may have happened since; ask again")
    if session.given.output in (Format.json, Format.yaml):
        session.output.record(answer)
    else:  # a tree in a pipe too: it is what the command is for
        print_tree(session, answer)


@command(app, "why")
async def why(
    session: Session,
    message: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="TOPIC:PARTITION:OFFSET, a W3C trace id, or its producer's message_id.",
            show_default=False,
        ),
    ],
    topic: Annotated[
        str | None, typer.Option(help="ID is its producer's message_id, in this topic only.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="For this group only.")] = None,
) -> None:
    """Say why a message is not delivered, or not settled, now: for each group that has its topic.

    The first reason is the decisive one. Prints text, in a pipe too, unless -o says json or yaml.
    """
    async with session:
        found = await _meant(session, message, topic)
        if found is None:
            return
        answer = await session.get(join("messages", found, "why"), group=group)
    if session.given.output in (Format.json, Format.yaml):
        session.output.record(answer)
    else:
        print_why(session, answer)


@command(app, "get")
async def get(
    session: Session,
    trace_id: Annotated[
        str, typer.Argument(metavar="TRACE_ID", help="32 hex digits.", show_default=False)
    ],
) -> None:
    """Show a trace: all events of the messages that carry this W3C id, or of the one whose own
    trace id it is, as `trace list` shows it."""
    async with session:
        trace = await session.get(join("traces", trace_id))
    output = session.output

    def tell() -> None:
        output.fields(
            [
                ("Trace ID", trace["trace_id"]),
                ("Topic", trace["topic"]),
                ("Partition", trace["partition"]),
                ("Offset", trace["offset"]),
                ("Status", trace["status"]),
                ("Start", trace["start_time"]),
                ("End", trace["end_time"]),
                ("Duration", f"{trace['duration_ms']}ms"),
            ]
        )
        output.line()
        output.line("EVENTS:", style="bold")
        several = len(trace["messages"]) > 1
        output.table(_MANY if several else _EVENTS, trace["spans"])

    output.detail(trace, tell)


@command(app, "stats")
async def stats(session: Session) -> None:
    """Show how many messages can be traced, and what the index of their ids takes.

    Traces total counts messages that are stored; completed and error count acks and dead letters,
    one for each group: a message that two groups acked counts twice.
    """
    async with session:
        found = await session.get(join("traces", "stats"))

    def label(name: str) -> str:
        return name.replace("_", " ").capitalize() + _COUNTS.get(name, "")

    session.output.detail(
        found,
        lambda: session.output.fields([(label(name), value) for name, value in found.items()]),
    )


async def _meant(session: Session, text: str, topic: str | None) -> str | None:
    """The message's `topic:partition:offset`; None where several were listed. Raises `CliError`,
    and what the server refuses with."""
    if not text:
        raise CliError("the id is empty", hint=_ID_HINT, exit_code=EXIT_USAGE)
    if topic is not None:
        found = await session.get(join("messages"), topic=topic, message_id=text, limit=ALIKE_MAX)
        if not found["messages"]:  # why not is for the server to say
            return str((await session.get(join("messages", text, "timeline"), topic=topic))["id"])
        return _only(session, found)
    if len(text) == _TRACE_ID_CHARACTERS and _HEX.issuperset(text):
        found = await session.get(join("messages"), trace_id=text, limit=ALIKE_MAX)
        if found["messages"]:
            return _only(session, found)
        trace = await session.get(join("traces", text))
        return str(trace["messages"][0])
    try:
        return str(MessageId.parse(text))
    except BadRequest as error:
        return await _by_message_id(session, text, error)


async def _by_message_id(session: Session, text: str, not_a_position: BadRequest) -> str | None:
    """As `_meant`, of a producer's message id in any topic, which may have colons, too."""
    found = await session.get(join("messages"), message_id=text, limit=ALIKE_MAX)
    if found["messages"]:
        return _only(session, found)
    if found.get("not_searched"):
        text = f"not everything could be searched for the id {text}"
        raise CliError(text, exit_code=EXIT_UNAVAILABLE)
    if _ALMOST_A_POSITION.fullmatch(text):
        raise CliError(not_a_position.message, hint=_ID_HINT, exit_code=EXIT_USAGE)
    raise CliError(f"no message has the id {text}", hint=_ID_HINT, exit_code=EXIT_NOT_FOUND)


def _only(session: Session, found: Json) -> str | None:
    messages = found["messages"]
    if len(messages) == 1:
        return str(messages[0]["id"])
    print_found(session, found)
    return None


_ID_HINT = "an id is topic:partition:offset, a trace id, or the message_id of its producer"
_ALMOST_A_POSITION = re.compile(r"[^:]*:(-?\d+:[^:]*|:-?\d+)")
"""What can only be meant as `topic:partition:offset`, whichever part of it is wrong or missing."""
_COUNTS = {
    "traces_total": " (messages stored)",
    "traces_completed": " (acks, by group)",
    "traces_error": " (dead letters, by group)",
}
_EVENTS = (
    Column("TYPE", "event_type"),
    Column("TIMESTAMP", "timestamp"),
    Column("DETAILS", lambda span: details_text(span["attributes"]), whole=True),
)
_MANY = (
    Column("MESSAGE", lambda s: f"{s['topic']}:{s['partition']}:{s['offset']}", whole=True),
    *_EVENTS,
)
