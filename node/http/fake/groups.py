"""The groups of the fake broker, and where each stands in each partition that it has seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coordinator.commands.queue import AssignGroup, DeleteGroup, PutGroup
from coordinator.groups.settings import Group, Groups
from delivery.config import GroupConfig
from goqueue.wire.types import Index, PartitionId
from node.api.claims import NOBODYS, Maker, Ownership
from node.api.dead_letters import RedriveView
from node.api.groups import GroupView, Owners
from node.http.fake.delays import FakeDelays
from node.http.fake.group import FakeGroup
from node.queue.group_admin import delivery_config, group_view

Place = tuple[str, int]


@dataclass(slots=True)
class Named:
    """A group of the cluster, with its place in each partition that it has seen."""

    group: Group
    places: dict[Place, FakeGroup] = field(default_factory=dict[Place, FakeGroup])
    jobs: list[RedriveView] = field(default_factory=list[RedriveView])

    @property
    def config(self) -> GroupConfig:
        return delivery_config(self.group.settings)


class FakeGroups(FakeDelays):
    """The groups' part of `FakeBroker`, which says where the partitions are."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms)
        self._known = Groups()
        self.owners: Owners = FakeOwners(self._known)
        self._groups: dict[str, Named] = {}
        self._commands = 0

    async def put_group(
        self, name: str, settings: Mapping[str, object], maker: Maker = NOBODYS
    ) -> GroupView:
        command = PutGroup(name, dict(settings), owner=maker.owner, judged=maker.judged)
        return self._view(self._put(command).group)

    async def list_groups(self) -> list[GroupView]:
        return [self._view(self._groups[name].group) for name in sorted(self._groups)]

    async def group(self, name: str, topic: str | None = None) -> GroupView:
        named = self._group(name)
        if topic is not None:
            self.partition_count(topic)
        views = [
            place.view(*where)
            for where, place in sorted(self._live(named))
            if topic in (None, where[0])
        ]
        return replace(self._view(named.group), partitions=views)

    async def delete_group(self, name: str, *, force: bool = False) -> None:
        self._known.delete(DeleteGroup(name, force=force))
        del self._groups[name]

    # how

    def _put(self, command: PutGroup) -> Named:
        """The group after the command. Raises BadName, BadConfig."""
        self._commands += 1
        self._known.put(Index(self._commands), self._clock_ms(), command)
        group = self._known.named(command.name)
        named = self._groups.setdefault(command.name, Named(group))
        named.group = group
        for place in named.places.values():
            place.config = named.config
        return named

    def _ensured(self, name: str, maker: Maker) -> Named:
        command = PutGroup(name, ensure=True, owner=maker.owner, judged=maker.judged)
        return self._groups.get(name) or self._put(command)

    def _group(self, name: str) -> Named:
        self._known.named(name)
        return self._groups[name]

    def _places(
        self, named: Named, topics: Sequence[str], partitions: Sequence[int] | None
    ) -> Iterator[tuple[str, int, FakeGroup]]:
        for topic in topics:
            for partition in partitions or range(self.partition_count(topic)):
                yield topic, partition, self._place(named, topic, partition)

    def _place(self, named: Named, topic: str, partition: int) -> FakeGroup:
        log = self._log(topic, partition)
        place = named.places.get((topic, partition))
        if place is None or place.log is not log:
            place = FakeGroup(log, named.config, self._clock_ms)
            named.places[topic, partition] = place
        return place

    def _place_by_id(self, group: int, partition: PartitionId) -> FakeGroup | None:
        """Where a group stands in a partition; None where one of them is gone."""
        ref = self._known.by_id().get(group)
        if ref is None:
            return None
        for name in self.list_topics():
            if self.topic_id(name) == str(partition.topic):
                return self._place(self._groups[ref.name], name, partition.partition)
        return None

    def _live(self, named: Named) -> list[tuple[Place, FakeGroup]]:
        """Places in topics that are still there, and still the same."""
        topics = set(self.list_topics())
        return [
            (where, place)
            for where, place in named.places.items()
            if where[0] in topics and place.log is self._log(*where)
        ]

    def _view(self, group: Group) -> GroupView:
        owner = self._known.owners.get(group.id)
        return replace(group_view(group), owner=owner)


class FakeOwners:
    """Implements `Owners`. No name is reserved: the fake knows no keys."""

    def __init__(self, known: Groups) -> None:
        self._known = known

    def ownership(self, group: str) -> Ownership | None:
        known = self._known.by_name.get(group)
        return None if known is None else Ownership(known.id, self._known.owners.get(known.id))

    async def find_ownership(self, group: str) -> Ownership | None:
        return self.ownership(group)

    def is_reserved(self, group: str) -> bool:
        return False

    async def assign_group(self, group: str, owner: str) -> GroupView:
        self._known.assign(AssignGroup(group, owner))
        return replace(group_view(self._known.named(group)), owner=owner)
