"""What the cluster group's entries ask for, and what is answered: msgpack, told apart by a tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from coordinator.bounds import PARTITIONS_MAX, PARTITIONS_MAX_BASE
from coordinator.commands.keys import AddReceiptKey, EndSession, KeyCommand, KeyResult
from coordinator.commands.members import MemberCommand, MemberResult
from coordinator.commands.placement import AddPartitions, PlacementCommand, PlacementResult
from coordinator.commands.queue import AssignGroup, QueueCommand, QueueResult
from coordinator.errors import CommandUnreadable
from goqueue.wire.unreadable import UNREADABLE
from log.levels import FIRST, Feature


class RegisterBroker(
    msgspec.Struct,
    frozen=True,
    tag="register_broker",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A broker tells who and where it is; again whenever that changes.

    One that `replaces` has lost its data directory, and begins anew with this one: its replicas are
    to be rebuilt here. Without that, another directory than the known one is refused. Release 0.1.0
    told no feature levels.
    """

    node: str
    incarnation: int
    peer_address: str = ""
    http_url: str = ""
    zone: str = ""
    version: str = ""
    labels: dict[str, str] = {}
    replaces: bool = False
    lowest_level: int = FIRST
    highest_level: int = FIRST


class CreateTopic(
    msgspec.Struct, frozen=True, tag="create_topic", omit_defaults=True, forbid_unknown_fields=True
):
    """Create a topic; settings that are not named take their defaults.

    Brokers in `avoid`, which the proposer believes down, get replicas only if there are no others.
    `after`: this is a repeat, and the state that was known at first was of this index. Where a
    topic of the name was created and deleted since, it is refused: that may have been its own.
    """

    name: str
    config: dict[str, Any] = {}
    avoid: list[str] = []
    after: int = 0


class AlterTopic(
    msgspec.Struct, frozen=True, tag="alter_topic", omit_defaults=True, forbid_unknown_fields=True
):
    """Change the settings that are named. `id` as of `DeleteTopic`."""

    name: str
    changes: dict[str, Any]
    id: str = ""


class DeleteTopic(
    msgspec.Struct, frozen=True, tag="delete_topic", omit_defaults=True, forbid_unknown_fields=True
):
    """Delete a topic and all it holds.

    `id`, in its text form, is the very topic that is meant: a command that is sent again because
    its outcome was lost must not delete another topic that has got the name meanwhile.
    """

    name: str
    id: str = ""


class AllocateProducer(
    msgspec.Struct,
    frozen=True,
    tag="allocate_producer",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A new producer id; for a known transactional id, its id with the next epoch."""

    transactional_id: str | None = None


Command = (
    RegisterBroker
    | CreateTopic
    | AlterTopic
    | DeleteTopic
    | AllocateProducer
    | QueueCommand
    | MemberCommand
    | PlacementCommand
    | KeyCommand
)


FEATURES: Mapping[type, Feature] = {
    AssignGroup: Feature.SCOPES,
    AddReceiptKey: Feature.RECEIPT_KEYS,
    EndSession: Feature.ENDED_SESSIONS,
}
"""What came after level 1, and with which feature: all other commands are part of level 1."""


def feature_of(command: Command) -> Feature:
    """What must be finished before this command is proposed; one that is out of range is refused
    for that."""
    count: object = 0
    if isinstance(command, CreateTopic):
        count = command.config.get("partitions", 0)
    elif isinstance(command, AddPartitions):
        count = command.count
    if isinstance(count, int) and PARTITIONS_MAX_BASE < count <= PARTITIONS_MAX:
        return Feature.MANY_PARTITIONS
    return FEATURES.get(type(command), Feature.BASE)


class BrokerRegistered(msgspec.Struct, frozen=True, tag="broker_registered"):
    """The broker is known; `changed` if that is news; `replaced`: with a new data directory."""

    node: str
    changed: bool
    replaced: bool = False


class TopicResult(msgspec.Struct, frozen=True, tag="topic"):
    """The topic was created or altered, or is deleted; `id` in its text form."""

    name: str
    id: str
    partitions: int
    warnings: list[str] = []


class ProducerAllocated(msgspec.Struct, frozen=True, tag="producer"):
    """The identity that a producer stamps on its batches."""

    producer_id: int
    epoch: int


Result = (
    BrokerRegistered
    | TopicResult
    | ProducerAllocated
    | QueueResult
    | MemberResult
    | PlacementResult
    | KeyResult
)

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_results: msgspec.msgpack.Decoder[Result] = msgspec.msgpack.Decoder(Result)


def encode_command(command: Command) -> bytes:
    """An entry's body."""
    return _encoder.encode(command)


def decode_command(body: bytes | memoryview) -> Command:
    """Raises CommandUnreadable on anything that `encode_command` of this version did not write."""
    try:
        return _commands.decode(body)
    except UNREADABLE as error:
        raise CommandUnreadable(f"this version cannot read the command: {error}") from error


def encode_result(result: Result) -> bytes:
    """For the node that forwarded the command."""
    return _encoder.encode(result)


def decode_result(body: bytes | memoryview) -> Result:
    """Raises CommandUnreadable on anything else than a result."""
    try:
        return _results.decode(body)
    except UNREADABLE as error:
        raise CommandUnreadable(f"this version cannot read the result: {error}") from error
