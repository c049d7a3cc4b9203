"""All subjects of the client but topics, publishing and reading, which `AsyncClient` has itself."""

from __future__ import annotations

from goqueue.archiving import Archiving
from goqueue.dead_letters import DeadLetters
from goqueue.events import EventFeed
from goqueue.explaining import Explaining
from goqueue.groups import Groups
from goqueue.members import Members
from goqueue.placement import Placement
from goqueue.positions import Positions
from goqueue.receiving import Receiving
from goqueue.replaying import Replaying
from goqueue.schedules import Schedules
from goqueue.searching import Searching


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
