"""The client library of GoQueue.

`Client` blocks, `AsyncClient` awaits; both have topics, publishing, reading, and queues: groups
that receive and settle, delays, schedules, dead letters. `Producer` (from `client.producer()`)
batches, compresses and repeats safely; a `Consumer` or `AsyncConsumer` is a member of a group.
`goqueue.errors` has every error.

Names are imported when first used, so that `goqueue.wire` costs a broker nothing of the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goqueue.archive.seam import MessagesMissing, Missing
    from goqueue.blocking import Client
    from goqueue.blocking_consumer import Consumer
    from goqueue.blocking_producer import BlockingProducer
    from goqueue.blocking_queue import BlockingReceived
    from goqueue.client import AsyncClient
    from goqueue.consumer import AsyncConsumer
    from goqueue.dead_letters import DeadFilter, Redrive
    from goqueue.errors import GoQueueError, PublishFailed, SettleFailed
    from goqueue.events import MessageEvent
    from goqueue.explaining import GroupWhy, Reason, Why
    from goqueue.group_models import (
        Group,
        GroupLag,
        GroupMember,
        GroupMembers,
        GroupPartition,
        MemberAnswer,
        Move,
        OffsetReset,
        PartitionLag,
        Rebalance,
        Rebalances,
        TopicPartition,
    )
    from goqueue.http import RetryPolicy
    from goqueue.message_models import Message, OutgoingMessage, Page, ProducerIdentity, Published
    from goqueue.placement import (
        Broker,
        BrokerVersion,
        ClusterVersion,
        Drain,
        MovedPartition,
        MovePlan,
        PartitionMove,
        PartitionsAdded,
        Reassignment,
    )
    from goqueue.producer import Producer
    from goqueue.queued import DeadLetter, QueuedMessage, Received
    from goqueue.schedules import Delayed, Schedule
    from goqueue.searching import Event, FoundMessage, FoundPage, GroupState, Timeline
    from goqueue.settling import Settle, Settled
    from goqueue.topic_models import (
        ArchivedPartition,
        Cluster,
        ClusterHealth,
        ClusterNode,
        Partition,
        Topic,
    )

__all__ = [
    "ArchivedPartition",
    "AsyncClient",
    "AsyncConsumer",
    "BlockingProducer",
    "BlockingReceived",
    "Broker",
    "BrokerVersion",
    "Client",
    "Cluster",
    "ClusterHealth",
    "ClusterNode",
    "ClusterVersion",
    "Consumer",
    "DeadFilter",
    "DeadLetter",
    "Delayed",
    "Drain",
    "Event",
    "FoundMessage",
    "FoundPage",
    "GoQueueError",
    "Group",
    "GroupLag",
    "GroupMember",
    "GroupMembers",
    "GroupPartition",
    "GroupState",
    "GroupWhy",
    "MemberAnswer",
    "Message",
    "MessageEvent",
    "MessagesMissing",
    "Missing",
    "Move",
    "MovePlan",
    "MovedPartition",
    "OffsetReset",
    "OutgoingMessage",
    "Page",
    "Partition",
    "PartitionLag",
    "PartitionMove",
    "PartitionsAdded",
    "Producer",
    "ProducerIdentity",
    "PublishFailed",
    "Published",
    "QueuedMessage",
    "Reason",
    "Reassignment",
    "Rebalance",
    "Rebalances",
    "Received",
    "Redrive",
    "RetryPolicy",
    "Schedule",
    "Settle",
    "SettleFailed",
    "Settled",
    "Timeline",
    "Topic",
    "TopicPartition",
    "Why",
]

_HOMES = {
    "ArchivedPartition": "goqueue.topic_models",
    "AsyncClient": "goqueue.client",
    "AsyncConsumer": "goqueue.consumer",
    "BlockingProducer": "goqueue.blocking_producer",
    "BlockingReceived": "goqueue.blocking_queue",
    "Broker": "goqueue.placement",
    "BrokerVersion": "goqueue.placement",
    "Client": "goqueue.blocking",
    "Cluster": "goqueue.topic_models",
    "ClusterHealth": "goqueue.topic_models",
    "ClusterNode": "goqueue.topic_models",
    "ClusterVersion": "goqueue.placement",
    "Consumer": "goqueue.blocking_consumer",
    "DeadFilter": "goqueue.dead_letters",
    "DeadLetter": "goqueue.queued",
    "Delayed": "goqueue.schedules",
    "Drain": "goqueue.placement",
    "Event": "goqueue.searching",
    "FoundMessage": "goqueue.searching",
    "FoundPage": "goqueue.searching",
    "GoQueueError": "goqueue.errors",
    "Group": "goqueue.group_models",
    "GroupLag": "goqueue.group_models",
    "GroupMember": "goqueue.group_models",
    "GroupMembers": "goqueue.group_models",
    "GroupPartition": "goqueue.group_models",
    "GroupState": "goqueue.searching",
    "GroupWhy": "goqueue.explaining",
    "MemberAnswer": "goqueue.group_models",
    "Message": "goqueue.message_models",
    "MessageEvent": "goqueue.events",
    "MessagesMissing": "goqueue.archive.seam",
    "Missing": "goqueue.archive.seam",
    "Move": "goqueue.group_models",
    "MovePlan": "goqueue.placement",
    "MovedPartition": "goqueue.placement",
    "OffsetReset": "goqueue.group_models",
    "OutgoingMessage": "goqueue.message_models",
    "Page": "goqueue.message_models",
    "Partition": "goqueue.topic_models",
    "PartitionLag": "goqueue.group_models",
    "PartitionMove": "goqueue.placement",
    "PartitionsAdded": "goqueue.placement",
    "Producer": "goqueue.producer",
    "ProducerIdentity": "goqueue.message_models",
    "PublishFailed": "goqueue.errors",
    "Published": "goqueue.message_models",
    "QueuedMessage": "goqueue.queued",
    "Reason": "goqueue.explaining",
    "Reassignment": "goqueue.placement",
    "Rebalance": "goqueue.group_models",
    "Rebalances": "goqueue.group_models",
    "Received": "goqueue.queued",
    "Redrive": "goqueue.dead_letters",
    "RetryPolicy": "goqueue.http",
    "Schedule": "goqueue.schedules",
    "Settle": "goqueue.settling",
    "SettleFailed": "goqueue.errors",
    "Settled": "goqueue.settling",
    "Timeline": "goqueue.searching",
    "Topic": "goqueue.topic_models",
    "TopicPartition": "goqueue.group_models",
    "Why": "goqueue.explaining",
}

_MODULES = ("archive", "errors", "tracing", "wire")
"""What may be used as `goqueue.errors`, and so on, without an import of its own."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"goqueue.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
