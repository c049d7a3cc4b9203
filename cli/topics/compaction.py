"""`goqueue-cli topic compact`: of each key the last value stays; what goes, and when."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output.formats import Column, bytes_text, duration_text
from cli.run.dry_runs import answering
from cli.run.options import command
from cli.run.session import Json, Session
from goqueue.transport.http import join

COLUMNS = (
    Column("PARTITION", "partition"),
    Column("STATE", "state"),
    Column("NOT COMPACTED", lambda row: bytes_text(row["dirty_bytes"])),
    Column("COMPACTED", lambda row: bytes_text(row["clean_bytes"])),
    Column("DIRTY RATIO", lambda row: f"{row['dirty_ratio']:.2f}"),
    Column("KEPT", "kept", wide=True),
    Column("RUNS", "runs", wide=True),
    Column("DROPPED", "dropped", wide=True),
    Column("LAST RUN", "last_run"),
)
RUN_COLUMNS = (
    Column("PARTITION", "partition"),
    Column("OUTCOME", "outcome"),
    Column("MESSAGES GONE", "run_dropped"),
    Column("KEPT", "run_kept"),
    Column("NULL VALUES", "run_tombstones"),
    Column("BYTES BEFORE", lambda row: bytes_text(row["bytes_before"])),
    Column("BYTES AFTER", lambda row: bytes_text(row["bytes_after"])),
)
Cleanup = Annotated[
    str | None,
    typer.Option(help="delete (by age and size), compact (each key's last value stays), or both."),
]
DeleteRetention = Annotated[
    str | None, typer.Option(help="How long compaction keeps a null value, such as 7d (1d).")
]
MinCompactionLag = Annotated[
    str | None, typer.Option(help="Do not compact messages younger than this, such as 1h (0s).")
]
MinCleanableRatio = Annotated[
    float | None, typer.Option(min=0, max=1, help="Compact when this share is not compacted (0.5).")
]


def register(app: typer.Typer) -> None:
    command(app, "compact")(compact)


async def compact(
    session: Session,
    name: Annotated[str, typer.Argument(help="The topic's name.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Only show the state; start nothing.")
    ] = False,
) -> None:
    """Compact a topic now: of each key the last value stays, at its offset.

    Leaders do that by themselves once enough is not compacted. The newest segment of a partition is
    left alone. A run that takes long goes on by itself: --status tells.
    """
    async with session:
        path = join("topics", name, "compaction")
        if status:
            found = await session.get(path)
        else:
            with answering(session, dry_run=dry_run):
                found = await session.request("POST", path, body={"dry_run": dry_run})
                _show(session, found, RUN_COLUMNS)
            return
    _show(session, found, COLUMNS)


def _show(session: Session, found: Json, columns: tuple[Column, ...]) -> None:
    session.output.detail(found, lambda: session.output.table(columns, found["partitions"]))


def cleanup_text(config: Json) -> str:
    """The setting as `describe` shows it."""
    if config["cleanup"] == "delete":
        return "delete"
    nulls = duration_text(config["delete_retention_ms"])
    return f"{config['cleanup']} (null values are kept {nulls})"
