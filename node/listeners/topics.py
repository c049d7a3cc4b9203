"""What listeners do about topics before they serve them, and the groups that are miniqueue's."""

from __future__ import annotations

from goqueue.wire.errors import UnknownTopic
from node.api.broker import Broker

MINIQUEUE_SUFFIX = ".miniqueue"
"""A topic's name and this is the consumer group of who names none: all such subscribers share its
messages, those of Redis' protocol and of HTTP/2."""
MINIQUEUE_SETTINGS = {"max_attempts": 0}
"""Settings of such a group where it is new: miniqueue has no dead letters."""


async def ensure_topic(broker: Broker, topic: str) -> None:
    """The topic is created where it is missing and that is allowed. Raises UnknownTopic."""
    try:
        broker.topics.partition_count(topic)
    except UnknownTopic:
        await broker.topics.ensure_topic(topic)
