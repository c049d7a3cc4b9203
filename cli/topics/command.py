"""`goqueue-cli topic`: create, list, describe, alter, delete; see `topic_scaling` too."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, Row, bytes_text, cell_text, count_text, duration_text
from cli.output.stale import STALE, or_stale, warn_of_stale
from cli.output.terminal import note, warn
from cli.run.dry_runs import answering
from cli.run.options import command, span
from cli.run.session import Json, Session
from cli.topics import archive as topic_archive
from cli.topics import compaction
from cli.topics import scaling as topic_scaling
from cli.topics.archive import Compression, RequireArchive, archive_text
from cli.topics.compaction import (
    Cleanup,
    DeleteRetention,
    MinCleanableRatio,
    MinCompactionLag,
    cleanup_text,
)
from goqueue.transport.http import join

DESCRIBES_AT_ONCE_MAX = 16

app = typer.Typer(
    help="Topics: partitioned, replicated logs.", no_args_is_help=True, rich_markup_mode="markdown"
)

Name = Annotated[str, typer.Argument(help="The topic's name.", show_default=False)]
RetentionHours = Annotated[
    int | None,
    typer.Option("--retention-hours", "-r", min=-1, help="Hours to keep messages; -1: for ever."),
]
RetentionBytes = Annotated[
    int | None,
    typer.Option(min=-1, help="Bytes to keep in a partition; -1: no limit."),
]
Durability = Annotated[
    str | None,
    typer.Option(
        help="majority: an ack means fsynced on a majority; relaxed: written, synced soon."
    ),
]
FlushInterval = Annotated[
    int | None, typer.Option("--flush-interval-ms", min=1, help="When relaxed topics sync.")
]
MaxMessageBytes = Annotated[
    int | None, typer.Option(min=1, help="Largest message: key, value and headers.")
]
Lanes = Annotated[int | None, typer.Option(help="Priority levels: 5, or 3 (critical is high too).")]
TimeToLive = Annotated[
    str | None, typer.Option(help="Stop delivering a message after this, as 1h; 0s: never (0s).")
]
DelayMax = Annotated[str | None, typer.Option(help="The longest delay, as 30d (7d).")]
DelayedMax = Annotated[
    int | None, typer.Option(min=0, help="Most delayed messages in a partition (100000).")
]
DedupWindow = Annotated[
    str | None, typer.Option(help="How long repeated message ids are found; 0s: never (5m).")
]
DedupMax = Annotated[
    int | None, typer.Option(min=0, help="Most message ids known per partition (1000000).")
]
DedupProducersBytes = Annotated[
    int | None,
    typer.Option(min=0, help="Bytes per partition for idempotent producers (33554432)."),
]
DedupRequestsBytes = Annotated[
    int | None,
    typer.Option(min=0, help="Bytes per partition to detect repeated requests (25165824)."),
]
DeadRetention = Annotated[
    str | None, typer.Option(help="How long dead letters are kept, as 30d; -1: for ever (14d).")
]
CopiesAltered = Annotated[
    int | None,
    typer.Option(min=1, help="Replicas per partition; the cluster adds or removes them."),
]
WaitForCopies = Annotated[
    bool, typer.Option("--wait", "-w", help="Wait until there are that many replicas.")
]
Label = Annotated[
    list[str] | None, typer.Option("--label", "-l", metavar="NAME=VALUE", help="A label; repeat.")
]

NAME_COLUMNS = (
    Column("NAME", "name"),
    Column("PARTITIONS", "partitions", wide=True),
    Column("MESSAGES", or_stale("total_messages"), wide=True),
    Column("SIZE", lambda row: bytes_text(int(row["total_size_bytes"])), wide=True),
)
PARTITION_COLUMNS = (
    Column("PARTITION", "partition"),
    Column("LEADER", "leader"),
    Column("REPLICAS", "replicas"),
    Column("IN SYNC", "isr"),
    Column("EARLIEST", "earliest"),
    Column("LATEST", lambda row: row["next"] - 1 if row["messages"] else None),
    Column("MESSAGES", or_stale("messages")),
    Column("SIZE", lambda row: bytes_text(int(row.get("size_bytes") or 0)), wide=True),
    Column("VOTERS", "voters", wide=True),
    Column("LEARNING", "learners", wide=True),
)


@command(app, "create")
async def create(
    session: Session,
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many (6).")
    ] = None,
    retention_hours: RetentionHours = None,
    retention_bytes: RetentionBytes = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Replicas per partition (3, or the number of nodes).")
    ] = None,
    durability: Durability = None,
    flush_interval_ms: FlushInterval = None,
    max_message_bytes: MaxMessageBytes = None,
    lanes: Lanes = None,
    ttl: TimeToLive = None,
    delay_max: DelayMax = None,
    delayed_max: DelayedMax = None,
    dedup_window: DedupWindow = None,
    dedup_max: DedupMax = None,
    dedup_producers_bytes: DedupProducersBytes = None,
    dedup_requests_bytes: DedupRequestsBytes = None,
    dead_retention: DeadRetention = None,
    cleanup: Cleanup = None,
    delete_retention: DeleteRetention = None,
    min_compaction_lag: MinCompactionLag = None,
    min_cleanable_ratio: MinCleanableRatio = None,
    require_archive: RequireArchive = None,
    compression: Compression = None,
    label: Label = None,
) -> None:
    """Create a topic; answers when its partitions have leaders."""
    body = _given(
        name=name,
        num_partitions=partitions,
        retention_hours=retention_hours,
        retention_bytes=retention_bytes,
        replication_factor=replication_factor,
        durability=durability,
        flush_interval_ms=flush_interval_ms,
        max_message_bytes=max_message_bytes,
        lanes=lanes,
        ttl=_span("--ttl", ttl),
        delay_max=_span("--delay-max", delay_max),
        delayed_max=delayed_max,
        dedup_window=_span("--dedup-window", dedup_window),
        dedup_max=dedup_max,
        dedup_producers_bytes=dedup_producers_bytes,
        dedup_requests_bytes=dedup_requests_bytes,
        **_dead_retention(dead_retention),
        cleanup=cleanup,
        delete_retention=_span("--delete-retention", delete_retention),
        min_compaction_lag=_span("--min-compaction-lag", min_compaction_lag),
        min_cleanable_ratio=min_cleanable_ratio,
        **_given(require_archive=require_archive, compression=compression),
        labels=_labels(label),
    )
    async with session:
        answer = await session.request("POST", "/v1/topics", body=body)
    _warnings(answer)
    made = count_text(int(answer["partitions"]), "partition")
    session.output.success(f"Created topic {name} with {made}", answer)


@command(app, "list")
async def list_topics(session: Session) -> None:
    """List the topics; `-o wide` adds their sizes."""
    async with session:
        names = (await session.get("/v1/topics"))["topics"]
        rows: list[Row] = [{"name": name} for name in names]
        if session.output.is_wide:
            rows = await _describe_all(session, names)
    warn_of_stale([str(row["name"]) for row in rows if row.get("stale")])
    session.output.rows(NAME_COLUMNS, rows, empty="No topics.")


@command(app, "describe")
async def describe(session: Session, name: Name) -> None:
    """Show a topic's configuration, and each partition's leader, replicas and offsets."""
    async with session:
        topic = await session.get(join("topics", name))

    def show() -> None:
        session.output.fields(_fields(topic))
        session.output.line()
        session.output.line("PARTITION OFFSETS:", style="bold")
        session.output.table(PARTITION_COLUMNS, topic["partition_details"])

    if topic.get("stale"):
        warn_of_stale([name])
    session.output.detail(topic, show)


@command(app, "alter")
async def alter(
    session: Session,
    name: Name,
    retention_hours: RetentionHours = None,
    retention_bytes: RetentionBytes = None,
    durability: Durability = None,
    flush_interval_ms: FlushInterval = None,
    max_message_bytes: MaxMessageBytes = None,
    lanes: Lanes = None,
    ttl: TimeToLive = None,
    delay_max: DelayMax = None,
    delayed_max: DelayedMax = None,
    dedup_window: DedupWindow = None,
    dedup_max: DedupMax = None,
    dedup_producers_bytes: DedupProducersBytes = None,
    dedup_requests_bytes: DedupRequestsBytes = None,
    dead_retention: DeadRetention = None,
    cleanup: Cleanup = None,
    delete_retention: DeleteRetention = None,
    min_compaction_lag: MinCompactionLag = None,
    min_cleanable_ratio: MinCleanableRatio = None,
    require_archive: RequireArchive = None,
    compression: Compression = None,
    label: Label = None,
    replication_factor: CopiesAltered = None,
    wait: WaitForCopies = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.")] = False,
) -> None:
    """Change a topic's configuration; what isn't named stays."""
    changes = _given(
        retention_hours=retention_hours,
        retention_bytes=retention_bytes,
        durability=durability,
        flush_interval_ms=flush_interval_ms,
        max_message_bytes=max_message_bytes,
        lanes=lanes,
        ttl=_span("--ttl", ttl),
        delay_max=_span("--delay-max", delay_max),
        delayed_max=delayed_max,
        dedup_window=_span("--dedup-window", dedup_window),
        dedup_max=dedup_max,
        dedup_producers_bytes=dedup_producers_bytes,
        dedup_requests_bytes=dedup_requests_bytes,
        **_dead_retention(dead_retention),
        cleanup=cleanup,
        delete_retention=_span("--delete-retention", delete_retention),
        min_compaction_lag=_span("--min-compaction-lag", min_compaction_lag),
        min_cleanable_ratio=min_cleanable_ratio,
        **_given(require_archive=require_archive, compression=compression),
        labels=_labels(label),
        replication_factor=replication_factor,
    )
    if not changes:
        raise CliError("nothing to change was named", hint="see --help", exit_code=EXIT_USAGE)
    text = ", ".join(f"{key}={_shown(value)}" for key, value in changes.items())
    async with session:
        if dry_run:
            with answering(session, dry_run=True):
                await _check_changes(session, name, replication_factor)
                would = {"name": name, "dry_run": True, **changes}
                session.output.success(f"Would alter topic {name}: {text}", would)
            return
        answer = await session.request("PATCH", join("topics", name), body=changes)
        _warnings(answer)
        session.output.success(f"Altered topic {name}: {text}", answer)
        if wait:
            await topic_scaling.follow_to_the_end(session, name)
        elif replication_factor is not None and session.output.is_table:
            note(f"`goqueue-cli topic partitions {name}` shows its copies come and go.")


@command(app, "delete")
async def delete(
    session: Session,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", "--force", "-f", help="Don't ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing.")] = False,
) -> None:
    """Delete a topic and its messages, on every node."""
    async with session:
        if dry_run or not yes:
            topic = await session.get(join("topics", name))
            messages = count_text(int(topic["total_messages"]), "message")
            if dry_run:
                record = {"name": name, "dry_run": True, "total_messages": topic["total_messages"]}
                session.output.success(f"Would delete topic {name} with {messages}", record)
                return
            if not session.can_ask():
                raise CliError(
                    f"deleting topic {name} with {messages} needs --yes", exit_code=EXIT_USAGE
                )
            typer.confirm(f"Delete topic {name} with {messages}?", abort=True, err=True)
        answer = await session.request("DELETE", join("topics", name))
    session.output.success(f"Deleted topic {name}", answer)


topic_scaling.register(app)


compaction.register(app)


topic_archive.register(app)


async def _check_changes(session: Session, name: str, factor: int | None) -> None:
    await session.get(join("topics", name))
    if factor is not None:
        await topic_scaling.check_factor(session, factor)


async def _describe_all(session: Session, names: list[str]) -> list[Row]:
    gate = asyncio.Semaphore(DESCRIBES_AT_ONCE_MAX)

    async def one(name: str) -> Json:
        async with gate:
            return await session.get(join("topics", name))

    return list(await asyncio.gather(*(one(name) for name in names)))


def _fields(topic: Json) -> list[tuple[str, object]]:
    config = topic["config"]
    return [
        ("Name", topic["name"]),
        ("Partitions", topic["partitions"]),
        ("Total Messages", f"{topic['total_messages']}{STALE if topic.get('stale') else ''}"),
        ("Total Size", bytes_text(topic["total_size_bytes"])),
        ("Replication Factor", topic["replication_factor"]),
        ("Durability", _durability(config)),
        ("Retention", _retention(config)),
        ("Max Message", bytes_text(config["max_message_bytes"])),
        ("Lanes", config["lanes"]),
        ("Message TTL", duration_text(config["ttl_ms"]) if config["ttl_ms"] else "none"),
        ("Delays", _delays(config)),
        ("Message IDs", _message_ids(config)),
        ("Cleanup", cleanup_text(config)),
        ("Archive", archive_text(topic)),
        ("Compression", config.get("compression", "none")),
        ("Dead Letters", _kept(config["dead_retention_ms"])),
        ("Labels", config.get("labels")),
        ("ID", topic["id"]),
    ]


def _durability(config: Json) -> str:
    if config["durability"] == "relaxed":
        return f"relaxed (synced within {duration_text(config['flush_interval_ms'])})"
    return f"{config['durability']} (an ack means fsynced on a majority)"


def _delays(config: Json) -> str:
    longest = duration_text(config["delay_ms_max"])
    return f"up to {longest}, at most {config['delayed_max']} in a partition"


def _message_ids(config: Json) -> str:
    if not config["dedup_window_ms"]:
        return "not remembered"
    return f"known again for {duration_text(config['dedup_window_ms'])}"


def _kept(time_ms: int) -> str:
    return "kept for ever" if time_ms < 0 else f"kept {duration_text(time_ms)}"


def _retention(config: Json) -> str:
    time_ms, size = config["retention_ms"], config["retention_bytes"]
    kept = "for ever" if time_ms < 0 else duration_text(time_ms)
    return kept if size < 0 else f"{kept}, {bytes_text(size)} a partition"


def _given(**values: object) -> Json:
    return {key: value for key, value in values.items() if value is not None}


def _shown(value: object) -> str:
    if isinstance(value, str) and value.removesuffix("ms").isdigit():
        return duration_text(int(value.removesuffix("ms")))
    return cell_text(value)


def _span(option: str, text: str | None) -> str | None:
    return None if text is None else span(option, text)


def _dead_retention(text: str | None) -> Json:
    if text == "-1":
        return {"dead_retention_ms": -1}
    return {"dead_retention": _span("--dead-retention", text)}


def _labels(pairs: list[str] | None) -> dict[str, str] | None:
    if not pairs:
        return None
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CliError(f"--label takes NAME=VALUE, not {pair!r}", exit_code=EXIT_USAGE)
        labels[name] = value
    return labels


def _warnings(answer: Json) -> None:
    for text in answer.get("warnings") or ():
        warn(str(text))
