"""Topics' default compression: what JSON messages are stored with that came uncompressed.

It came with feature level 2, and is kept beside the topics' other settings: a snapshot of level 1
is as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from coordinator.errors import BadConfig
from coordinator.topics.partitions import Topic
from coordinator.topics.settings import alter_config
from goqueue.wire.compression import Codec
from goqueue.wire.types import TopicId

SETTING = "compression"
NONE = "none"
CODECS = tuple(codec.name.lower() for codec in Codec)


class Compressions:
    """By topic, where it is not `none`."""

    def __init__(self, rows: Iterable[tuple[TopicId, str]] = ()) -> None:
        self._by_topic = dict(rows)

    def of(self, topic: TopicId) -> str:
        return self._by_topic.get(topic, NONE)

    def put(self, topic: TopicId, codec: str | None) -> None:
        """None leaves it as it is."""
        if codec == NONE:
            self._by_topic.pop(topic, None)
        elif codec is not None:
            self._by_topic[topic] = codec

    def altered(self, topic: Topic, changes: Mapping[str, object]) -> Topic:
        """The topic with changed settings. Raises BadConfig, and changes nothing then."""
        others, codec = split(changes)
        config = alter_config(topic.config, others)
        self.put(topic.id, codec)
        return dataclasses.replace(topic, config=config)

    def dump(self) -> list[tuple[TopicId, str]]:
        return list(self._by_topic.items())


def split(settings: Mapping[str, object]) -> tuple[dict[str, object], str | None]:
    """All other settings, and the compression where it is named. Raises BadConfig."""
    others = dict(settings)
    codec = others.pop(SETTING, None)
    if codec is None:
        return others, None
    if codec not in CODECS:
        raise BadConfig([f"{SETTING}: {str(codec)[:40]!r} is not one of {', '.join(CODECS)}"])
    return others, str(codec)
