"""What the HTTP front asks of the node beneath it: parts, each with its methods and their rules.

The node implements this over the cluster (`node.broker`). Every method may raise a `GoQueueError`,
which the front renders as it is; any other exception is a fault of the node and answers 500.
"""

from __future__ import annotations

from typing import Protocol

from node.api.archive import Archives
from node.api.compaction import Compactions
from node.api.dead_letters import DeadLetters, Redrives
from node.api.delays import Delays, Schedules
from node.api.figures import Figures
from node.api.groups import Groups, Owners
from node.api.members import Members, Polls, Positions
from node.api.node import Node
from node.api.placement import Placement
from node.api.queue import Queue, Receipts
from node.api.records import Records
from node.api.scrub import Scrubs
from node.api.search import Search
from node.api.shares import TenantShares
from node.api.streams import Streams
from node.api.topics import Topics
from node.api.traces import Traces
from node.api.trims import Trims
from node.api.upgrade import Upgrade


class Broker(Protocol):
    """One node of the cluster. Any node serves any request, forwarding where it must.

    All coroutines run on the node's event loop. A call that is cancelled after it sent something
    may still take effect: its outcome is unknown.
    """

    @property
    def topics(self) -> Topics: ...

    @property
    def records(self) -> Records: ...

    @property
    def queue(self) -> Queue: ...

    @property
    def receipts(self) -> Receipts: ...

    @property
    def streams(self) -> Streams: ...

    @property
    def polls(self) -> Polls: ...

    @property
    def groups(self) -> Groups: ...

    @property
    def owners(self) -> Owners: ...

    @property
    def members(self) -> Members: ...

    @property
    def positions(self) -> Positions: ...

    @property
    def figures(self) -> Figures: ...

    @property
    def letters(self) -> DeadLetters: ...

    @property
    def redriving(self) -> Redrives: ...

    @property
    def delays(self) -> Delays: ...

    @property
    def scheduling(self) -> Schedules: ...

    @property
    def lookup(self) -> Search: ...

    @property
    def traces(self) -> Traces: ...

    @property
    def placement(self) -> Placement: ...

    @property
    def compactions(self) -> Compactions: ...

    @property
    def trims(self) -> Trims: ...

    @property
    def archives(self) -> Archives: ...

    @property
    def scrubs(self) -> Scrubs: ...

    @property
    def upgrade(self) -> Upgrade: ...

    @property
    def node(self) -> Node: ...

    @property
    def shares(self) -> TenantShares: ...
