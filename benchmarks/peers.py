"""RabbitMQ and Redis, in the same run and by the same kind of client."""

from __future__ import annotations

from pathlib import Path

from benchmarks.publish import Load, percentile
from benchmarks.rabbitmq import RabbitMq
from benchmarks.redis import Redis
from benchmarks.report import Report, Row

SECTION = "Peers, one message of 100 B a request"
CONNECTIONS = (1, 64)


def rabbitmq_row(connections: int) -> str:
    return f"RabbitMQ quorum queue ×3, publishers: {connections}"


async def measure(report: Report, folder: Path, seconds: float) -> None:
    """A peer that is absent or doesn't start is told of, and has no rows."""
    if not RabbitMq.installed():
        report.tell("RabbitMQ isn't installed (apt install rabbitmq-server): no rows, no ratios.")
    else:
        try:
            await _rabbitmq(report, folder, seconds)
        except (OSError, RuntimeError) as error:
            report.tell(f"RabbitMQ is installed but can't be measured: {str(error)[:300]}")
    if not Redis.installed():
        report.tell("Redis isn't installed (apt install redis-server): no rows.")
    else:
        await _redis(report, folder, seconds)


async def _rabbitmq(report: Report, folder: Path, seconds: float) -> None:
    with RabbitMq(folder / "rabbitmq") as rabbitmq:
        for connections in CONNECTIONS:
            await rabbitmq.publish(connections, 100, min(1.0, seconds))
            load = await rabbitmq.publish(connections, 100, seconds)
            report.add(SECTION, _row(rabbitmq_row(connections), load))


async def _redis(report: Report, folder: Path, seconds: float) -> None:
    with Redis(folder / "redis") as redis:
        for connections in CONNECTIONS:
            load = await redis.publish(connections, 100, seconds)
            name = f"Redis stream, fsync always, publishers: {connections}"
            report.add(SECTION, _row(name, load))


def _row(name: str, load: Load) -> Row:
    p99_ms = percentile(load.latencies_s, 0.99) * 1e3
    return Row(name, load.rate, "msg/s", cpu_us=load.cpu_us, note=f"p99 {p99_ms:.1f} ms")
