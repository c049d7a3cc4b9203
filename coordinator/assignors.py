"""Who should consume which partition: pure functions, the same on every node.

Each takes what every member may be given, its subscribed partitions, and answers with a member for
every partition that anybody subscribes to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from goqueue.wire.types import GroupId

Subscriptions = Mapping[str, Sequence[GroupId]]
Assignment = dict[GroupId, str]


def sticky(subscriptions: Subscriptions, current: Mapping[GroupId, str]) -> Assignment:
    """Balanced, and with as few moves from `current` as balance needs.

    Where all subscribe to the same, a join moves at most ceil(partitions / members), and a leave
    only what the leaver had. Loads differ by at most one, as far as the subscriptions allow.
    """
    may_have = {member: frozenset(subscriptions[member]) for member in sorted(subscriptions)}
    held: dict[str, list[GroupId]] = {member: [] for member in may_have}
    homeless: list[GroupId] = []
    for partition in _partitions(subscriptions):
        owner = current.get(partition, "")
        if partition in may_have.get(owner, ()):
            held[owner].append(partition)
        else:
            homeless.append(partition)
    for partition in homeless:
        takers = [member for member in held if partition in may_have[member]]
        held[min(takers, key=lambda member: (len(held[member]), member))].append(partition)
    while _balance_once(held, may_have):
        pass
    return {partition: member for member, owned in held.items() for partition in owned}


def round_robin(subscriptions: Subscriptions, _current: Mapping[GroupId, str]) -> Assignment:
    """All partitions in turn, to the members in the order of their names."""
    members = sorted(subscriptions)
    may_have = {member: frozenset(subscriptions[member]) for member in members}
    found: Assignment = {}
    at = 0
    for partition in _partitions(subscriptions):
        while partition not in may_have[members[at % len(members)]]:
            at += 1
        found[partition] = members[at % len(members)]
        at += 1
    return found


def range_of_each_topic(
    subscriptions: Subscriptions, _current: Mapping[GroupId, str]
) -> Assignment:
    """Of each topic, neighbouring partitions together; the first members get one more."""
    found: Assignment = {}
    by_topic: dict[object, list[GroupId]] = {}
    for partition in _partitions(subscriptions):
        by_topic.setdefault(partition.topic, []).append(partition)
    may_have = {member: frozenset(subscriptions[member]) for member in sorted(subscriptions)}
    for partitions in by_topic.values():
        members = [member for member, mine in may_have.items() if partitions[0] in mine]
        share, rest = divmod(len(partitions), len(members))
        at = 0
        for number, member in enumerate(members):
            count = share + (number < rest)
            found.update(dict.fromkeys(partitions[at : at + count], member))
            at += count
    return found


ASSIGNORS: Mapping[str, Callable[[Subscriptions, Mapping[GroupId, str]], Assignment]] = {
    "sticky": sticky,
    "range": range_of_each_topic,
    "roundrobin": round_robin,
}


def _partitions(subscriptions: Subscriptions) -> list[GroupId]:
    return sorted({partition for mine in subscriptions.values() for partition in mine})


def _balance_once(
    held: Mapping[str, list[GroupId]], may_have: Mapping[str, frozenset[GroupId]]
) -> bool:
    """Move one partition from a member with two more than another; whether there was one."""
    by_load = sorted(held, key=lambda member: (len(held[member]), member))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(held[giver]) - len(held[taker]) < 2:
                break
            movable = [partition for partition in held[giver] if partition in may_have[taker]]
            if movable:
                moved = max(movable)
                held[giver].remove(moved)
                held[taker].append(moved)
                return True
    return False
