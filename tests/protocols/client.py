"""What every client does, whatever protocol it speaks: one try at one node, and what it came to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from tests.protocols.ledger import Ledger

ANSWER_S = 20.0
"""How long a client waits for an answer."""
WAIT_S = 1.0
"""How long a consumer waits for messages before it looks whether it is all over."""
STREAM_S = 30.0
"""How long a subscription lasts: a connection that a broken network has forgotten tells nobody."""
Place = tuple[int, int]
"""A partition and an offset."""


class Unreachable(Exception):
    """The node does not answer, or has broken off: another one is to be asked."""


class Line(NamedTuple):
    """A message: a number that no other one has, and a line of a log."""

    number: int
    text: str

    @property
    def value(self) -> str:
        return f"{self.number} {self.text}"


class Door(NamedTuple):
    """Where a node listens: its host, and a port for each protocol."""

    host: str
    http: int
    redis: int
    h2: int
    grpc: int


@dataclass
class Told:
    """What became of some lines in one try, each by its number. What is in neither of the first
    two was certainly not stored."""

    stored: Counter[int] = field(default_factory=Counter[int])
    unknown: Counter[int] = field(default_factory=Counter[int])
    """It may have been stored so often, nobody was told."""
    places: dict[int, Place] = field(default_factory=dict[int, Place])
    """Where a line stands, if the protocol tells it."""
    refused: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    """Answers that nobody may get here."""


class Client(Protocol):
    """One of a kind, on a thread of its own. `stores_once`: what is published again after an
    unknown outcome is stored once. `sees_values`: its consumer is shown what it takes."""

    stores_once: ClassVar[bool]
    sees_values: ClassVar[bool]

    def __init__(self, topic: str, group: str, number: int) -> None: ...

    def publish(self, door: Door, lines: Sequence[Line]) -> Told:
        """One try."""
        ...

    def consume(self, door: Door, ledger: Ledger, is_over: threading.Event) -> None:
        """Take and ack until it is over. Raises Unreachable."""
        ...
