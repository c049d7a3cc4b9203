"""Redrive jobs go through dead letters once: stoppable, resumable, nothing lost, none twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, CreateTopic, DeleteTopic, Result
from coordinator.commands.queue import DeadLetterFilter, PutGroup, StartRedrive, StopRedrive
from coordinator.errors import UnknownRedrive
from coordinator.groups.settings import Group
from coordinator.jobs.redrives import Redrive
from goqueue.wire.errors import BadRequest, GoQueueError, NotLeader, OutcomeUnknown, Unavailable
from node.api.dead_letters import DeadFilter
from node.queue import redrive_worker as redrives
from node.queue.redrive_admin import RedrivesBroker
from node.queue.redrive_worker import CLOCKS_APART_MS, Cursor, DeadOffsets, RedriveRunner
from tests.unit.coordinator.cluster_group import Cluster


class World:
    """A cluster group, and the dead letters of one group: (partition, offset) -> time of death.

    `before_redrive` is called with the offsets that are about to be moved; `fate` says of each
    command whether its leader dies: before it is taken, or after.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.leads = True
        self.dead: dict[tuple[int, int], int] = {}
        self.looping: set[tuple[int, int]] = set()
        self.moves = Counter[tuple[int, int]]()
        self.filters: list[DeadFilter] = []
        self.error: GoQueueError | None = None
        self.answers_lost = 0
        self.slept_s = 0.0
        self.before_redrive: Callable[[Sequence[int]], None] = lambda _offsets: None
        self.fate: Callable[[], str] = lambda: ""
        self.cluster.do(CreateTopic("orders", {"partitions": 3}))
        self.cluster.do(PutGroup("pay"))

    # what the runner sees

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    def led_time_ms(self) -> int | None:
        return self.cluster.now_ms if self.leads else None

    async def command(self, command: Command, deadline_s: float) -> Result:
        fate = self.fate()
        if fate == "before":
            self.leads = False
            raise NotLeader()
        result = self.cluster.do(command)
        if fate == "after":
            self.leads = False
            raise OutcomeUnknown()
        if isinstance(result, GoQueueError):
            raise result
        return result  # type: ignore[return-value]

    async def matching(
        self, topic: str, group: str, which: DeadFilter, *, start: Cursor | None, limit: int
    ) -> DeadOffsets:
        if self.error is not None:
            raise self.error
        self.filters.append(which)
        assert which.to_ms is not None
        found = [
            at for at in sorted(self.dead) if at >= (start or at) and self.dead[at] < which.to_ms
        ]
        offsets: dict[int, list[int]] = {}
        for partition, offset in found[:limit]:
            offsets.setdefault(partition, []).append(offset)
        return DeadOffsets(offsets, found[limit] if len(found) > limit else None)

    async def redrive(
        self,
        topic: str,
        partition: int,
        group_id: int,
        offsets: Sequence[int],
        *,
        job: int,
        force: bool,
    ) -> tuple[int, int]:
        self.before_redrive(offsets)
        moved = refused = 0
        for offset in offsets:
            at = (partition, offset)
            if at not in self.dead:
                continue
            if at in self.looping and not force:
                refused += 1
                continue
            del self.dead[at]
            self.moves[at] += 1
            moved += 1
        if self.answers_lost:
            self.answers_lost -= 1
            raise OutcomeUnknown()
        return moved, refused

    async def sleep(self, span_s: float) -> None:
        self.slept_s += span_s

    # what the test does and sees

    def die(self, count: int) -> None:
        for at in range(count):
            self.dead[at % 3, at] = self.cluster.now_ms

    def start(self, **more: object) -> int:
        group = self.state.groups["pay"]
        result = self.cluster.do(StartRedrive("pay", group.id, "orders", **more))  # type: ignore[arg-type]
        return result.job  # type: ignore[attr-defined, no-any-return]

    def job(self, number: int) -> Redrive:
        return self.state.redrives[number]

    async def work(self) -> None:
        """Whoever leads now takes over with nothing but the cluster's state."""
        self.leads = True
        runner = RedriveRunner(self, self, sleep=self.sleep)
        runner.look()
        await runner.settled()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrives, "PAGE", 4)


async def test_a_job_moves_all_that_is_dead_and_ends() -> None:
    world = World()
    world.die(2500)
    number = world.start(matched=2500)

    await world.work()

    assert world.dead == {}
    assert (world.job(number).state, world.job(number).moved) == ("done", 2500)


async def test_a_job_without_anything_to_move_is_done() -> None:
    world = World()
    number = world.start()

    await world.work()

    assert (world.job(number).state, world.job(number).moved) == ("done", 0)


async def test_the_filter_of_the_job_is_that_of_the_search() -> None:
    world = World()
    which = DeadLetterFilter("timeout", 5, 9, b"k", {"a": "1"}, ["orders:0:1"], 2)
    world.start(which=which)

    await world.work()

    assert world.filters == [DeadFilter("timeout", 5, 9, b"k", {"a": "1"}, ["orders:0:1"], 2)]


async def test_a_node_that_does_not_lead_moves_nothing() -> None:
    world = World()
    world.die(3)
    world.start()
    world.leads = False
    runner = RedriveRunner(world, world)

    runner.look()
    await runner.settled()

    assert len(world.dead) == 3


async def test_what_would_go_in_a_loop_stays_dead_unless_forced() -> None:
    world = World()
    world.die(3)
    world.looping = {(0, 0), (1, 1)}
    number = world.start()
    await world.work()
    assert (world.job(number).moved, world.job(number).refused) == (1, 2)
    assert set(world.dead) == world.looping

    number = world.start(force=True)
    await world.work()

    assert (world.job(number).moved, world.dead) == (2, {})


