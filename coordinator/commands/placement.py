"""The cluster group's commands about brokers and replicas: what should be where, and what is.

All of them may be sent again because an outcome was lost: each changes nothing where it is done.
"""

from __future__ import annotations

import msgspec

from goqueue.wire.types import Voter

ROWS_MAX = 2000
"""Partitions that one command is about; a longer plan follows in parts."""


class Row(msgspec.Struct, array_like=True, frozen=True):
    """One partition of a plan: the brokers that should hold it, the preferred leader first.

    `before` are those that the planner saw; where they are others by now, the plan is overtaken.
    """

    topic: int
    """The index in its topic's id."""
    partition: int
    before: list[str]
    replicas: list[str]


class Reassign(
    msgspec.Struct, frozen=True, tag="reassign", omit_defaults=True, forbid_unknown_fields=True
):
    """Move partitions; all of these rows, or none. What comes later takes over from what runs.

    `request` is random, or 0: a repeated command results in the reassignment that it made.
    `throttle_bytes_s` bounds what each learner is sent; 0 leaves that to the nodes.
    """

    rows: list[Row]
    cause: str = "reassign"
    brokers: list[str] = []
    throttle_bytes_s: int = 0
    request: int = 0


class CancelReassignment(
    msgspec.Struct, frozen=True, tag="cancel_reassignment", forbid_unknown_fields=True
):
    """Partitions that have not arrived go back; those that have stay."""

    id: int


class DrainBroker(
    msgspec.Struct, frozen=True, tag="drain_broker", omit_defaults=True, forbid_unknown_fields=True
):
    """The broker gets no more replicas, and those it has move to others, as fast as
    `throttle_bytes_s` allows (see `Reassign`)."""

    node: str
    throttle_bytes_s: int = 0


class UndrainBroker(msgspec.Struct, frozen=True, tag="undrain_broker", forbid_unknown_fields=True):
    """The broker takes replicas again, and what was on its way off comes back."""

    node: str


class RemoveBroker(msgspec.Struct, frozen=True, tag="remove_broker", forbid_unknown_fields=True):
    """The cluster forgets a drained broker; its data directory is not let in again."""

    node: str


class SetReplicationFactor(
    msgspec.Struct, frozen=True, tag="set_replication_factor", forbid_unknown_fields=True
):
    """Every partition of the topic is to have so many replicas. `id` is the topic's in text form,
    or empty."""

    name: str
    id: str
    factor: int


class AddPartitions(
    msgspec.Struct,
    frozen=True,
    tag="add_partitions",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The topic is to have `count` partitions in all; those it has stay as they are.

    `assignments`: the brokers of each new one, by number; chosen where they are not given.
    """

    name: str
    count: int
    id: str = ""
    avoid: list[str] = []
    assignments: list[list[str]] = []


class Reported(msgspec.Struct, array_like=True, frozen=True):
    """The configuration that a partition's log holds, committed at `index`. See `Configuration`."""

    topic: int
    """The index in its topic's id; 0 for the cluster group."""
    partition: int
    index: int
    voters: tuple[Voter, ...]
    learners: tuple[Voter, ...] = ()
    epoch: int = 0


class ReplicasChanged(
    msgspec.Struct, frozen=True, tag="replicas_changed", forbid_unknown_fields=True
):
    """What partitions' leaders tell of their replicas; older tidings are left out."""

    rows: list[Reported]


class FinishLevel(msgspec.Struct, frozen=True, tag="finish_level", forbid_unknown_fields=True):
    """From now on everybody may write what came with this feature level, and nobody who does not
    speak it takes part. A level that is finished stays so."""

    level: int


class LevelFinished(msgspec.Struct, frozen=True, tag="level_finished"):
    """The cluster's finished level, and the one before this command."""

    level: int
    before: int


class ReassignResult(msgspec.Struct, frozen=True, tag="reassignment"):
    """The reassignment and its state."""

    id: int
    state: str
    partitions: int


class BrokerResult(msgspec.Struct, frozen=True, tag="broker"):
    """The broker's state; `replicas` are left to be moved off it."""

    node: str
    state: str
    replicas: int = 0


class PartitionsAdded(msgspec.Struct, frozen=True, tag="partitions_added"):
    """How many the topic had and has."""

    name: str
    id: str
    before: int
    partitions: int


class ReplicasNoted(msgspec.Struct, frozen=True, tag="replicas_noted"):
    """How many rows were news."""

    changed: int


PlacementCommand = (
    Reassign
    | CancelReassignment
    | DrainBroker
    | UndrainBroker
    | RemoveBroker
    | SetReplicationFactor
    | AddPartitions
    | ReplicasChanged
    | FinishLevel
)
PlacementResult = ReassignResult | BrokerResult | PartitionsAdded | ReplicasNoted | LevelFinished
