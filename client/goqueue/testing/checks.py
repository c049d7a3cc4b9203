"""What became of messages, and how that is told where a test expected something else."""

from __future__ import annotations

from goqueue.api.search import FoundMessage, Timeline
from goqueue.blocking.client import Client
from goqueue.local.engine import Ask
from goqueue.models.messages import Message, Published
from goqueue.models.queued import DeadLetter
from goqueue.testing.channel import MemoryChannel
from goqueue.wire.errors import GoQueueError, UnknownGroup, UnknownTopic

SHOWN_MAX = 10
"""Timelines in one message of an error."""
VALUE_MAX = 60
NOT_ACKED = ("delayed", "ready", "in_flight", "retrying", "dead", "cancelled", "expired")


class Checks:
    """Asks the broker of a test, past whatever the test makes fail."""

    def __init__(self, ask: Ask) -> None:
        self._client = Client(MemoryChannel(ask))

    def close(self) -> None:
        """Idempotent."""
        self._client.close()

    def assert_acked(self, topic: str, group: str, count: int | None) -> None:
        acked, stored = self._acked(topic, group), self._stored(topic)
        wanted = max(1, stored) if count is None else count
        if acked != wanted:
            told = f"group {group} has acked {acked} of {stored} messages of {topic}"
            raise AssertionError(f"{told}, expected {wanted}{self._not_acked(topic, group)}")

    def dead_letters(self, topic: str, group: str) -> list[DeadLetter]:
        try:
            return list(self._client.dead_letters(group, topic))
        except (UnknownGroup, UnknownTopic):
            return []

    def timeline(self, message: str | Published | Message, topic: str | None) -> Timeline:
        id = message if isinstance(message, str) else message.id
        return self._client.timeline(id, topic=topic)

    def unfinished(self) -> str:
        """The timelines of messages that some group has not done, each under an empty line."""
        return self._told(list(self._client.search(status="in_progress", limit=SHOWN_MAX)))

    def _acked(self, topic: str, group: str) -> int:
        try:
            places = self._client.group(group).partitions
        except UnknownGroup:
            return 0
        return sum(place.acked for place in places if place.topic == topic)

    def _stored(self, topic: str) -> int:
        try:
            return sum(one.messages for one in self._client.partitions(topic))
        except UnknownTopic:
            return 0

    def _not_acked(self, topic: str, group: str) -> str:
        try:
            found = self._client.search(topic, group=group, state=NOT_ACKED, limit=SHOWN_MAX)
        except (UnknownGroup, UnknownTopic) as error:
            return f": {error.message}"
        return self._told(list(found))

    def _told(self, found: list[FoundMessage]) -> str:
        return "".join(f"\n\n{self._story(message)}" for message in reversed(found))

    def _story(self, message: FoundMessage) -> str:
        try:
            return timeline_text(self.timeline(message, None), message)
        except GoQueueError as error:
            return f"{message.topic}:{message.partition}:{message.offset}: {error.message}"


def timeline_text(timeline: Timeline, message: Message | None = None) -> str:
    """A message and what happened to it, a line an event."""
    value = "" if message is None else f" {message.value!r:.{VALUE_MAX}}"
    states = ", ".join(f"{state.group}: {state.state}" for state in timeline.states)
    lines = [f"{timeline.id}{value} {timeline.status}" + (f" ({states})" if states else "")]
    for event in timeline.events:
        told = " ".join(f"{name}={value}" for name, value in event.attributes.items())
        lines.append(f"  {event.time:%Y-%m-%d %H:%M:%S.%f} {event.type} {told}".rstrip())
    return "\n".join(lines)
