"""The topic that a queue is made of, where it is not there yet."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, TypedDict, cast

from goqueue.blocking.client import Client
from goqueue.models.options import check_options
from goqueue.models.times import Duration, retention_ms
from goqueue.wire.errors import BadRequest, TopicExists, UnknownTopic

Durability = Literal["safe", "turbo"]
DURABILITIES = {"safe": "majority", "turbo": "relaxed"}
"""As a topic's `durability` calls them."""


class NewTopic(TypedDict, total=False):
    """What `Queue` takes for a topic that it makes: one partition, all messages kept, and safe,
    where it is not given."""

    partitions: int
    keep: Duration | None
    durability: Durability


def check(new: NewTopic) -> None:
    """Raises TypeError for an option that there is none of, and BadRequest for a value."""
    check_options("Queue()", new, NewTopic)
    durability = new.get("durability", "safe")
    if durability not in DURABILITIES:
        raise BadRequest(f"durability {durability!r}: want {' or '.join(DURABILITIES)}")


def create(client: Client, topic: str, new: NewTopic) -> None:
    """A topic that keeps what nobody has taken out. Raises TopicExists."""
    client.create_topic(
        topic,
        partitions=new.get("partitions", 1),
        retention_ms=retention_ms(new.get("keep")),
        retention_bytes=-1,
        durability=cast(Any, DURABILITIES[new.get("durability", "safe")]),
    )


def create_if_missing(client: Client, topic: str, new: NewTopic) -> None:
    try:
        client.topic(topic)
    except UnknownTopic:
        with suppress(TopicExists):  # another one has just made it
            create(client, topic, new)
