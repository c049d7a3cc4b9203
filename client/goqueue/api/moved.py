"""The calls that were the client's own before they were its admin's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

MOVED = (
    *("brokers", "broker", "plan_drain", "drain_broker", "undrain_broker", "remove_broker"),
    *("plan_rebalance", "rebalance", "plan_moves", "reassign"),
    *("reassignments", "reassignment", "cancel_reassignment"),
    *("cluster", "cluster_nodes", "cluster_health", "stats"),
    *("level", "cluster_version", "plan_upgrade", "finish_upgrade"),
    *("add_partitions", "report_archived"),
    *("assign_group", "resume_group", "park_key", "release_key", "parked_keys"),
    *("members", "rebalances", "reset_offsets"),
    *("redrive", "redrives", "redrive_job", "stop_redrive", "purge"),
)
"""Each may still be called on the client in releases 0.3, with a DeprecationWarning."""

T = TypeVar("T")


def with_moved(kind: type[T]) -> type[T]:
    """Decorates a client's class, whose `admin` has the calls now."""
    for name in MOVED:
        setattr(kind, name, _alias(kind.__name__, name))
    return kind


def _alias(owner: str, name: str) -> Callable[..., Any]:
    def call(client: Any, /, *args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"{owner}.{name} goes with release 0.4: call admin.{name} of the client",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(client.admin, name)(*args, **kwargs)

    call.__name__, call.__qualname__ = name, f"{owner}.{name}"
    call.__doc__ = f"`admin.{name}`, under its former name."
    return call
