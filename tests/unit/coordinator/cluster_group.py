"""A cluster's state, fed with commands as entries would bring them."""

from __future__ import annotations

from coordinator.cluster.state import ClusterState, Topic
from coordinator.commands.codec import Command, RegisterBroker, decode_command, encode_command
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Index

START_MS = 1_700_000_000_000
CLUSTER = 0xC1


class Cluster:
    """A state with some brokers. Each command is an entry one millisecond after the one before."""

    def __init__(self, brokers: int = 3) -> None:
        self.state = ClusterState(CLUSTER)
        self.index = 1
        self.skipped_ms = 0
        for number in range(brokers):
            self.do(broker(f"n{number}"))

    @property
    def now_ms(self) -> int:
        """Log time of the newest entry."""
        return START_MS + self.index + self.skipped_ms

    def do(self, command: Command) -> object:
        """Apply a command that went through the wire; its result, or the error returned."""
        self.index += 1
        sent = decode_command(encode_command(command))
        return self.state.apply(Index(self.index), self.now_ms, sent)

    def pass_ms(self, span_ms: int) -> None:
        """Time goes by until the next entry."""
        self.skipped_ms += span_ms

    def refuses(self, command: Command, error: type[GoQueueError]) -> GoQueueError:
        """The command must be refused, and change nothing but the applied index and log time."""
        before = content(self.state)
        found = self.do(command)
        assert isinstance(found, error), found
        assert content(self.state) == before
        return found

    def topic(self, name: str) -> Topic:
        return self.state.topics[name]


def content(found: ClusterState) -> bytes:
    """The whole state but for the applied index and log time."""
    copy = ClusterState.restore(found.snapshot())
    copy.applied_index, copy.time_ms = Index(0), 0
    return copy.snapshot()


def broker(
    name: str, incarnation: int = 7, *, zone: str = "", replaces: bool = False
) -> RegisterBroker:
    return RegisterBroker(
        name, incarnation, f"{name}:7000", f"http://{name}:8080", zone, replaces=replaces
    )
