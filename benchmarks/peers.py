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
    if RabbitMq.installed():
        with RabbitMq(folder / "rabbitmq") as rabbitmq:
            for connections in CONNECTIONS:
                await rabbitmq.publish(connections, 100, min(1.0, seconds))
                load = await rabbitmq.publish(connections, 100, seconds)
                report.add(SECTION, _row(rabbitmq_row(connections), load))
    else:
        report.tell("RabbitMQ isn't installed (apt install rabbitmq-server): no rows, no ratios.")
    if Redis.installed():
        with Redis(folder / "redis") as redis:
            for connections in CONNECTIONS:
                load = await redis.publish(connections, 100, seconds)
                name = f"Redis stream, fsync always, publishers: {connections}"
                report.add(SECTION, _row(name, load))
    else:
        report.tell("Redis isn't installed (apt install redis-server): no rows.")


def _row(name: str, load: Load) -> Row:
    p99_ms = percentile(load.latencies_s, 0.99) * 1e3
    return Row(name, load.rate, "msg/s", cpu_us=load.cpu_us, note=f"p99 {p99_ms:.1f} ms")
