"""Waiting for changes of the cluster's state that concern the members of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from coordinator.commands.codec import AlterTopic, Command, CreateTopic, DeleteTopic
from coordinator.commands.members import ExpireMembers, HandOver, JoinGroup, LeaveGroup, LetGo
from coordinator.commands.placement import AddPartitions
from coordinator.commands.queue import DeleteGroup, PutGroup

_OF_ONE_GROUP = (JoinGroup, LeaveGroup, ExpireMembers, LetGo, HandOver)
_OF_ANY_GROUP = (CreateTopic, AlterTopic, DeleteTopic, AddPartitions, PutGroup, DeleteGroup)


class Changes:
    """Sets the events of those who watch, as commands apply. Loop thread only."""

    def __init__(self) -> None:
        self._watching: dict[int, set[asyncio.Event]] = {}
        self._watching_all: set[asyncio.Event] = set()

    def wakes(self, event: asyncio.Event) -> None:
        """Set this event at every change, until `wakes_no_more`."""
        self._watching_all.add(event)

    def wakes_no_more(self, event: asyncio.Event) -> None:
        self._watching_all.discard(event)

    @contextmanager
    def watch(self, group: int) -> Iterator[asyncio.Event]:
        """An event that is set by every change that may concern this group. Whoever clears it,
        looks, and only then waits misses nothing."""
        event = asyncio.Event()
        watching = self._watching.setdefault(group, set())
        watching.add(event)
        try:
            yield event
        finally:
            watching.discard(event)
            if not watching and self._watching.get(group) is watching:
                del self._watching[group]

    def applied(self, command: Command) -> None:
        """A command has changed the state."""
        if isinstance(command, _OF_ONE_GROUP):
            _set(self._watching_all)
            _set(self._watching.get(command.group_id, ()))
        elif isinstance(command, _OF_ANY_GROUP):
            self.everything()

    def everything(self) -> None:
        """Anything may be another than it was."""
        _set(self._watching_all)
        for watching in self._watching.values():
            _set(watching)


def _set(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()
