"""`goqueue-pipeline restore`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from goqueue import AsyncClient, RetryPolicy
from goqueue.archive.arrow_store import ArrowStore
from goqueue.archive.reader import ArchivedTopic
from goqueue.errors import BadRequest, UnknownTopic
from goqueue.models.times import moment_ms
from goqueue.models.topics import Topic
from pipeline.archive.verbs import failing
from pipeline.broker_access import Access
from pipeline.options import OptionError, Options
from pipeline.restore import state as states
from pipeline.restore.plan import Found, Wanted, find
from pipeline.restore.rate import Rate
from pipeline.restore.run import Restore
from pipeline.restore.state import Plan, State

TOLD_EVERY_S = 2.0
EXIT_INTERRUPTED = 130
_OFFSETS = re.compile(r"(\d{1,19})?-(\d{1,19})?")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for."""

    archive: str
    topic: str
    target: str
    wanted: Wanted
    topic_id: str | None
    run: str | None
    states: str


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("restore")(restore)


def restore(
    archive: Annotated[
        str,
        typer.Option(
            "--archive",
            "--destination",
            help="Where the archive is: a folder, file://, s3://...",
            envvar="GOQUEUE_ARCHIVE",
        ),
    ],
    topic: Annotated[str, typer.Option(help="The topic whose messages are restored.")],
    to: Annotated[str | None, typer.Option(help="Into this topic; else the topic itself.")] = None,
    from_time: Annotated[str | None, typer.Option(help="Of log times from this one on.")] = None,
    to_time: Annotated[str | None, typer.Option(help="Of log times before this one.")] = None,
    offsets: Annotated[
        str | None, typer.Option(help="FIRST-LAST, both within; one may be left out.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    topic_id: Annotated[
        str | None, typer.Option(help="Of several topics of this name, the one with this id.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Records a second, at most.")
    ] = None,
    byte_rate: Annotated[int | None, typer.Option(min=1, help="Bytes a second, at most.")] = None,
    replay_id: Annotated[
        str | None,
        typer.Option(help="The run's name; else one that the same options give again."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Where the run's state is kept; else beside the archive."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be done.")
    ] = False,
    servers: Annotated[
        str | None, typer.Option(help="Nodes, comma-separated; else GOQUEUE_SERVER.")
    ] = None,
    api_key_file: Annotated[
        str | None, typer.Option(help="A file that holds the API key; else GOQUEUE_API_KEY.")
    ] = None,
    ca_file: Annotated[
        str | None, typer.Option(help="The authorities to trust over https; else GOQUEUE_CA_FILE.")
    ] = None,
) -> None:
    """Publish archived messages again, marked, once each. The same command goes on where a run was
    interrupted."""
    with failing():
        given = {"servers": servers, "apiKeyFile": api_key_file, "caFile": ca_file}
        access = Options({name: value for name, value in given.items() if value}).access()
        if replay_id is not None and not _RUN.fullmatch(replay_id):
            raise OptionError("replay-id: up to 100 letters, digits, dots, dashes and underscores")
        wanted = _wanted(partition, offsets, from_time, to_time)
        order = Order(archive, topic, to or topic, wanted, topic_id, replay_id, state or archive)
        try:
            asyncio.run(_restore(access, order, Rate(rate, byte_rate), dry_run=dry_run))
        except KeyboardInterrupt:
            typer.echo("interrupted: the same command goes on", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None


async def _restore(access: Access, order: Order, rate: Rate, *, dry_run: bool) -> None:
    files = ArrowStore(order.states)
    async with AsyncClient(
        list(access.servers),
        api_key=access.api_key,
        timeout_s=access.request_timeout_s,
        retry=RetryPolicy(attempts_max=100),
        tls=access.tls(),
    ) as client:
        source = await _topic(client, order.topic, order.topic_id)
        topic_id = order.topic_id if source is None else source.id
        archived = ArchivedTopic(order.archive, order.topic, topic_id, is_live=source is not None)
        topic_id = (await archived.current()).topic_id
        run = order.run or states.run_name(
            order.archive.rstrip("/"), order.topic, topic_id, order.target, order.wanted
        )
        state = await asyncio.to_thread(states.load, files, run)
        if state is None:
            found = await find(archived, order.wanted)
            _tell(found, order, run)
            if dry_run or not any(one.range.count for one in found):
                return
            plan = await _plan(client, order, run, archived, source, found)
            identity = await client.init_producer()
            state = State(plan, identity.producer_id, identity.epoch)
            await asyncio.to_thread(states.save, files, state, time.time_ns() // 1_000_000)
        else:
            _check_same(state.plan, order, topic_id)
            done = sum(state.done.values())
            typer.echo(f"run {run} has restored {done:,} of {state.plan.count:,} messages")
            if dry_run or state.is_complete:
                return
        progress = Progress(run, state.plan.count)
        await Restore(client, archived, files, state, rate, progress).run()
        typer.echo(f"run {run}: restored {sum(state.done.values()):,} messages to {order.target}")


async def _topic(client: AsyncClient, name: str, topic_id: str | None) -> Topic | None:
    try:
        found = await client.topic(name)
    except UnknownTopic:
        return None
    return found if topic_id in (None, found.id) else None


async def _plan(
    client: AsyncClient,
    order: Order,
    run: str,
    archived: ArchivedTopic,
    source: Topic | None,
    found: Sequence[Found],
) -> Plan:
    target = await client.topic(order.target, current=True)
    manifest = await archived.current()
    partitions = max(manifest.partitions()) + 1 if source is None else source.partitions
    return Plan(
        run,
        order.topic,
        manifest.topic_id,
        order.target,
        target.id,
        target.partitions,
        tuple(one.range for one in found if one.range.count),
        {one.partition: one.next for one in target.partition_details},
        partitions != target.partitions,
        order.wanted.from_ms,
        order.wanted.to_ms,
    )


def _check_same(plan: Plan, order: Order, topic_id: str) -> None:
    if (plan.topic, plan.topic_id, plan.target) != (order.topic, topic_id, order.target):
        raise BadRequest(
            f"run {plan.run} restores {plan.topic} ({plan.topic_id}) to {plan.target}:"
            " --replay-id names another one"
        )


def _tell(found: Sequence[Found], order: Order, run: str) -> None:
    """What the run would restore, partition by partition, and what it can't."""
    for one in found:
        range_ = one.range
        times = ""
        if one.first_ms is not None and one.last_ms is not None:
            times = f", {_time(one.first_ms)} to {_time(one.last_ms)}"
        typer.echo(
            f"{order.topic}:{range_.partition}: {range_.count:,} messages of offsets"
            f" {range_.first} to {range_.end - 1}{times}"
        )
        for missing in one.missing:
            typer.echo(f"note: {missing}", err=True)
    total = sum(one.range.count for one in found)
    typer.echo(f"{total:,} messages to {order.target}, as run {run}")


def _time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Progress:
    """A line now and then, on standard error."""

    def __init__(self, run: str, total: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._run, self._total, self._now_s = run, total, now_s
        self._began: tuple[float, int] | None = None
        self._told_s = now_s()

    def __call__(self, done: int) -> None:
        now_s = self._now_s()
        if self._began is None:
            self._began = now_s, done
        if now_s - self._told_s < TOLD_EVERY_S:
            return
        self._told_s = now_s
        began_s, before = self._began
        rate = (done - before) / max(now_s - began_s, 0.001)
        left = f", {(self._total - done) / rate:,.0f} s left" if rate else ""
        typer.echo(f"run {self._run}: {done:,} of {self._total:,}, {rate:,.0f}/s{left}", err=True)


def _wanted(
    partition: int | None, offsets: str | None, from_time: str | None, to_time: str | None
) -> Wanted:
    first = last = None
    if offsets is not None:
        match = _OFFSETS.fullmatch(offsets)
        if match is None or offsets == "-":
            raise OptionError("offsets: want FIRST-LAST, such as 1000-1999, or 1000-")
        first = int(match[1]) if match[1] else None
        last = int(match[2]) if match[2] else None
        if first is not None and last is not None and last < first:
            raise OptionError("offsets: the last one is smaller than the first")
    begin = None if from_time is None else moment_ms(from_time, "from-time")
    end = None if to_time is None else moment_ms(to_time, "to-time")
    return Wanted(partition, first, last, begin, end)
