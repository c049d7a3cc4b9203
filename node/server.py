"""One broker process: opened, started bottom up, and stopped in order by a signal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import ssl
import threading
from collections.abc import Callable

from coordinator.errors import SnapshotUnreadable
from goqueue.wire.errors import GoQueueError
from log.config import StorageConfig
from log.disk.files import Disk, OsDisk
from log.errors import LogError, WalDamaged
from log.store.directory import Store
from log.store.set_aside import SetAside
from node.assembly import NodeAssembly, assemble
from node.config import open_listener
from node.config import secret_checks as secret_care
from node.config.node import NodeConfig
from node.kubernetes.api import ClientMissing, check_client
from node.kubernetes.pod import stands_among_others
from node.open_files import allowed, raise_limit, unsynced_max
from node.runtime import heap
from node.runtime.idle_gc import Collector
from node.runtime.logger import get_logger
from node.runtime.logs import configure_logging
from node.runtime.stored_level import OtherLevel, stored_levels

EXIT_OK = 0
EXIT_CANNOT_START = 3
EXIT_OTHER_LEVEL = 78
"""EX_CONFIG: this version does not speak the feature level that its cluster has finished. Starting
it again does not help; another version does."""
EXIT_DISK_FAILED = 74
"""EX_IOERR: a write or sync failed. A supervisor may start the node again at once: what was
acknowledged is there."""
HANDOVER_S = 2.0
RESERVE_BYTES_MAX = 64 << 20
"""Of what publishes leave free, this much at most is preallocated: a quarter on small disks."""
LEAVE_S = 3.0
"""How long a node whose disk failed takes to stop its parts, at most."""
LEAVE_FOR_SURE_S = 10.0
"""When such a process ends, whatever its threads wait for: a failing disk may never answer."""

_log = get_logger("node")


def main_node(config: NodeConfig) -> int:
    """Run one node until SIGTERM or SIGINT; the process's exit code.

    0 after an orderly stop, 74 when the disk failed while serving, 3 when it could not start, 78
    when another version must run here.
    """
    configure_logging(config.logging, config.node_id)
    raise_limit()
    heap.give_back()
    if os.getpid() == 1:  # of a container: what others leave behind is reaped by the kernel
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if config.warnings:
        _log.warning("configuration", warnings=list(config.warnings))
    if problem := open_listener.warning(config):
        _log.warning("listens_openly", problem=problem)
    for problem in secret_care.warnings(config):
        _log.warning("secret_not_safe", problem=problem)
    try:
        import uvloop
    except ImportError:  # where it is not built, asyncio's own loop serves as well
        run = asyncio.run
    else:
        run = uvloop.run
    code = run(run_node(config, _leave_for_sure))
    gc.freeze()  # what is left goes with the process: nothing is looked through for that
    return code


async def run_node(config: NodeConfig, on_failure: Callable[[], None] = lambda: None) -> int:
    """`main_node` on a running loop. `on_failure` is called when the disk has failed."""
    ends = _Ends(on_failure)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ends.told_to_stop)
    while True:
        code = await _live(config, ends)
        if code != EXIT_OK or ends.is_stopped:
            return code
        ends.begin_again()
        where = await asyncio.to_thread(SetAside(OsDisk(), config.data_dir).move)
        _log.warning("data_set_aside", where=where)


class _Ends:
    """Why a node stops: it is told to, its disk failed, or it is to begin anew without its data."""

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self._on_failure = on_failure
        self.reached = asyncio.Event()
        self.failures: list[Exception] = []
        self.is_stopped = False
        self.is_outdated = False

    def told_to_stop(self) -> None:
        self.is_stopped = True
        self.reached.set()

    def failed(self, error: Exception) -> None:
        self.failures.append(error)
        self._on_failure()
        self.reached.set()

    def outdated(self) -> None:
        self.is_outdated = True
        self.reached.set()

    def begin_again(self) -> None:
        if not self.is_stopped:
            self.reached.clear()


async def _live(config: NodeConfig, ends: _Ends) -> int:
    """One node from its data directory's opening to its end; the exit code."""
    try:
        levels = stored_levels(OsDisk(), config.data_dir)
        store = await _opened(config)
        open_listener.remember(config, OsDisk())
    except OtherLevel as error:
        _log.critical("cannot_start", directory=config.data_dir, problem=str(error))
        return EXIT_OTHER_LEVEL
    except (LogError, OSError, ClientMissing) as error:
        _log.error("cannot_open_data", directory=config.data_dir, problem=str(error))
        return EXIT_CANNOT_START
    node = assemble(
        config,
        store,
        on_failure=ends.failed,
        begin_anew=ends.reached.set,
        levels=levels,
        on_outdated=ends.outdated,
    )
    try:
        await node.services.start()
    except (OSError, ssl.SSLError, GoQueueError, SnapshotUnreadable) as error:
        _log.error("cannot_start", problem=str(error))
        return EXIT_CANNOT_START
    collector = Collector()
    await collector.start()
    _log.info("node_started", url=config.http_url, data=config.data_dir)
    await ends.reached.wait()
    if ends.failures:
        await _leave(node)
        await collector.stop()
        problem = f"the disk failed: {ends.failures[0]}"
        _log.critical("node_left", problem=problem, code=EXIT_DISK_FAILED)
        return EXIT_DISK_FAILED
    await _stop(node)
    await collector.stop()
    if ends.is_outdated:
        _log.critical("node_left", problem=levels.problem, code=EXIT_OTHER_LEVEL)
        return EXIT_OTHER_LEVEL
    return EXIT_OK


