"""`Client.admin`: what an operator does, for programs without an event loop."""

from __future__ import annotations

from goqueue.api.admin import AsyncAdmin
from goqueue.blocking.loop_thread import LoopThread
from goqueue.blocking.parts import blocking


class Admin:
    """As `AsyncAdmin`, blocking; from `Client.admin`."""

    def __init__(self, thread: LoopThread, twin: AsyncAdmin) -> None:
        self._thread = thread
        self._twin = twin

    brokers = blocking(AsyncAdmin.brokers)
    broker = blocking(AsyncAdmin.broker)
    plan_drain = blocking(AsyncAdmin.plan_drain)
    drain_broker = blocking(AsyncAdmin.drain_broker)
    undrain_broker = blocking(AsyncAdmin.undrain_broker)
    remove_broker = blocking(AsyncAdmin.remove_broker)

    plan_rebalance = blocking(AsyncAdmin.plan_rebalance)
    rebalance = blocking(AsyncAdmin.rebalance)
    plan_moves = blocking(AsyncAdmin.plan_moves)
    reassign = blocking(AsyncAdmin.reassign)
    reassignments = blocking(AsyncAdmin.reassignments)
    reassignment = blocking(AsyncAdmin.reassignment)
    cancel_reassignment = blocking(AsyncAdmin.cancel_reassignment)

    cluster = blocking(AsyncAdmin.cluster)
    cluster_nodes = blocking(AsyncAdmin.cluster_nodes)
    cluster_health = blocking(AsyncAdmin.cluster_health)
    stats = blocking(AsyncAdmin.stats)
    level = blocking(AsyncAdmin.level)
    cluster_version = blocking(AsyncAdmin.cluster_version)
    plan_upgrade = blocking(AsyncAdmin.plan_upgrade)
    finish_upgrade = blocking(AsyncAdmin.finish_upgrade)

    add_partitions = blocking(AsyncAdmin.add_partitions)
    report_archived = blocking(AsyncAdmin.report_archived)

    assign_group = blocking(AsyncAdmin.assign_group)
    resume_group = blocking(AsyncAdmin.resume_group)
    park_key = blocking(AsyncAdmin.park_key)
    release_key = blocking(AsyncAdmin.release_key)
    parked_keys = blocking(AsyncAdmin.parked_keys)
    members = blocking(AsyncAdmin.members)
    rebalances = blocking(AsyncAdmin.rebalances)
    reset_offsets = blocking(AsyncAdmin.reset_offsets)

    redrive = blocking(AsyncAdmin.redrive)
    redrives = blocking(AsyncAdmin.redrives)
    redrive_job = blocking(AsyncAdmin.redrive_job)
    stop_redrive = blocking(AsyncAdmin.stop_redrive)
    purge = blocking(AsyncAdmin.purge)
