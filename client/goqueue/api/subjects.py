"""All subjects of the client but topics, publishing and reading, which `AsyncClient` has itself."""

from __future__ import annotations

from goqueue.api.archived import Archiving
from goqueue.api.events import EventFeed
from goqueue.api.placement import Placement
from goqueue.api.replay import Replaying
from goqueue.api.search import Searching
from goqueue.api.why import Explaining
from goqueue.queue.dead_letters import DeadLetters
from goqueue.queue.groups import Groups
from goqueue.queue.members import Members
from goqueue.queue.positions import Positions
from goqueue.queue.receive import Receiving
from goqueue.queue.schedules import Schedules


class Subjects(
    Receiving,
    Groups,
    Members,
    Positions,
    DeadLetters,
    Schedules,
    Placement,
    Searching,
    Explaining,
    Archiving,
    EventFeed,
    Replaying,
):
    """Each is a part in a module of its own."""
