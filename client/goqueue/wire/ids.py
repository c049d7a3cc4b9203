"""Names and ids that people type: topic names, and message ids `topic:partition:offset`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from goqueue.wire.errors import BadName, BadRequest
from goqueue.wire.types import Offset

NAME_CHARACTERS_MAX = 249
DEAD_LETTER_SUFFIX = ".dlq"
INTERNAL_PREFIX = "__"
"""Of topics that the cluster keeps for itself; no name of a user's begins so."""
AUDIT_TOPIC = "__audit"
INTERNAL_TOPICS = frozenset((AUDIT_TOPIC,))
PARTITIONS_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,248}", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


def is_name(text: str) -> bool:
    """Whether this is a legal topic or group name."""
    return _NAME.fullmatch(text) is not None


def validate_topic_name(name: str, *, allow_dead_letter: bool = False) -> str:
    """The name itself. Raises BadName if it is illegal, or reserved for dead letters."""
    if not is_name(name):
        raise BadName(
            f"bad topic name {name[:64]!r}: names match [A-Za-z0-9][A-Za-z0-9._-]{{0,248}}",
            name=name[:64],
        )
    if name.endswith(DEAD_LETTER_SUFFIX) and not allow_dead_letter:
        raise BadName(f"topic name {name!r}: the suffix .dlq is reserved", name=name)
    return name


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """Where a message stands, for ever: topic, partition and offset."""

    topic: str
    partition: int
    offset: Offset

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """The id that `str()` wrote. Raises BadRequest on anything else."""
        topic, _, rest = text.partition(":")
        partition, _, offset = rest.partition(":")
        numbers = _NUMBER.fullmatch(partition) and _NUMBER.fullmatch(offset)
        if not (numbers and is_name(topic)):
            raise BadRequest(f"bad message id {text[:300]!r}: want topic:partition:offset")
        if int(partition) > PARTITIONS_MAX or int(offset) > OFFSET_MAX:
            raise BadRequest(f"bad message id {text[:300]!r}: number too large")
        return cls(topic, int(partition), Offset(int(offset)))
