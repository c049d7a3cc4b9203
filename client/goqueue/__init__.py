"""The client library of GoQueue.

`Client` blocks, `AsyncClient` awaits; both have topics, publishing and reading. `Producer` (from
`client.producer()`) batches, compresses and repeats safely. `goqueue.errors` has every error.

Names are imported when first used, so that `goqueue.wire` costs a broker nothing of the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goqueue.blocking import BlockingProducer, Client
    from goqueue.client import AsyncClient
    from goqueue.errors import GoQueueError, PublishFailed
    from goqueue.http import RetryPolicy
    from goqueue.models import (
        Cluster,
        ClusterHealth,
        ClusterNode,
        Message,
        OutgoingMessage,
        Page,
        Partition,
        ProducerIdentity,
        Published,
        Topic,
    )
    from goqueue.producer import Producer

__all__ = [
    "AsyncClient",
    "BlockingProducer",
    "Client",
    "Cluster",
    "ClusterHealth",
    "ClusterNode",
    "GoQueueError",
    "Message",
    "OutgoingMessage",
    "Page",
    "Partition",
    "Producer",
    "ProducerIdentity",
    "PublishFailed",
    "Published",
    "RetryPolicy",
    "Topic",
]

_HOMES = {
    "AsyncClient": "goqueue.client",
    "BlockingProducer": "goqueue.blocking",
    "Client": "goqueue.blocking",
    "Cluster": "goqueue.models",
    "ClusterHealth": "goqueue.models",
    "ClusterNode": "goqueue.models",
    "GoQueueError": "goqueue.errors",
    "Message": "goqueue.models",
    "OutgoingMessage": "goqueue.models",
    "Page": "goqueue.models",
    "Partition": "goqueue.models",
    "Producer": "goqueue.producer",
    "ProducerIdentity": "goqueue.models",
    "PublishFailed": "goqueue.errors",
    "Published": "goqueue.models",
    "RetryPolicy": "goqueue.http",
    "Topic": "goqueue.models",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