async def _opened(config: NodeConfig) -> Store:
    """As `open_store`; of a pod, Kubernetes says whether it is among others."""
    if not config.kubernetes.enabled:
        return open_store(config)
    check_client()
    try:
        return open_store(config)
    except WalDamaged:
        if not await stands_among_others(config):
            raise
    return open_store(config, set_aside=True)


def open_store(config: NodeConfig, *, set_aside: bool = False, disk: Disk | None = None) -> Store:
    """The data directory, locked and recovered, on this disk or the machine's. Raises LogError or
    OSError.

    Where its write-ahead log is damaged, a node among others begins anew and copies from them; one
    that is alone has nobody to copy from, and refuses.
    """
    storage = config.storage
    return Store.open(
        disk or OsDisk(),
        config.data_dir,
        StorageConfig(
            node=config.node_id,
            wal_file_bytes=storage.wal_file_bytes,
            segment_bytes=storage.segment_bytes,
            segment_time_ms=storage.segment_ms,
            watermark_bytes=storage.space_reserve_bytes,
            watermark_percent=storage.space_reserve_percent,
            reserve_bytes=min(RESERVE_BYTES_MAX, storage.space_reserve_bytes // 4),
            descriptors_unsynced_max=unsynced_max(allowed()),
        ),
        accept_damage=storage.accept_loss,
        set_aside=set_aside or bool(config.others),
    )


async def _stop(node: NodeAssembly) -> None:
    """Fail readiness, hand leaderships over, drain, flush."""
    _log.info("node_stopping")
    node.status.stopping = True
    node.front.begin_stop()
    await node.maintenance.hand_over_all(HANDOVER_S)
    await node.services.stop()
    _log.info("node_stopped")


async def _leave(node: NodeAssembly) -> None:
    """Stop without a word more: what can't write must not speak for what it holds. The closed links
    are what the others take over by."""
    node.status.stopping = True
    node.front.begin_stop()
    node.raft.stop()
    try:
        async with asyncio.timeout(LEAVE_S):
            await node.link.stop()
            await node.services.stop()
    except TimeoutError:
        _log.warning("parts_left_running")


def _leave_for_sure() -> None:
    watchdog = threading.Timer(LEAVE_FOR_SURE_S, os._exit, (EXIT_DISK_FAILED,))
    watchdog.daemon = True
    watchdog.start()
