"""All messages of a partition in one group, as a feed of events has read them so far.

Most messages wait, or are settled: those are in sets. Of one that is in flight, has failed or is
dead, its `GroupStory` is kept.
"""

from __future__ import annotations

from heapq import heappush

import msgspec

from delivery.offsets.bitmaps import BitMap64
from delivery.timeline.groups import GroupStory


class EventGroup:
    """A group as of an entry; messages that are nowhere here wait for their first delivery."""

    def __init__(self, id: int, name: str, done: BitMap64) -> None:
        self.id = id
        self.name = name
        self.done = done
        """Settled; or never meant for the group, which comes to the same."""
        self.over = BitMap64()
        """Cancelled or expired before they were settled."""
        self.stories: dict[int, GroupStory] = {}
        self.died: list[tuple[int, int]] = []
        """(when, offset) of deaths, those that were undone included: a heap."""

    def of(self, offset: int) -> GroupStory:
        """The message's story, which the caller gives back by `put`."""
        found = self.stories.get(offset)
        if found is None:
            found = GroupStory(self.id, self.name)
            if offset in self.done:
                found.place = "settled"
            elif offset in self.over:
                found.place = "over"
        return found

    def put(self, offset: int, story: GroupStory) -> None:
        """As the story has it from now on."""
        place = story.place
        plain = place == "coming" and not (story.failed or story.redrives)
        if place in ("leased", "dead", "coming") and not plain:
            if place == "dead" and story.died_ms:
                heappush(self.died, (story.died_ms, offset))
            self.stories[offset] = story
        else:
            self.stories.pop(offset, None)
        if place in ("settled", "never"):
            self.done.add(offset)
            self.over.discard(offset)
        elif place == "over":
            self.over.add(offset)
            self.done.discard(offset)
        elif offset in self.done:
            self.done.discard(offset)
        elif offset in self.over:
            self.over.discard(offset)

    def leased(self) -> list[int]:
        """Messages in flight, in order."""
        return sorted(o for o, story in self.stories.items() if story.place == "leased")

    def waiting(self, stored: BitMap64) -> BitMap64:
        """Of these messages, those that nothing has happened to."""
        return stored - self.done - self.over - BitMap64(self.stories)

    def forget(self, gone: BitMap64) -> None:
        """These are not stored any more."""
        self.done -= gone
        self.over -= gone
        for offset in gone & BitMap64(self.stories):
            del self.stories[offset]

    def copy(self) -> EventGroup:
        """The same, going its own way."""
        found = EventGroup(self.id, self.name, self.done.copy())
        found.over = self.over.copy()
        found.stories = {o: msgspec.structs.replace(s) for o, s in self.stories.items()}
        found.died = self.died.copy()
        return found
