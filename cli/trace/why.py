"""Why a message is not delivered, or not settled, as people read it."""

from __future__ import annotations

from cli.output.terminal import visible
from cli.run.session import Json, Session


def print_why(session: Session, answer: Json) -> None:
    """Each group with its reasons, the decisive one first, and the estimate."""
    line = session.output.line
    line(f"Message: {answer['id']}")
    if answer["message_id"]:
        line(f"Message ID: {visible(answer['message_id'])}")
    if answer["as_of"]:
        line(f"As of: {answer['as_of']}, {_source(answer)}")
    if not answer["groups"]:
        line()
        line(f"State: {answer['state']}")
        _print_reasons(session, answer["reasons"])
    for group in answer["groups"]:
        line()
        attempts = group["attempts"]
        told = f", {attempts} attempt{'s' * (attempts != 1)}" if attempts else ""
        line(f"Group {group['group']}: {group['state']}{told}")
        _print_reasons(session, group["reasons"])
        if group["deliverable"] and group["eta"] is None:
            line("  Next: a receive gets it")
        elif group["eta_text"]:
            line(f"  Next: {group['eta_text']}")
    if answer["more"]:
        line()
        line(f"{answer['more']} more groups have the topic: ask with --group")


def _print_reasons(session: Session, reasons: list[Json]) -> None:
    for number, reason in enumerate(reasons, 1):
        branch = "└─" if number == len(reasons) else "├─"
        session.output.line(f"  {branch} {reason['code']}: {visible(reason['text'])}")


def _source(answer: Json) -> str:
    leader = answer["leader"]
    return f"the partition's leader is {leader}" if leader else "as a replica last knew"
