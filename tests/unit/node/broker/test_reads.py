"""An answer that says where a log ends is confirmed by its leader, or says that it is stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coordinator.cluster.state import Topic
from goqueue import AsyncClient, RetryPolicy
from goqueue.wire.errors import NoQuorum, OffsetOutOfRange, Timeout
from goqueue.wire.types import Offset, PartitionId
from node.api.records import Slice
from node.partition.host import PartitionHost
from tests.unit.node.broker.cut_links import CutLinks
from tests.unit.node.test_node import append, eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes, all_ready

QUICK = RetryPolicy(backoff_s=0.001, backoff_max_s=0.02)


class Scene:
    """A partition `t:0` on three nodes: one leads it, and one is to fall behind."""

    def __init__(self, nodes: ThreeNodes, links: CutLinks, leader: str) -> None:
        self.nodes, self.links, self.leader = nodes, links, leader
        self.behind, self.other = (name for name in NAMES if name != leader)

    @property
    def partition_id(self) -> PartitionId:
        topic: Topic = self.nodes.broker(self.leader).topics._cluster.state.topics["t"]
        return PartitionId(topic.id, 0)

    def host(self, name: str) -> PartitionHost:
        found = self.nodes.broker(name).topics._replicas.find(self.partition_id)
        assert found is not None
        return found

    async def publish(self, count: int) -> None:
        """Acked, one by one."""
        for number in range(count):
            await append(self.nodes.running[self.leader], str(number))

    async def all_have(self, count: int) -> None:
        names = list(self.nodes.running)
        await eventually(lambda: all(self.host(name).end_offset == count for name in names), 20)

    async def read(self, name: str, offset: int = 0, **asked: bool) -> Slice:
        return await self.nodes.broker(name).records.read(
            "t", 0, Offset(offset), max_records=1000, max_bytes=1 << 20, wait_s=0, **asked
        )

    async def told(self, name: str) -> tuple[int, bool]:
        """The end that a node tells of the partition, and whether it says that it is stale."""
        (view,) = (await self.nodes.broker(name).topics.topic("t")).partitions
        return view.next, view.stale

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.nodes.running[name].front.port}"


def leader_of(nodes: ThreeNodes, partition_id: PartitionId) -> str | None:
    hosts = {
        name: node.broker.topics._replicas.find(partition_id)
        for name, node in nodes.running.items()
    }
    leading = [name for name, host in hosts.items() if host is not None and host.is_leader]
    return leading[0] if len(leading) == 1 else None


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr("node.broker.reads.CONFIRM_S", 0.5)
    monkeypatch.setattr("node.replicas.offsets.TELL_S", 0.5)
    links = CutLinks(monkeypatch)
    async with all_ready(ThreeNodes(**{"raft.leaderBalance": "168h"})) as nodes:
        settings = {"partitions": 1, "replication_factor": 3}
        await nodes.broker("n1").topics.create_topic("t", settings)
        partition_id = PartitionId(nodes.broker("n1").topics._cluster.state.topics["t"].id, 0)
        await eventually(lambda: leader_of(nodes, partition_id) is not None)
        leader = leader_of(nodes, partition_id)
        assert leader is not None
        yield Scene(nodes, links, leader)
        links.heal()


async def test_a_replica_that_lags_says_stale_until_its_leader_answers(scene: Scene) -> None:
    """Given a replica that its leader can't reach; when more is acked without it; then what it
    answers at its end is stale, and whole once the leader is back."""
    await scene.publish(2)
    await scene.all_have(2)
    scene.links.cut(scene.behind, [scene.leader, scene.other])
    await scene.publish(3)

    found = await scene.read(scene.behind)
    assert (found.next_offset, found.end_offset, found.stale) == (2, 2, True)
    assert await scene.told(scene.behind) == (2, True)

    scene.links.heal()
    await scene.all_have(5)
    await eventually(lambda: scene.host(scene.behind).raft_group.leader is not None)
    found = await scene.read(scene.behind)
    assert (found.next_offset, found.end_offset, found.stale) == (5, 5, False)
    assert await scene.told(scene.behind) == (5, False)


async def test_a_leader_whom_no_majority_answers_confirms_no_end(scene: Scene) -> None:
    """It may have been replaced by one that has acked more, and does not know it yet."""
    await scene.publish(2)
    await scene.all_have(2)
    raft = scene.nodes.running[scene.leader].raft
    object.__setattr__(raft.config, "quorum_s", 1e6)  # so long it believes that it leads
    scene.links.cut(scene.leader, [scene.behind, scene.other])

    assert scene.host(scene.leader).is_leader
    found = await scene.read(scene.leader)

    assert (found.next_offset, found.stale) == (2, True)
    assert await scene.told(scene.leader) == (2, True)
    with pytest.raises((NoQuorum, Timeout, OffsetOutOfRange)) as beyond:
        await scene.read(scene.leader, 4)
    assert not isinstance(beyond.value, OffsetOutOfRange), "there may be something by now"
    assert scene.host(scene.leader).is_leader


async def test_a_page_that_more_follows_is_not_stale_but_its_end_is_only_what_is_here(
    scene: Scene,
) -> None:
    await scene.publish(3)
    await scene.all_have(3)
    scene.links.starve(scene.partition_id, scene.behind)
    await scene.publish(3)

    broker = scene.nodes.broker(scene.behind)

    async def first(**asked: bool) -> Slice:
        return await broker.records.read(
            "t", 0, Offset(0), max_records=1, max_bytes=1 << 20, wait_s=0, **asked
        )

    page = await first()
    assert (page.next_offset, page.end_offset, page.stale) == (1, 3, False)
    page = await first(current=True)
    assert (page.next_offset, page.end_offset, page.stale) == (1, 6, False)
    scene.links.cut(scene.behind, [scene.leader, scene.other])
    page = await first(current=True)
    assert (page.next_offset, page.end_offset, page.stale) == (1, 3, True)


async def test_pages_that_come_from_a_replica_that_lags_go_on_to_what_was_acked(
    scene: Scene,
) -> None:
    """The end is the leader's, not that of the first page's replica."""
    await scene.publish(3)
    await scene.all_have(3)
    scene.links.starve(scene.partition_id, scene.behind)
    await scene.publish(3)

    async with AsyncClient(scene.url(scene.behind), retry=QUICK) as client:
        found = [m.offset async for page in client.pages("t", 0, limit=1) for m in page]

    assert found == [0, 1, 2, 3, 4, 5]


async def test_pages_wait_while_no_leader_confirms_the_end_and_return_all(
    scene: Scene,
) -> None:
    await scene.publish(2)
    await scene.all_have(2)
    scene.links.cut(scene.behind, [scene.leader, scene.other])
    await scene.publish(4)
    pages = list[list[int]]()

    async def follow() -> None:
        async with AsyncClient(scene.url(scene.behind), retry=QUICK) as client:
            async for page in client.pages("t", 0):
                pages.append([message.offset for message in page])

    reading = asyncio.create_task(follow())
    await eventually(lambda: bool(pages))
    lost = scene.links.lost
    await eventually(lambda: scene.links.lost > lost or reading.done(), 20)  # it asks again
    assert pages == [[0, 1]]
    assert not reading.done(), "it would have ended before what was acked"
    scene.links.heal()
    async with asyncio.timeout(30):
        await reading

    assert [offset for page in pages for offset in page] == [0, 1, 2, 3, 4, 5]


async def test_a_restarted_replica_never_tells_an_end_below_what_was_acked_unless_it_says_so(
    scene: Scene,
) -> None:
    await scene.publish(2)
    await scene.all_have(2)
    await scene.nodes.stop(scene.behind)
    await scene.publish(3)

    scene.links.starve(scene.partition_id, scene.behind)
    await scene.nodes.start(scene.behind)
    broker = scene.nodes.broker(scene.behind)
    await eventually(lambda: "t" in broker.topics.list_topics())
    looks = [await scene.told(scene.behind) for _ in range(5)]
    await eventually(lambda: scene.host(scene.behind).raft_group.leader is not None)
    looks += [await scene.told(scene.behind) for _ in range(5)]
    assert scene.host(scene.behind).end_offset < 5
    assert all(stale or end == 5 for end, stale in looks), looks
    assert looks[-1] == (5, False), "its leader can be asked"

    scene.links.cut(scene.behind, [scene.leader, scene.other])
    end, stale = await scene.told(scene.behind)
    assert stale
    assert end < 5


async def test_figures_of_queues_and_of_a_node_say_which_leaders_did_not_tell(
    scene: Scene,
) -> None:
    """None is left out as if it did not exist."""
    await scene.publish(2)
    await scene.all_have(2)
    broker = scene.nodes.broker(scene.behind)
    await broker.groups.put_group("g", {})
    await broker.positions.commit("g", "t", {0: 1})
    await eventually(lambda: bool(scene.host(scene.behind).state.queue.groups))
    assert [one.stale for one in await broker.figures.queue_stats("t")] == [False]
    assert not (await broker.groups.group("g", "t")).stale
    assert not (await broker.node.confirmed_stats()).topics["t"].stale

    scene.links.cut(scene.behind, [scene.leader, scene.other])
    await scene.publish(2)

    (figures,) = await broker.figures.queue_stats("t")
    assert (figures.stale, sum(figures.stored_by_lane), list(figures.groups)) == (True, 2, ["g"])
    view = await broker.groups.group("g", "t")
    assert (view.stale, [(one.end, one.stale) for one in view.partitions]) == (True, [(2, True)])
    stats = (await broker.node.confirmed_stats()).topics["t"]
    assert (stats.messages, stats.stale) == (2, True)


async def test_a_first_offset_at_a_time_is_not_guessed_where_no_leader_tells(
    scene: Scene,
) -> None:
    await scene.publish(2)
    await scene.all_have(2)
    broker = scene.nodes.broker(scene.behind)
    scene.links.cut(scene.behind, [scene.leader, scene.other])

    assert await broker.records.offset_at("t", 0, 0) == 0
    with pytest.raises((NoQuorum, Timeout)):
        await broker.records.offset_at("t", 0, 1 << 50)
