"""How much of what the cluster bounds one tenant may hold, so that none of them fills it.

A tenant is what a key's prefixes reach. It may hold a quarter of each bound; and what is left once
the cluster is nearly full is for tenants that hold little. Keys of all topics, or all groups, have
no share. It is held at the node that is asked, against what that node has applied: a burst may go
beyond it by what is on its way, the bound itself is the cluster group's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from coordinator.cluster.state import ClusterState
from coordinator.errors import ShareFull
from coordinator.groups.memberships import MEMBERS_TOTAL_MAX
from coordinator.groups.settings import GROUPS_MAX
from coordinator.jobs.schedules import BYTES_TOTAL_MAX, SCHEDULES_MAX, message_bytes
from coordinator.placement.partition_count import PARTITIONS_TOTAL_MAX, TOPICS_MAX
from coordinator.topics.producers import TRANSACTIONAL_IDS_MAX
from node.api.shares import Prefixes

SHARE_PERCENT = 25
"""Of a bound, for one tenant: three that are at odds with everybody leave room for a fourth."""
KEPT_PERCENT = 10
"""Of a bound, for tenants that hold little."""
LITTLE_PERCENT = 1
COUNT_LIVES_S = 0.2
"""A tenant at its share costs five counts a second, however often it asks: the longest, of 100,000
transactional ids, takes some 10 ms."""
COUNTS_MAX = 1000
"""Counts that are remembered, of a bound and a tenant each."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What there may be at most, in all."""

    name: str
    most: int

    @property
    def share(self) -> int:
        return self.most * SHARE_PERCENT // 100

    def limit(self, total: int) -> int:
        """What one tenant may hold while there are so many."""
        is_scarce = total > self.most * (100 - KEPT_PERCENT) // 100
        return self.most * LITTLE_PERCENT // 100 if is_scarce else self.share


TOPICS = Bound("topics", TOPICS_MAX)
PARTITIONS = Bound("partitions", PARTITIONS_TOTAL_MAX)
GROUPS = Bound("groups", GROUPS_MAX)
MEMBERS = Bound("members of groups", MEMBERS_TOTAL_MAX)
SCHEDULES = Bound("schedules", SCHEDULES_MAX)
SCHEDULE_BYTES = Bound("bytes of schedules", BYTES_TOTAL_MAX)
TRANSACTIONAL_IDS = Bound("transactional ids", TRANSACTIONAL_IDS_MAX)


@dataclass(slots=True)
class _Count:
    """What there is in all, and a tenant's part; with what was let in since it was counted."""

    ends_s: float
    total: int
    held: int


class Shares:
    """Implements `node.api.shares.TenantShares`. Loop thread only."""

    def __init__(
        self,
        state: Callable[[], ClusterState],
        partitions_default: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._partitions_default = partitions_default
        self._now_s = now_s
        self._counts: dict[tuple[Bound, Prefixes], _Count] = {}

    def topic(self, prefixes: Prefixes, name: str, partitions: object) -> None:
        topics = self._state().topics
        if name in topics:
            return
        self._require(TOPICS, prefixes, lambda: ((name, 1) for name in topics))
        count = partitions if isinstance(partitions, int) else self._partitions_default
        self.partitions(prefixes, count)

    def partitions(self, prefixes: Prefixes, more: int) -> None:
        topics = self._state().topics.values()
        self._require(
            PARTITIONS, prefixes, lambda: ((t.name, len(t.partitions)) for t in topics), more
        )

    def group(self, prefixes: Prefixes, name: str) -> None:
        state = self._state()
        if name not in state.groups:
            owners = state.group_owners
            self._require(
                GROUPS,
                prefixes,
                lambda: ((owners.get(g.id) or g.name, 1) for g in state.groups.values()),
            )

    def member(self, prefixes: Prefixes, group: str, instance_id: str) -> None:
        state = self._state()
        known = state.groups.get(group)
        if known is not None and instance_id:
            members = state.members.of(known).members.values()
            if any(one.instance_id == instance_id for one in members):
                return  # takes its place

        def rows() -> Iterable[tuple[str, int]]:
            for id, membership in state.members.by_group.items():
                found = state.group_of(id)
                name = "" if found is None else found.name
                yield state.group_owners.get(id) or name, len(membership.members)

        self._require(MEMBERS, prefixes, rows)

    def schedule(self, prefixes: Prefixes, schedule: Mapping[str, object]) -> None:
        known = self._state().schedules
        before = known.get(str(schedule.get("name")))
        if before is None:
            self._require(SCHEDULES, prefixes, lambda: ((s.topic, 1) for s in known.values()))
        value, key, headers = (schedule.get(name) for name in ("value", "key", "headers"))
        size = message_bytes(value or b"", key, headers or ())  # type: ignore[arg-type]
        more = size - (0 if before is None else before.size_bytes)
        if more > 0:
            self._require(
                SCHEDULE_BYTES,
                prefixes,
                lambda: ((s.topic, s.size_bytes) for s in known.values()),
                more,
            )

    def transactional_id(self, prefixes: Prefixes, id: str) -> None:
        state = self._state()
        if id not in state.producers.named:
            self._require(
                TRANSACTIONAL_IDS,
                prefixes,
                lambda: ((one, 1) for one in state.producers.fresh(state.time_ms)),
            )

    def _require(
        self,
        bound: Bound,
        prefixes: Prefixes,
        rows: Callable[[], Iterable[tuple[str, int]]],
        more: int = 1,
    ) -> None:
        """`rows` are all that count, each with the name that its tenant's prefixes begin."""
        if "" in prefixes or more <= 0:
            return
        count = self._count(bound, prefixes, rows)
        limit = bound.limit(count.total + more)
        if count.held + more > limit:
            raise ShareFull(bound.name, limit, bound.most, prefixes)
        count.total += more
        count.held += more

    def _count(
        self, bound: Bound, prefixes: Prefixes, rows: Callable[[], Iterable[tuple[str, int]]]
    ) -> _Count:
        known = self._counts.get((bound, prefixes))
        if known is not None and self._now_s() < known.ends_s:
            return known
        total = held = 0
        for name, size in rows():
            total += size
            held += size if name.startswith(prefixes) else 0
        if len(self._counts) >= COUNTS_MAX:
            self._counts.clear()
        count = _Count(self._now_s() + COUNT_LIVES_S, total, held)
        self._counts[bound, prefixes] = count
        return count
