"""How far the fake broker's groups have come, and positions that are reset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from coordinator.groups.membership import GroupMembership
from coordinator.groups.settings import Group
from goqueue.wire.errors import GroupActive
from node.api.claims import FORCED, Claim
from node.api.members import LagView, ResetTo, ResetView
from node.http.fake.group import FakeGroup
from node.http.fake.queue import FakeQueue


class FakeLags(FakeQueue):
    """The part of `FakeBroker` that concerns positions."""

    @abstractmethod
    def _members(self, ref: Group) -> GroupMembership: ...

    async def lag(self, group: str, topics: Sequence[str] | None = None) -> list[LagView]:
        self._reconcile()
        named = self._group(group)
        members = self._members(named.group).members.values()
        if topics is None:
            seen = {topic for (topic, _), _ in self._live(named)}
            topics = [
                topic
                for topic in self.list_topics()
                if topic in seen or any(member.subscribes_to(topic) for member in members)
            ]
        places = self._places(named, topics, None)
        return [self._lag_view(topic, number, place) for topic, number, place in places]

    def _lag_view(self, topic: str, partition: int, place: FakeGroup) -> LagView:
        view = place.view(topic, partition)
        waiting = [one for one in self._delayed(topic) if one.state == "pending"]
        delayed = sum(
            o.partition == partition and o.offset >= place.committed_offset for o in waiting
        )
        return LagView(
            topic,
            partition,
            view.committed_offset,
            view.end,
            view.lag,
            place.oldest_ms(),
            view.in_flight,
            delayed,
            view.dead,
            place.owner.member,
            place.owner.generation,
        )

    async def reset(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        partitions: Sequence[int] | None,
        dry_run: bool,
        claim: Claim,
    ) -> list[ResetView]:
        self._check([topic], partitions)
        self._reconcile()
        named = self._group(group)
        places = list(self._places(named, [topic], partitions))
        members = self._members(named.group).members
        owners = {place.owner.member for _, _, place in places}
        owns_all = claim.member != "" and owners == {claim.member}
        is_forced = claim.generation == FORCED.generation
        if members and not (is_forced or owns_all or list(members) == [claim.member]):
            raise GroupActive(
                f"group {group} has {len(members)} active member{'s' * (len(members) != 1)}",
                group=group,
                members=len(members),
            )
        self._check_owner(places, claim)
        return [self._reset(place, topic, number, to, dry_run) for _, number, place in places]

    def _reset(
        self, place: FakeGroup, topic: str, partition: int, to: ResetTo, dry_run: bool
    ) -> ResetView:
        before, log = place.committed_offset, place.log.partition
        after = min(max(self._target(place, to), log.start), log.next)
        pending = place.pending()
        if not dry_run:
            place.seek(after)
        return ResetView(
            topic,
            partition,
            before,
            after,
            sum(offset >= after for offset in place.stored() - pending),
            sum(offset < after for offset in pending),
        )

    def _target(self, place: FakeGroup, to: ResetTo) -> int:
        log = place.log.partition
        if to.at is not None:
            return log.start if to.at == "earliest" else log.next
        if to.offset is not None:
            return to.offset
        if to.shift is not None:
            return place.committed_offset + to.shift
        time_ms = to.time_ms if to.duration_ms is None else self._clock_ms() - to.duration_ms
        later = (r.offset for r in place.log.records() if r.time_ms >= (time_ms or 0))
        return next(later, log.next)
