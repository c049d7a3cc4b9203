"""The client library of GoQueue.

`Client` blocks, `AsyncClient` awaits; both have topics, publishing, reading, and queues: groups
that receive and settle, delays, schedules, dead letters. `Producer` (from `client.producer()`)
batches, compresses and repeats safely; a `Consumer` or `AsyncConsumer` is a member of a group.
`open` gives a `Client` of a directory, a server or a cluster, `Queue` what most programs need.
`goqueue.errors` has every error.

Names are imported when first used, so that `goqueue.wire` costs a broker nothing of the client.

Rooms, each standing on those after it: `tasks` (functions that workers call), `everyday` (one way
in), `blocking`, `consume`, `api` (the asynchronous client), `admin` (its calls for operators),
`queue`, `publish`, `archive` and `local` (directories), `transport`, `models`, `wire`. `errors` and
`tracing` are faces for applications, as this module is; nothing inside imports them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goqueue.admin.brokers import Broker, Drain
    from goqueue.admin.cluster import BrokerVersion, ClusterVersion
    from goqueue.admin.moves import MovedPartition, MovePlan, PartitionMove, Reassignment
    from goqueue.admin.redrives import Redrive
    from goqueue.admin.topics import PartitionsAdded
    from goqueue.api.admin import AsyncAdmin
    from goqueue.api.client import AsyncClient
    from goqueue.api.events import MessageEvent
    from goqueue.api.search import Event, FoundMessage, FoundPage, GroupState, Timeline
    from goqueue.api.why import GroupWhy, Reason, Why
    from goqueue.archive.seam import MessagesMissing, Missing
    from goqueue.blocking.admin import Admin
    from goqueue.blocking.client import Client
    from goqueue.blocking.consumer import Consumer
    from goqueue.blocking.producer import BlockingProducer
    from goqueue.blocking.received import BlockingReceived
    from goqueue.consume.consumer import AsyncConsumer
    from goqueue.errors import GoQueueError, PublishFailed, SettleFailed
    from goqueue.everyday.items import Item
    from goqueue.everyday.opening import open, open_async
    from goqueue.everyday.queue import Queue, QueueStats
    from goqueue.models.groups import (
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
    from goqueue.models.messages import Message, OutgoingMessage, Page, ProducerIdentity, Published
    from goqueue.models.outcomes import Reject, Retry
    from goqueue.models.queued import DeadLetter, QueuedMessage, Received
    from goqueue.models.settles import Settle, Settled
    from goqueue.models.topics import (
        ArchivedPartition,
        Cluster,
        ClusterHealth,
        ClusterNode,
        Partition,
        Topic,
    )
    from goqueue.publish.producer import Producer
    from goqueue.queue.dead_letters import DeadFilter
    from goqueue.queue.schedules import Delayed, Schedule
    from goqueue.transport.http import RetryPolicy

__all__ = [
    "Admin",
    "ArchivedPartition",
    "AsyncAdmin",
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
    "Item",
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
    "Queue",
    "QueueStats",
    "QueuedMessage",
    "Reason",
    "Reassignment",
    "Rebalance",
    "Rebalances",
    "Received",
    "Redrive",
    "Reject",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "Settle",
    "SettleFailed",
    "Settled",
    "Timeline",
    "Topic",
    "TopicPartition",
    "Why",
    "open",
    "open_async",
]

_HOMES = {
    "Admin": "goqueue.blocking.admin",
    "ArchivedPartition": "goqueue.models.topics",
    "AsyncAdmin": "goqueue.api.admin",
    "AsyncClient": "goqueue.api.client",
    "AsyncConsumer": "goqueue.consume.consumer",
    "BlockingProducer": "goqueue.blocking.producer",
    "BlockingReceived": "goqueue.blocking.received",
    "Broker": "goqueue.admin.brokers",
    "BrokerVersion": "goqueue.admin.cluster",
    "Client": "goqueue.blocking.client",
    "Cluster": "goqueue.models.topics",
    "ClusterHealth": "goqueue.models.topics",
    "ClusterNode": "goqueue.models.topics",
    "ClusterVersion": "goqueue.admin.cluster",
    "Consumer": "goqueue.blocking.consumer",
    "DeadFilter": "goqueue.queue.dead_letters",
    "DeadLetter": "goqueue.models.queued",
    "Delayed": "goqueue.queue.schedules",
    "Drain": "goqueue.admin.brokers",
    "Event": "goqueue.api.search",
    "FoundMessage": "goqueue.api.search",
    "FoundPage": "goqueue.api.search",
    "GoQueueError": "goqueue.errors",
    "Group": "goqueue.models.groups",
    "GroupLag": "goqueue.models.groups",
    "GroupMember": "goqueue.models.groups",
    "GroupMembers": "goqueue.models.groups",
    "GroupPartition": "goqueue.models.groups",
    "GroupState": "goqueue.api.search",
    "GroupWhy": "goqueue.api.why",
    "Item": "goqueue.everyday.items",
    "MemberAnswer": "goqueue.models.groups",
    "Message": "goqueue.models.messages",
    "MessageEvent": "goqueue.api.events",
    "MessagesMissing": "goqueue.archive.seam",
    "Missing": "goqueue.archive.seam",
    "Move": "goqueue.models.groups",
    "MovePlan": "goqueue.admin.moves",
    "MovedPartition": "goqueue.admin.moves",
    "OffsetReset": "goqueue.models.groups",
    "OutgoingMessage": "goqueue.models.messages",
    "Page": "goqueue.models.messages",
    "Partition": "goqueue.models.topics",
    "PartitionLag": "goqueue.models.groups",
    "PartitionMove": "goqueue.admin.moves",
    "PartitionsAdded": "goqueue.admin.topics",
    "Producer": "goqueue.publish.producer",
    "ProducerIdentity": "goqueue.models.messages",
    "PublishFailed": "goqueue.errors",
    "Published": "goqueue.models.messages",
    "Queue": "goqueue.everyday.queue",
    "QueueStats": "goqueue.everyday.queue",
    "QueuedMessage": "goqueue.models.queued",
    "Reason": "goqueue.api.why",
    "Reassignment": "goqueue.admin.moves",
    "Rebalance": "goqueue.models.groups",
    "Rebalances": "goqueue.models.groups",
    "Received": "goqueue.models.queued",
    "Redrive": "goqueue.admin.redrives",
    "Reject": "goqueue.models.outcomes",
    "Retry": "goqueue.models.outcomes",
    "RetryPolicy": "goqueue.transport.http",
    "Schedule": "goqueue.queue.schedules",
    "Settle": "goqueue.models.settles",
    "SettleFailed": "goqueue.errors",
    "Settled": "goqueue.models.settles",
    "Timeline": "goqueue.api.search",
    "Topic": "goqueue.models.topics",
    "TopicPartition": "goqueue.models.groups",
    "Why": "goqueue.api.why",
    "open": "goqueue.everyday.opening",
    "open_async": "goqueue.everyday.opening",
}

_MODULES = ("archive", "errors", "tasks", "tracing", "wire")
"""What may be used as `goqueue.errors`, and so on, without an import of its own."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"goqueue.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
