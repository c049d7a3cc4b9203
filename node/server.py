"""One broker process: opened, started bottom up, and stopped in order by a signal."""

from __future__ import annotations

import asyncio
import signal
import ssl

import structlog

from goqueue.wire.errors import GoQueueError
from log.config import StorageConfig
from log.disk import OsDisk
from log.errors import LogError
from log.store import Store
from node.assembly import NodeAssembly, assemble
from node.collector import Collector
from node.config import NodeConfig
from node.logs import configure_logging

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CANNOT_START = 3
HANDOVER_S = 2.0

_log = structlog.get_logger("node")


def main_node(config: NodeConfig) -> int:
    """Run one node until SIGTERM or SIGINT; the process's exit code.

    0 after an orderly stop, 1 when the disk failed while serving, 3 when it could not start.
    """
    configure_logging(config.logging, config.node_id)
    if config.warnings:
        _log.warning("configuration", warnings=list(config.warnings))
    try:
        import uvloop
    except ImportError:  # where it is not built, asyncio's own loop serves as well
        return asyncio.run(run_node(config))
    return uvloop.run(run_node(config))


async def run_node(config: NodeConfig) -> int:
    """`main_node` on a running loop."""
    stopping = asyncio.Event()
    failures: list[Exception] = []

    def fail(error: Exception) -> None:
        failures.append(error)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        store = open_store(config)
    except (LogError, OSError) as error:
        _log.error("cannot_open_data", directory=config.data_dir, problem=str(error))
        return EXIT_CANNOT_START
    node = assemble(config, store, on_failure=fail)
    try:
        await node.services.start()
    except (OSError, ssl.SSLError, GoQueueError) as error:
        _log.error("cannot_start", problem=str(error))
        return EXIT_CANNOT_START
    collector = Collector()
    await collector.start()
    _log.info("node_started", url=config.http_url, data=config.data_dir)
    await stopping.wait()
    await _stop(node, orderly=not failures)
    await collector.stop()
    return EXIT_FAILED if failures else EXIT_OK


def open_store(config: NodeConfig) -> Store:
    """The data directory, locked and recovered. Raises LogError or OSError."""
    storage = config.storage
    return Store.open(
        OsDisk(),
        config.data_dir,
        StorageConfig(
            node=config.node_id,
            wal_file_bytes=storage.wal_file_bytes,
            segment_bytes=storage.segment_bytes,
            segment_time_ms=storage.segment_ms,
            watermark_bytes=storage.space_reserve_bytes,
            watermark_percent=storage.space_reserve_percent,
        ),
        accept_damage=storage.accept_loss,
    )


async def _stop(node: NodeAssembly, *, orderly: bool) -> None:
    """Fail readiness, hand leaderships over, drain, flush."""
    _log.info("node_stopping")
    node.status.stopping = True
    node.front.begin_stop()
    if orderly:
        await node.upkeep.hand_over_all(HANDOVER_S)
    await node.services.stop()
    _log.info("node_stopped")
