"""Looks at replicas again and again see those that may have changed."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.wire.types import PartitionId, TopicId
from node.runtime.looks import Looks


@dataclass(eq=False)
class Replica:
    id: PartitionId
    rests: bool = True


def replicas(count: int) -> list[Replica]:
    return [Replica(PartitionId(TopicId(1, 7), number)) for number in range(count)]


def test_all_are_looked_at_first_and_then_those_that_are_awake() -> None:
    hosts = replicas(3)
    hosts[1].rests = False
    looks = Looks(lambda: hosts)

    assert looks.take() == hosts
    assert looks.take() == looks.take() == [hosts[1]]

    hosts[1].rests = True
    assert looks.take() == [hosts[1]], "it may have changed before it went to rest"
    assert looks.take() == []


def test_one_that_was_roused_and_rests_again_is_looked_at_once_more() -> None:
    hosts = replicas(2)
    looks = Looks(lambda: hosts)
    looks.take()

    looks.again(hosts[0])

    assert looks.take() == [hosts[0]]
    assert looks.take() == []


def test_one_that_is_gone_is_looked_at_no_more() -> None:
    hosts = replicas(2)
    looks = Looks(lambda: hosts, share=1)
    looks.take()
    gone = hosts.pop()

    looks.again(gone)
    looks.forget(gone.id)

    assert looks.take() == hosts


def test_all_are_looked_at_where_what_they_are_compared_with_is_another_one() -> None:
    hosts = replicas(2)
    looks = Looks(lambda: hosts)
    looks.take(1)
    assert looks.take(1) == []

    assert looks.take(2) == hosts
    assert looks.take(2) == []


def test_each_that_rests_has_its_turn_once_in_a_round() -> None:
    hosts = replicas(10)
    looks = Looks(lambda: hosts, share=4)
    looks.take()

    seen = [looks.take() for _ in range(3)]

    assert [len(one) for one in seen] == [3, 3, 1]
    turned = {host.id for one in seen for host in one}
    assert len(turned) == 7 and turned.isdisjoint(host.id for host in hosts[:3]), "the first look's"
    assert [host for _ in range(4) for host in looks.take()] == hosts, "and so on"


class Asked:
    """A replica that counts how often it is asked who it is."""

    def __init__(self, number: int) -> None:
        self.own = PartitionId(TopicId(1, 7), number)
        self.rests = True
        self.times = 0

    @property
    def id(self) -> PartitionId:
        self.times += 1
        return self.own


def test_one_that_goes_costs_the_same_whatever_the_others_are() -> None:
    """A node that stops, or a topic that is deleted, forgets thousands one by one."""
    hosts = [Asked(number) for number in range(240)]
    looks = Looks(lambda: hosts, share=120)
    looks.take()
    before = sum(host.times for host in hosts)

    for host in hosts:
        looks.forget(host.own)

    assert sum(host.times for host in hosts) == before
    hosts.clear()
    assert looks.take() == []
