"""What the HTTP front asks of the node beneath it: every method, declared once, with its rule.

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
from node.api.members import Members, Positions
from node.api.node import Node
from node.api.placement import Placement
from node.api.queue import Queue
from node.api.records import Records
from node.api.rules.rule import admins, free, scoped
from node.api.scrub import Scrubs
from node.api.search import Search
from node.api.shares import TenantShares
from node.api.topics import Topics
from node.api.traces import Traces
from node.api.upgrade import Upgrade


class Broker(
    Topics,
    Records,
    Queue,
    Figures,
    Groups,
    Members,
    Positions,
    DeadLetters,
    Redrives,
    Delays,
    Schedules,
    Search,
    Traces,
    Placement,
    Compactions,
    Archives,
    Scrubs,
    Upgrade,
    Node,
    Protocol,
):
    """One node of the cluster. Any node serves any request, forwarding where it must.

    All coroutines run on the node's event loop. A call that is cancelled after it sent something
    may still take effect: its outcome is unknown.
    """

    @property
    @scoped(free)
    def node_id(self) -> str: ...

    @property
    @scoped(admins)
    def owners(self) -> Owners:
        """Whose groups are whose."""
        ...

    @property
    @scoped(admins)
    def shares(self) -> TenantShares:
        """What tenants may hold."""
        ...
