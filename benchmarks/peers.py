"""RabbitMQ, NATS and Redis, in the same run and by the same kind of client."""

from __future__ import annotations

from pathlib import Path

from benchmarks.nats import Nats
from benchmarks.publish import Load, percentile
from benchmarks.rabbitmq import RabbitMq
from benchmarks.redis import Redis
from benchmarks.report import Report, Row

SECTION = "Peers, messages of 100 B"
SHAPES = ((1, 1), (1, 8), (1, 64), (100, 8), (1000, 8))
"""(messages that are sent before one waits for all their acknowledgements, connections)."""
DURABLE = (
    "RabbitMQ confirms as it does for quorum queues; what consumers ack is confirmed to nobody."
    " NATS JetStream acknowledges what a majority has written, and syncs every two minutes. Redis"
    " is one server that syncs every write."
)


def rabbitmq_row(batch: int, connections: int) -> str:
    return f"RabbitMQ quorum queue ×3, {_shape(batch, connections)}"


def nats_row(batch: int, connections: int) -> str:
    return f"NATS JetStream ×3, {_shape(batch, connections)}"


async def measure(report: Report, folder: Path, seconds: float) -> None:
    """A peer that is absent or doesn't start is told of, and has no rows."""
    report.tell(DURABLE)
    for name, is_there, package, work in (
        ("RabbitMQ", RabbitMq.installed(), "rabbitmq-server", _rabbitmq),
        ("NATS", Nats.installed(), "nats-server", _nats),
        ("Redis", Redis.installed(), "redis-server", _redis),
    ):
        if not is_there:
            report.tell(f"{name} isn't installed (apt install {package}): no rows, no ratios.")
            continue
        try:
            await work(report, folder, seconds)
        except (OSError, RuntimeError) as error:
            report.tell(f"{name} is installed but can't be measured: {str(error)[:300]}")


async def _rabbitmq(report: Report, folder: Path, seconds: float) -> None:
    with RabbitMq(folder / "rabbitmq") as rabbitmq:
        for batch, connections in SHAPES:
            await rabbitmq.publish(connections, 100, min(1.0, seconds), batch)
            load = await rabbitmq.publish(connections, 100, seconds, batch)
            report.add(SECTION, _row(rabbitmq_row(batch, connections), load))


async def _nats(report: Report, folder: Path, seconds: float) -> None:
    with Nats(folder / "nats") as nats:
        for batch, connections in SHAPES:
            await nats.publish(connections, 100, min(1.0, seconds), batch)
            load = await nats.publish(connections, 100, seconds, batch)
            report.add(SECTION, _row(nats_row(batch, connections), load))


async def _redis(report: Report, folder: Path, seconds: float) -> None:
    with Redis(folder / "redis") as redis:
        for batch, connections in SHAPES:
            load = await redis.publish(connections, 100, seconds, batch)
            name = f"Redis stream, fsync always, {_shape(batch, connections)}"
            report.add(SECTION, _row(name, load))


def _row(name: str, load: Load) -> Row:
    p99_ms = percentile(load.latencies_s, 0.99) * 1e3
    p50_ms = percentile(load.latencies_s, 0.5) * 1e3
    note = f"p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms"
    return Row(name, load.rate, "msg/s", cpu_us=load.cpu_us, note=note)


def _shape(batch: int, connections: int) -> str:
    return f"{batch} × 100 B, publishers: {connections}"
