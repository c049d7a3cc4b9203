"""`goqueue-cli ack`, `nack`, `reject`, `extend`: settle what `consume --no-ack` received."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli.output.errors import explain, print_report
from cli.run.options import command, span
from cli.run.session import Json, Session
from goqueue.errors import GoQueueError

Receipts = Annotated[
    list[str], typer.Argument(metavar="RECEIPT", help="From `consume --group G --no-ack`.")
]
Reason = Annotated[
    str | None, typer.Option("--reason", "-r", help="The reason, kept in the message's history.")
]
_ENDS = {
    "halted": "is not dead: it comes again when its halted group is resumed",
    "parked": "is not dead: it comes again when its parked key is released",
}
_DASHED = re.compile(r"-[\w-]{40,}", re.ASCII)
_ESCAPE = "\0"


class Position(StrEnum):
    """Where a message comes again."""

    front = "front"
    back = "back"


class ReceiptCommand(TyperCommand):
    """Takes receipts as they are: one may begin with a dash, and is no option then."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(
            ctx, [_ESCAPE + word if _DASHED.fullmatch(word) else word for word in args]
        )


async def ack(session: Session, receipts: Receipts) -> None:
    """Say that messages are done: their group never gets them again."""
    await _each(session, "ack", receipts, {}, lambda answer: f"Acknowledged {_id(answer)}")


async def nack(
    session: Session,
    receipts: Receipts,
    reason: Reason = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay", "-d", help="Wait before redelivery, such as 30s (the group's backoff)."
        ),
    ] = None,
    position: Annotated[
        Position | None,
        typer.Option(help="Where it returns to: the front of its lane (the default), or the back."),
    ] = None,
) -> None:
    """Say that messages failed: they come again, or are dead after the group's last attempt."""
    body = {
        "reason": reason,
        "delay": None if delay is None else span("--delay", delay),
        "position": None if position is None else position.value,
    }

    def text(answer: Json) -> str:
        tries = f"attempt {answer['delivery_count']} failed"
        if answer["state"] != "requeued":
            return f"{end_text(answer)} ({tries})"
        when = f" from {answer['next_visible_at']} on" if answer.get("next_visible_at") else ""
        return f"{_id(answer)} comes again{when} ({tries})"

    await _each(session, "nack", receipts, body, text)


async def reject(session: Session, receipts: Receipts, reason: Reason = None) -> None:
    """Say that messages can't succeed: they are dead at once. `dlq list` shows them."""
    await _each(session, "reject", receipts, {"reason": reason}, end_text)


async def extend(
    session: Session,
    receipts: Receipts,
    visibility: Annotated[
        str,
        typer.Option("--visibility", "-v", help="How long the lease lasts from now, such as 2m."),
    ],
) -> None:
    """Keep messages longer: nobody else gets them until this much later."""
    body = {"timeout": span("--visibility", visibility)}
    await _each(
        session,
        "visibility",
        receipts,
        body,
        lambda answer: f"{_id(answer)} is held until {answer['new_deadline']}",
    )


async def _each(
    session: Session,
    verb: str,
    receipts: list[str],
    body: Json,
    text: Callable[[Json], str],
) -> None:
    """All receipts get their turn; the first error's exit code is the command's."""
    exit_code = 0
    async with session:
        for receipt in (text.removeprefix(_ESCAPE) for text in receipts):
            given = {name: value for name, value in body.items() if value is not None}
            try:
                answer = await session.request(
                    "POST", f"/v1/messages/{verb}", body={"receipt_handle": receipt, **given}
                )
            except GoQueueError as error:
                if len(receipts) == 1:
                    raise
                report = explain(error)
                assert report is not None
                print_report(report)
                exit_code = exit_code or report.exit_code
            else:
                session.output.success(text(answer), answer)
    if exit_code:
        raise typer.Exit(exit_code)


def end_text(answer: Json) -> str:
    """What became of a message that has failed for good."""
    what = _ENDS.get(answer.get("state", "dead"), "is dead")
    return f"{_id(answer)} {what}"


def _id(answer: Json) -> str:
    return f"{answer['topic']}:{answer['partition']}:{answer['offset']}"


def register(app: typer.Typer) -> None:
    for name, function in (("ack", ack), ("nack", nack), ("reject", reject), ("extend", extend)):
        command(app, name, cls=ReceiptCommand)(function)