@pytest.mark.usefixtures("small_pages")
async def test_what_dies_again_is_not_moved_again_by_the_same_job() -> None:
    world = World()
    world.die(20)
    number = world.start()

    def die_again(_offsets: Sequence[int]) -> None:
        for at in world.moves:
            world.dead[at] = world.cluster.now_ms

    world.before_redrive = die_again
    await world.work()

    assert world.job(number).state == "done"
    assert set(world.moves.values()) == {1}
    assert len(world.moves) == 20


async def test_what_dies_later_is_none_of_the_jobs() -> None:
    world = World()
    number = world.start()
    world.cluster.pass_ms(CLOCKS_APART_MS)
    world.die(3)

    await world.work()

    assert (world.job(number).moved, len(world.dead)) == (0, 3)


@pytest.mark.usefixtures("small_pages")
async def test_a_stopped_job_leaves_the_rest_dead_and_counts_what_moved() -> None:
    world = World()
    world.die(20)
    number = world.start()

    def stop_in_the_second_page(_offsets: Sequence[int]) -> None:
        if len(world.dead) <= 16:
            world.cluster.do(StopRedrive(number))

    world.before_redrive = stop_in_the_second_page
    await world.work()

    assert world.job(number).state == "stopped"
    assert world.job(number).moved == 8
    assert len(world.dead) == 12


async def test_a_rate_is_kept() -> None:
    world = World()
    world.die(100)
    number = world.start(rate=10.0)

    await world.work()

    assert world.job(number).moved == 100
    assert world.slept_s == pytest.approx(10.0)


async def test_a_rate_below_one_moves_one_after_the_other() -> None:
    world = World()
    world.die(3)
    world.start(rate=0.5)

    await world.work()

    assert world.slept_s == pytest.approx(6.0)


async def test_an_answer_that_is_lost_loses_and_doubles_no_message() -> None:
    world = World()
    world.die(10)
    number = world.start()
    world.answers_lost = 2

    for _ in range(3):
        await world.work()

    assert world.dead == {}
    assert set(world.moves.values()) == {1}
    assert world.job(number).state == "done"


async def test_a_partition_without_leader_is_waited_for() -> None:
    world = World()
    world.die(1)
    number = world.start()
    world.error = NotLeader()
    await world.work()
    assert world.job(number).is_running

    world.error = None
    await world.work()

    assert world.job(number).moved == 1


async def test_a_request_that_can_not_be_done_stops_the_job_with_its_error() -> None:
    world = World()
    number = world.start()
    world.error = BadRequest("not a message id")

    await world.work()

    assert (world.job(number).state, world.job(number).error) == ("stopped", "not a message id")


async def test_a_deleted_topic_ends_its_job() -> None:
    world = World()
    world.die(3)
    number = world.start()
    world.cluster.do(DeleteTopic("orders"))

    await world.work()

    assert (world.job(number).state, len(world.dead)) == ("stopped", 3)


@pytest.mark.usefixtures("small_pages")
async def test_the_next_leader_goes_on_where_the_last_one_was() -> None:
    world = World()
    world.die(20)
    number = world.start()
    fates = iter(["", "", "before"])
    world.fate = lambda: next(fates, "")
    await world.work()
    assert world.job(number).moved == 8
    searched = len(world.filters)

    await world.work()

    assert world.dead == {}
    assert set(world.moves.values()) == {1}
    assert len(world.filters) - searched <= 4


@settings(max_examples=60, deadline=None)
@given(st.data())
async def test_whatever_dies_and_when_all_that_was_dead_has_moved_once(
    data: st.DataObject,
) -> None:
    world = World()
    world.die(data.draw(st.integers(0, 30)))
    wanted = set(world.dead)
    number = world.start(rate=20.0)  # pages of 4
    world.fate = lambda: data.draw(st.sampled_from(["", "", "before", "after"]))
    world.answers_lost = data.draw(st.integers(0, 2))
    for _ in range(5):
        await world.work()
    world.fate = lambda: ""

    for _ in range(3):
        await world.work()

    assert world.job(number).state == "done"
    assert set(world.moves) == wanted
    assert set(world.moves.values()) <= {1}
    assert world.job(number).moved <= len(wanted)


async def test_a_runner_is_stopped_whatever_it_does() -> None:
    runner = RedriveRunner(World(), World())
    await runner.start()

    await runner.stop()
    await runner.stop()


# what the front is told


class Lagging:
    """A node whose own state of the cluster group stands still, beside the group that goes on."""

    def __init__(self, world: World) -> None:
        self.command = world.command
        self.state = Cluster().state
        self.is_current = False

    async def refresh(self) -> bool:
        return self.is_current

    def not_ready(self) -> str:
        return ""


class OneGroup:
    """Knows the group."""

    def __init__(self, world: World) -> None:
        self._group = world.state.groups["pay"]

    async def find(self, _name: str) -> Group:
        return self._group


async def test_a_node_that_lags_tells_of_no_job_that_it_does_not_exist() -> None:
    """It was begun: who believes that it was not begins a second one, and can stop neither."""
    world = World()
    node: Any = Lagging(world)
    groups: Any = OneGroup(world)
    broker = RedrivesBroker(node, groups, world, random.Random(1))

    which = DeadFilter(to_ms=0)
    with pytest.raises(Unavailable) as begun:
        await broker.redrive("pay", "orders", which, rate=0, dry_run=False, force=False)
    (job,) = world.state.redrives
    with pytest.raises(Unavailable) as asked:
        await broker.stop_redrive("pay", job)
    node.is_current = True
    with pytest.raises(UnknownRedrive):
        await broker.stop_redrive("pay", job)

    assert (begun.value.outcome, asked.value.outcome) == ("unknown", "none")
