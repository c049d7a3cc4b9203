"""Who should consume which partition: pure functions, the same on every node.

Each takes which topics every member subscribes to, all their partitions in order, and who has what;
it answers with a member for every partition that anybody subscribes to. Many members have the same
subscription: those share one set, so that nothing is looked at once for each of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from goqueue.wire.types import PartitionId, TopicId

CHAINS_MAX = 1000
"""How often, at most, a balance is looked for that takes more than one move; what is not found
then stays as balanced as single moves have made it."""

Subscriptions = Mapping[str, frozenset[TopicId]]
Assignment = dict[PartitionId, str]
Assignor = Callable[[Subscriptions, Sequence[PartitionId], Mapping[PartitionId, str]], Assignment]


def sticky(
    subscriptions: Subscriptions,
    partitions: Sequence[PartitionId],
    current: Mapping[PartitionId, str],
) -> Assignment:
    """Balanced, and with few moves from `current`.

    Where all subscribe to the same, a join moves at most ceil(partitions / members), and a leave
    only what the leaver had. Loads differ by at most one, or as little as subscriptions allow.
    """
    loads = _Loads(subscriptions)
    homeless: list[PartitionId] = []
    for partition in partitions:
        owner = current.get(partition, "")
        if partition.topic in subscriptions.get(owner, ()):
            loads.give(owner, partition)
        else:
            homeless.append(partition)
    loads.weigh()
    homeless.sort(key=lambda partition: loads.takers(partition.topic))
    for partition in homeless:
        taker = loads.least_loaded(partition.topic)
        if taker is not None:
            loads.give(taker, partition)
    loads.balance()
    return loads.assignment()


def round_robin(
    subscriptions: Subscriptions,
    partitions: Sequence[PartitionId],
    _current: Mapping[PartitionId, str],
) -> Assignment:
    """All partitions in turn, to the members in the order of their names."""
    members = sorted(subscriptions)
    takers = _takers(subscriptions)
    found: Assignment = {}
    at = 0
    for partition in partitions:
        may = takers.get(partition.topic)
        if may:
            following = bisect_left(may, members[at])
            member = may[following % len(may)]
            found[partition] = member
            at = (bisect_left(members, member) + 1) % len(members)
    return found


def range_of_each_topic(
    subscriptions: Subscriptions,
    partitions: Sequence[PartitionId],
    _current: Mapping[PartitionId, str],
) -> Assignment:
    """Of each topic, neighbouring partitions together; the first members get one more."""
    takers = _takers(subscriptions)
    by_topic: dict[TopicId, list[PartitionId]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    found: Assignment = {}
    for topic, theirs in by_topic.items():
        members = takers.get(topic, [])
        share, rest = divmod(len(theirs), max(1, len(members)))
        at = 0
        for number, member in enumerate(members):
            count = share + (number < rest)
            found.update(dict.fromkeys(theirs[at : at + count], member))
            at += count
    return found


ASSIGNORS: Mapping[str, Assignor] = {
    "sticky": sticky,
    "range": range_of_each_topic,
    "roundrobin": round_robin,
}


def _alike(subscriptions: Subscriptions) -> dict[frozenset[TopicId], list[str]]:
    """Members by their subscription, in the order of their names."""
    sets: dict[int, list[str]] = {}
    by_id = {id(topics): topics for topics in subscriptions.values()}
    for member in sorted(subscriptions):
        sets.setdefault(id(subscriptions[member]), []).append(member)
    alike: dict[frozenset[TopicId], list[str]] = {}
    for number, members in sets.items():
        alike.setdefault(by_id[number], []).extend(members)
    return {topics: sorted(members) for topics, members in alike.items()}


def _takers(subscriptions: Subscriptions) -> dict[TopicId, list[str]]:
    """Who subscribes to each topic, in the order of names."""
    takers: dict[TopicId, list[str]] = {}
    for topics, members in _alike(subscriptions).items():
        for topic in topics:
            takers.setdefault(topic, []).extend(members)
    return {topic: sorted(members) for topic, members in takers.items()}


_Path = list[tuple[str, TopicId, str]]
"""(giver, topic, taker) of moves, the last one first."""


class _Loads:
    """How many partitions each member has, and who may take over from whom.

    Loads are balanced when there is no chain of moves, each to a member that subscribes to what it
    is given, from a member to one that has two less. Members of one subscription are a class: what
    one of them may take, all may, so a search looks at classes and at their least loaded member.
    """

    def __init__(self, subscriptions: Subscriptions) -> None:
        alike = _alike(subscriptions)
        self._classes = sorted(alike.values())
        self._open: dict[TopicId, list[int]] = {}
        numbers = {members[0]: number for number, members in enumerate(self._classes)}
        for topics, members in alike.items():
            for topic in topics:
                self._open.setdefault(topic, []).append(numbers[members[0]])
        for classes in self._open.values():
            classes.sort()
        self._class = {m: number for number, ms in enumerate(self._classes) for m in ms}
        self._held: dict[str, dict[TopicId, list[int]]] = {member: {} for member in self._class}
        """Per topic the negated numbers of partitions, as a heap: the last one goes first."""
        self._load = dict.fromkeys(self._class, 0)
        self._least: list[list[tuple[int, str]]] = []
        """Of each class, its members by load; those with another load by now are stale."""
        self._chains = 0

    def takers(self, topic: TopicId) -> int:
        """How many members subscribe to the topic."""
        return sum(len(self._classes[number]) for number in self._open.get(topic, ()))

    def give(self, member: str, partition: PartitionId) -> None:
        heapq.heappush(self._held[member].setdefault(partition.topic, []), -partition.partition)
        self._changed(member, 1)

    def weigh(self) -> None:
        """Begin to tell who has least."""
        self._least = [[(self._load[m], m) for m in members] for members in self._classes]
        for heap in self._least:
            heapq.heapify(heap)

    def least_loaded(self, topic: TopicId) -> str | None:
        """Who of the topic's subscribers has least."""
        heads = [self._head(number) for number in self._open.get(topic, ())]
        return min(heads)[1] if heads else None

    def balance(self) -> None:
        """Move what makes loads more equal, from the most loaded first."""
        heap = [(-load, member) for member, load in self._load.items()]
        heapq.heapify(heap)
        settled: set[str] = set()
        while heap:
            negated, member = heapq.heappop(heap)
            if -negated != self._load[member] or member in settled:
                continue
            path, seen = self._search(member)
            if path is None:
                settled.update(seen)
                continue
            for giver, topic, taker in path:
                self._move(giver, topic, taker)
            for changed in (member, path[0][2]):
                heapq.heappush(heap, (-self._load[changed], changed))

    def assignment(self) -> Assignment:
        return {
            PartitionId(topic, -number): member
            for member, topics in self._held.items()
            for topic, numbers in topics.items()
            for number in numbers
        }

    def _search(self, source: str) -> tuple[_Path | None, list[str]]:
        """The shortest chain of moves from a member to one that has two less; or all whom it can
        reach, none of whom can do better either, since they reach nobody else."""
        most = self._load[source] - 2
        came: dict[str, tuple[str, TopicId]] = {}
        looked_at: set[int] = set()
        queue = [source]
        for at, giver in enumerate(queue):
            if at == 1:
                self._chains += 1
                if self._chains > CHAINS_MAX:
                    return None, [source]
            for topic in sorted(self._held[giver], reverse=True):
                for number in self._open[topic]:
                    if number in looked_at:
                        continue
                    looked_at.add(number)
                    load, least = self._head(number)
                    if load <= most:
                        came[least] = (giver, topic)
                        return self._path(least, source, came), queue
                    fresh = [m for m in self._classes[number] if m != source and m not in came]
                    came.update(dict.fromkeys(fresh, (giver, topic)))
                    queue += fresh
        return None, queue

    @staticmethod
    def _path(last: str, source: str, came: Mapping[str, tuple[str, TopicId]]) -> _Path:
        path: _Path = []
        taker = last
        while taker != source:
            giver, topic = came[taker]
            path.append((giver, topic, taker))
            taker = giver
        return path

    def _move(self, giver: str, topic: TopicId, taker: str) -> None:
        numbers = self._held[giver][topic]
        number = -heapq.heappop(numbers)
        if not numbers:
            del self._held[giver][topic]
        self._changed(giver, -1)
        self.give(taker, PartitionId(topic, number))

    def _changed(self, member: str, difference: int) -> None:
        self._load[member] += difference
        if self._least:
            heapq.heappush(self._least[self._class[member]], (self._load[member], member))

    def _head(self, number: int) -> tuple[int, str]:
        heap = self._least[number]
        while heap[0][0] != self._load[heap[0][1]]:
            heapq.heappop(heap)
        return heap[0]
