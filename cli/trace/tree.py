"""One message's life as a tree, for people."""

from __future__ import annotations

from datetime import UTC, datetime

from cli.output.terminal import visible
from cli.run.session import Json, Session

EVENT_WIDTH = 12
INEXACT = "Some of its past is not known any more: events may be missing."
EPOCH_MS_MIN = 10**11  # a time, not a duration: 1973 or later


def print_tree(session: Session, trace: Json) -> None:
    """The tree of the README: facts, timeline, attempts, latency."""
    print_head(session, trace)
    for event in trace["events"][:-1]:
        session.output.line(event_line(event))
    print_end(session, trace)


def print_head(session: Session, trace: Json) -> None:
    """Which message it is, by its producer's id if it has one."""
    line = session.output.line
    line(f"Message: {visible(trace.get('message_id') or trace['id'])}")
    line(f"Topic: {trace['topic']}")
    line(f"Partition: {trace['partition']}")
    line(f"Offset: {trace['offset']}")
    line()
    line("Timeline:")


def print_end(session: Session, trace: Json) -> None:
    """The last event, and what it adds up to."""
    line, events = session.output.line, trace["events"]
    if events:
        line(event_line(events[-1], "└─"))
    line()
    line(f"Delivery Attempts: {trace.get('delivery_attempts', 0)}")
    line(f"Total Latency: {latency_text(events)}")
    if not trace.get("exact", True):
        line()
        line(INEXACT)


def event_line(event: Json, branch: str = "├─") -> str:
    name = f"{event['event_type']:<{EVENT_WIDTH}}"
    facts = details_text(event.get("attributes", {}))
    return f"{branch} {event['timestamp']}  {name}  {facts}".rstrip()


def details_text(attributes: Json) -> str:
    """`consumer=processor-1 attempt=1`; `member` is the consumer's name in older answers."""
    shown = {name: value for name, value in attributes.items() if name != "member"}
    if "consumer" not in attributes:
        shown = attributes
    return visible(" ".join(fact_text(*fact) for fact in shown.items()))


def fact_text(name: str, value: object) -> str:
    """`nodes=[node-1, node-2]`, `expires=2025-01-22T10:30:00.000Z`, as the README shows them."""
    if isinstance(value, list | tuple):
        return f"{name}=[{', '.join(str(item) for item in value)}]"
    if name.endswith("_ms") and isinstance(value, int) and value > EPOCH_MS_MIN:
        return f"{name.removesuffix('_ms')}={_format_ms(value)}"
    return f"{name}={value}"


def latency_text(events: list[Json]) -> str:
    """Publish to final ack, or to replication while nothing has settled the message."""
    told = {event["event_type"]: event for event in events}
    times = {name: _time(event["timestamp"]) for name, event in told.items()}
    began = times.get("PUBLISHED")
    for name, meaning in (
        ("ACKNOWLEDGED", "final ack"),
        ("REJECTED", "rejection"),
        ("DEAD_LETTERED", "dead letter"),
        ("REPLICATED", "replicated"),
    ):
        known = told.get(name, {}).get("attributes", {}).get("time")
        if began is not None and name in times and known != "not_recorded":
            seconds = (times[name] - began).total_seconds()
            bound = "at most " * (known == "at_latest")
            return f"{bound}{seconds:.3f}s (publish to {meaning})"
    return "-"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _format_ms(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
