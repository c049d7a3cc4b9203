"""Refusals of the cluster group that no other floor knows, and what stops its replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from goqueue.wire.errors import BadRequest, Busy, Conflict, GoQueueError, NotFound
from log.levels import Unspoken


class BadConfig(BadRequest):
    """Settings of a topic, group or schedule that won't do; all of them are named in `problems`."""

    code = "invalid_config"

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems), problems=problems)


class TooFewBrokers(BadRequest):
    """More replicas are asked for than there are brokers that may hold some."""

    code = "too_few_brokers"


class BrokerWiped(GoQueueError):
    """The broker is known by another data directory: this one may hold no replica yet."""

    code, http_status = "broker_wiped", 409
    text = "the broker's data directory is not the one the cluster knows"


class BrokerGone(GoQueueError):
    """The broker was removed from the cluster: this data directory is not let in again."""

    code, http_status = "broker_gone", 409

    def __init__(self, node: str) -> None:
        super().__init__(
            f"{node} was removed from the cluster: it can join with an empty data directory",
            node=node,
        )


class LevelRefused(Conflict):
    """The broker's version does not speak the level that the cluster has finished."""

    code, text = "level_refused", "this version does not speak the cluster's finished level"


class LevelNotSpoken(Conflict):
    """A level is finished only once every registered broker speaks it."""

    code = "level_not_spoken"

    def __init__(self, level: int, brokers: Mapping[str, object]) -> None:
        named = ", ".join(f"{node} ({spoken})" for node, spoken in sorted(brokers.items()))
        super().__init__(
            f"level {level} is not spoken by {named}: upgrade them, or remove them from it",
            level=level,
            brokers=sorted(brokers),
        )


class UpgradeWaits(Conflict):
    """The next level can't be finished yet; `waiting` says what must happen before."""

    code = "upgrade_waits"

    def __init__(self, level: int, waiting: list[str]) -> None:
        super().__init__(
            f"level {level} can't be finished yet: {'; '.join(waiting)}",
            level=level,
            waiting=waiting,
        )


class UnknownBroker(NotFound):
    """There is no broker of this name."""

    code = "unknown_broker"

    def __init__(self, node: str) -> None:
        super().__init__(f"broker not found: {node}", node=node)


class BrokerNotEmpty(Conflict):
    """The broker holds replicas, or may be given some: it must be drained first."""

    code, text = "broker_not_empty", "the broker is not drained"


class UnknownReassignment(NotFound):
    """There is no such reassignment, or it is forgotten."""

    code = "unknown_reassignment"

    def __init__(self, id: int) -> None:
        super().__init__(f"reassignment not found: {id}", reassignment=id)


class ClusterFull(Busy):
    """A bound on what the cluster group remembers is reached."""

    code, retriable = "cluster_full", False


class ShareFull(Busy):
    """A tenant's share of a bound on what the cluster group remembers is reached."""

    code, retriable = "share_full", False

    def __init__(self, bound: str, limit: int, bound_max: int, prefixes: Sequence[str]) -> None:
        owner = ", ".join(f"{prefix}*" for prefix in prefixes)
        super().__init__(
            f"{owner} may hold {limit} of the cluster's {bound_max} {bound} now: keys with prefixes"
            " have a share of it, so that none of them can fill it",
            bound=bound,
            limit=limit,
            bound_max=bound_max,
            prefixes=list(prefixes),
        )


class GroupTaken(Conflict):
    """Another scope made a group of this name while a key was about to."""

    code, retriable = "group_taken", True

    def __init__(self, group: str) -> None:
        super().__init__(f"group {group} was made by another key just now: ask again", group=group)


class UnknownSchedule(NotFound):
    """There is no schedule of this name, or it is another one by now."""

    code = "unknown_schedule"

    def __init__(self, schedule: str) -> None:
        super().__init__(f"schedule not found: {schedule}", schedule=schedule)


class UnknownRedrive(NotFound):
    """There is no such redrive job, or it is forgotten."""

    code = "unknown_redrive"

    def __init__(self, job: int) -> None:
        super().__init__(f"redrive job not found: {job}", job=job)


class UnknownKey(NotFound):
    """There is no API key with this id, or it is forgotten."""

    code = "unknown_key"

    def __init__(self, key: str) -> None:
        super().__init__(f"API key not found: {key}", key=key)


class KeyExists(Conflict):
    """There is an API key with this id already."""

    code = "key_exists"

    def __init__(self, key: str) -> None:
        super().__init__(f"API key {key} exists already", key=key)


class KeyRevoked(Conflict):
    """The API key is over: nothing brings it back."""

    code = "key_revoked"

    def __init__(self, key: str) -> None:
        super().__init__(f"API key {key} is revoked, or has expired: make another one", key=key)


class TwoSecrets(Conflict):
    """The API key is being rotated: two of its secrets live."""

    code = "two_secrets"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"API key {key} has two live secrets: say which one to keep beside the new one,"
            " newest or oldest, or end both with a grace of 0s",
            key=key,
        )


class LastAdminKey(Conflict):
    """Without this API key nobody could make others."""

    code = "last_admin_key"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"API key {key} is the last admin's of every topic that does not expire:"
            " make another one first",
            key=key,
        )


class Overtaken(Conflict):
    """A schedule or job is not where the command expects it: another leader has gone on."""

    code, text = "overtaken", "this was done before, or something else has happened since"


class CoordinatorError(Exception):
    """The root of what stops a replica of the cluster group; never an answer."""


class CommandUnreadable(CoordinatorError, Unspoken):
    """Not a command, or one of a newer version."""


class SnapshotUnreadable(CoordinatorError):
    """A state snapshot of another version, or not one at all."""
