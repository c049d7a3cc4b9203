"""Partitions of members as requests name them and as answers show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from goqueue.wire.ids import validate_topic_name
from node.api.members import Place as Named
from node.http.text.known_fields import Body

PLACE_WORK_BYTES = 200
"""What looking at one place takes, in bytes of other work: a thread looks at more than 1,300."""

Partition = Annotated[int, Meta(ge=0, lt=2**31)]


class Place(Body):
    """One partition of one topic."""

    topic: str
    partition: Partition


def named_places(given: Sequence[Place]) -> list[Named]:
    """Raises BadName."""
    return [(validate_topic_name(place.topic), place.partition) for place in given]


def shown_places(places: Sequence[Named]) -> list[Place]:
    return [Place(topic, partition) for topic, partition in places]


def place_texts(places: Sequence[Named], *, topics: int | None = None) -> list[str]:
    """As GoQueue's clients read them: `0`, or `topic:0` where there are several topics."""
    count = len({topic for topic, _ in places}) if topics is None else topics
    if count <= 1:
        return [str(partition) for _, partition in places]
    return [f"{topic}:{partition}" for topic, partition in places]
