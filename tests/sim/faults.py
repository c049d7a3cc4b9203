"""What goes wrong, and when: a plan drawn from the seed, each fault independent of the others."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from goqueue.wire.types import NodeId
from tests.sim.figure8 import Figure8
from tests.sim.lone_learner import LoneLearner

if TYPE_CHECKING:
    from tests.sim.world import World

FIRST_S = 0.4
"""Faults begin after this: some of them before there is a leader."""


@dataclass(frozen=True)
class Fault:
    """One fault; what it hits is drawn from its own seed when it strikes."""

    at_s: float
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.at_s:.3f}:{self.kind}"


def make_plan(
    rng: random.Random, count: int, until_s: float, nemesis: Collection[str] = ()
) -> list[Fault]:
    """`count` faults in the order of their times; they tend to come in clusters."""
    kinds = chosen(nemesis)
    weights = [FAULTS[kind][1] for kind in kinds]
    plan: list[Fault] = []
    at = FIRST_S
    for _ in range(count):
        if rng.random() < 0.35:
            at += rng.uniform(0.0, 0.08)
        else:
            at = rng.uniform(FIRST_S, until_s)
        plan.append(Fault(min(at, until_s), rng.choices(kinds, weights)[0], rng.getrandbits(32)))
    return sorted(plan, key=lambda fault: fault.at_s)


def chosen(nemesis: Collection[str]) -> list[str]:
    """The faults of these names, or of the groups of these names; all, where none is named.

    Raises KeyError for a name that is neither.
    """
    named: set[str] = set()
    for name in nemesis:
        named.update((name,) if name in FAULTS else NEMESES[name])
    return [kind for kind in FAULTS if (kind in named if named else kind not in BY_NAME_ONLY)]


def strike(world: World, fault: Fault) -> None:
    """Let it happen."""
    world.loop.note("fault", fault)
    FAULTS[fault.kind][0](world, random.Random(fault.seed))


def _someone(world: World, rng: random.Random) -> NodeId:
    return rng.choice(world.nodes)


def _leader(world: World, rng: random.Random) -> NodeId:
    """A leader of some group, if there is one."""
    leaders = [node for node in world.nodes if world.machines.leads(node)]
    return rng.choice(leaders) if leaders else _someone(world, rng)


def _target(world: World, rng: random.Random) -> NodeId:
    return _leader(world, rng) if rng.random() < 0.6 else _someone(world, rng)


def _kill(world: World, rng: random.Random) -> None:
    world.machines.kill(_someone(world, rng), power=False, down_s=rng.uniform(0.02, 1.2))


def _kill_leader(world: World, rng: random.Random) -> None:
    world.machines.kill(_leader(world, rng), power=False, down_s=rng.uniform(0.02, 1.2))


def _power(world: World, rng: random.Random) -> None:
    world.machines.kill(_target(world, rng), power=True, down_s=rng.uniform(0.1, 1.5))


def _power_all(world: World, rng: random.Random) -> None:
    if world.is_quiet:
        return
    for node in world.nodes:
        world.machines.kill(node, power=True, down_s=rng.uniform(0.05, 0.8))


def _power_while_syncing(world: World, rng: random.Random) -> None:
    """All disks are slow, and then the power goes: much was appended that no disk holds."""
    sync_s = rng.choice((0.03, 0.1, 0.3))
    for node in world.nodes:
        world.machines.slow_disk(node, sync_s, 1.0)
    world.loop.call_later(rng.uniform(sync_s, 3 * sync_s), _power_all, world, rng)


def _power_majority(world: World, rng: random.Random) -> None:
    for node in rng.sample(world.nodes, len(world.nodes) // 2 + 1):
        world.machines.kill(node, power=True, down_s=rng.uniform(0.05, 0.8))


def _power_written(world: World, rng: random.Random) -> None:
    """What a leader and one voter have written alone is lost by one of them, as its power goes at
    once, while the other is away: those who come back first must not do without it."""
    leader = _leader(world, rng)
    process = world.machines.process(leader)
    led = [raft for raft in process.rafts() if raft.is_leader] if process else []
    voters = [voter.node for voter in rng.choice(led).membership.voters] if led else world.nodes
    holder, *others = rng.sample(voters, len(voters))
    if leader in others:
        others.remove(leader)
    seconds = rng.uniform(0.3, 1.0)
    for one in (leader, holder):
        for other in others:
            world.net.stall(one, other, seconds)
            world.net.stall(other, one, seconds)
    lost, away = rng.sample((leader, holder), 2)
    at_s = rng.uniform(0.02, 0.2)
    world.loop.call_later(at_s, partial(world.machines.kill, lost, power=True, down_s=0.05))
    down_s = rng.uniform(0.5, 2.5)
    world.loop.call_later(at_s, partial(world.machines.kill, away, power=False, down_s=down_s))


def _wipe(world: World, rng: random.Random) -> None:
    world.machines.wipe(_target(world, rng), rng.uniform(0.05, 1.0))


def _isolate(world: World, rng: random.Random) -> None:
    """Links closed, so that everybody knows."""
    node, seconds = _target(world, rng), rng.uniform(0.1, 2.5)
    for other in world.others(node):
        world.net.block(node, other, seconds)


def _partition(world: World, rng: random.Random) -> None:
    """Nothing passes between two sides, and the links stay up until they are given up."""
    nodes = rng.sample(world.nodes, len(world.nodes))
    cut = rng.randint(1, len(nodes) - 1)
    seconds = rng.uniform(0.2, 3.5)
    for one in nodes[:cut]:
        for other in nodes[cut:]:
            world.net.stall(one, other, seconds)
            world.net.stall(other, one, seconds)


def _partition_leader(world: World, rng: random.Random) -> None:
    """The leader keeps one follower, or none, and no majority."""
    leader, seconds = _leader(world, rng), rng.uniform(0.3, 3.5)
    others = world.others(leader)
    kept = rng.sample(others, (len(world.nodes) - 1) // 2) if rng.random() < 0.5 else []
    for one in (leader, *kept):
        for other in others:
            if other not in kept:
                world.net.stall(one, other, seconds)
                world.net.stall(other, one, seconds)


def _one_way(world: World, rng: random.Random) -> None:
    node, seconds = _target(world, rng), rng.uniform(0.2, 3.0)
    inward = rng.random() < 0.5
    others = world.others(node)
    for other in rng.sample(others, rng.randint(1, len(others))):
        if inward:
            world.net.stall(other, node, seconds)
        else:
            world.net.stall(node, other, seconds)


def _reset(world: World, rng: random.Random) -> None:
    """A burst of link resets, as loss would bring."""
    for _ in range(rng.randint(1, 4)):
        one, other = rng.sample(world.nodes, 2)
        world.loop.call_later(rng.uniform(0, 0.5), world.net.close, one, other)


def _pause(world: World, rng: random.Random) -> None:
    world.machines.pause(_target(world, rng), rng.choice((0.05, 0.4, 1.3, 3.0)))


def _slow_disk(world: World, rng: random.Random) -> None:
    world.machines.slow_disk(
        _target(world, rng), rng.choice((0.02, 0.1, 0.5)), rng.uniform(0.3, 2.0)
    )


def _disk_full(world: World, rng: random.Random) -> None:
    """Whatever waits for room is not acked, and goes on when there is some."""
    room_bytes = rng.choice((0, 600, 5000))
    world.machines.fill_disk(_target(world, rng), room_bytes, rng.uniform(0.2, 2.0))


def _disk_error(world: World, rng: random.Random) -> None:
    """A sync fails, mostly; what it was to save is read back as if it were there."""
    operation = rng.choice(("fdatasync", "fdatasync", "fdatasync", "pwritev", "sync_directory"))
    world.machines.fail_disk(_target(world, rng), operation)


def _disk_error_and_power(world: World, rng: random.Random) -> None:
    """A sync fails, and soon the power does, of a majority: what no disk holds is gone."""
    world.machines.fail_disk(_leader(world, rng), "fdatasync")
    world.loop.call_later(rng.uniform(0.1, 1.0), _power_all, world, rng)


def _damage(world: World, rng: random.Random) -> None:
    """Bits flip on one node; now and then it restarts, and reads what it had in memory."""
    node = _target(world, rng)
    for _ in range(rng.randint(1, 3)):
        world.machines.damage(node, rng)
    if rng.random() < 0.5:
        _kill(world, rng)


def _damage_cluster(world: World, rng: random.Random) -> None:
    """The same, of the cluster group's files."""
    node = _target(world, rng)
    for _ in range(rng.randint(1, 3)):
        world.machines.damage(node, rng, of_cluster=True)
    if rng.random() < 0.5:
        world.machines.kill(node, power=rng.random() < 0.3, down_s=rng.uniform(0.05, 1.5))


def _slow_link(world: World, rng: random.Random) -> None:
    one, other = rng.sample(world.nodes, 2)
    world.net.slow(one, other, rng.choice((0.01, 0.06, 0.3)), rng.uniform(0.5, 3.0))


def _lossy_link(world: World, rng: random.Random) -> None:
    """Some frames are sent again and again until they arrive; those behind them wait."""
    world.net.lose(_target(world, rng), rng.choice((0.05, 0.3)), rng.uniform(0.3, 2.0))


def _duplicates(world: World, rng: random.Random) -> None:
    """A node's links are reset, now and once more, and old frames come again on the new ones."""
    node = _target(world, rng)
    world.net.repeat(node)
    for other in world.others(node):
        for after_s in (0.0, rng.uniform(0.1, 1.0)):
            world.loop.call_later(after_s, world.net.close, node, other)


def _drift(world: World, rng: random.Random) -> None:
    """A clock runs too fast or too slow, for a while: what it has gained or lost stays."""
    rate = rng.choice((-0.3, -0.01, 0.01, 0.3))
    world.machines.drift_clock(_target(world, rng), rate, rng.uniform(0.5, 4.0))


def _clock(world: World, rng: random.Random) -> None:
    world.machines.step_clock(
        _target(world, rng), rng.choice((-86_400_000, -900, 700, 30_000, 86_400_000))
    )


def _transfer(world: World, rng: random.Random) -> None:
    world.machines.transfer(_leader(world, rng))


def _kill_at_flush(world: World, rng: random.Random) -> None:
    """Between an append and its sync."""
    world.traps.at_flush(
        _target(world, rng), power=rng.random() < 0.6, delay_s=rng.uniform(0, 0.004)
    )


def _kill_at_lead(world: World, rng: random.Random) -> None:
    """Each of the next leaders, soon after it has begun to lead; the first one by losing its
    predecessor. This is how the paper's figure 8 comes about."""
    world.traps.at_leads(rng.randint(1, 5))
    world.machines.kill(_leader(world, rng), power=False, down_s=rng.uniform(0.02, 0.5))


def _restart_voters(world: World, rng: random.Random) -> None:
    """Each of the next voters, as it votes; in an election that this brings about."""
    world.traps.at_votes(rng.randint(1, 4))
    world.machines.kill(_leader(world, rng), power=False, down_s=rng.uniform(0.02, 0.5))


def _kill_at_change(world: World, rng: random.Random) -> None:
    """While replicas come and go, where they do."""
    world.traps.at_changes(rng.randint(1, 3))


def _split_at_change(world: World, rng: random.Random) -> None:
    """Old voters here, the leader and the new ones there, as a change begins."""
    world.traps.at_changes_split(rng.randint(1, 3))


def _figure_8(world: World, rng: random.Random) -> None:
    world.traps.follow(Figure8(world, rng, _leader(world, rng)))


def _lone_learner(world: World, rng: random.Random) -> None:
    world.traps.at_promotion(LoneLearner(world, rng))


def _swizzle(world: World, rng: random.Random) -> None:
    """One after the other is cut off, and comes back in another order."""
    for node in rng.sample(world.nodes, len(world.nodes)):
        start, seconds = rng.uniform(0, 0.6), rng.uniform(0.2, 1.2)
        for other in world.others(node):
            world.loop.call_later(start, world.net.block, node, other, seconds)


FAULTS: dict[str, tuple[Callable[[World, random.Random], None], int]] = {
    "kill": (_kill, 6),
    "kill-leader": (_kill_leader, 8),
    "power": (_power, 6),
    "power-all": (_power_all, 6),
    "power-while-syncing": (_power_while_syncing, 6),
    "power-majority": (_power_majority, 4),
    "power-written": (_power_written, 4),
    "wipe": (_wipe, 2),
    "isolate": (_isolate, 5),
    "partition": (_partition, 6),
    "partition-leader": (_partition_leader, 8),
    "one-way": (_one_way, 6),
    "reset": (_reset, 6),
    "pause": (_pause, 6),
    "slow-disk": (_slow_disk, 5),
    "disk-full": (_disk_full, 3),
    "disk-error": (_disk_error, 3),
    "disk-error-power": (_disk_error_and_power, 2),
    "damage": (_damage, 2),
    "damage-cluster": (_damage_cluster, 2),
    "slow-link": (_slow_link, 5),
    "lossy-link": (_lossy_link, 4),
    "duplicates": (_duplicates, 4),
    "clock": (_clock, 2),
    "clock-drift": (_drift, 2),
    "transfer": (_transfer, 4),
    "kill-at-flush": (_kill_at_flush, 8),
    "kill-at-lead": (_kill_at_lead, 6),
    "restart-voters": (_restart_voters, 6),
    "kill-at-change": (_kill_at_change, 5),
    "split-at-change": (_split_at_change, 4),
    "figure-8": (_figure_8, 4),
    "swizzle": (_swizzle, 3),
    "lone-learner": (_lone_learner, 3),
}

NEMESES: dict[str, tuple[str, ...]] = {
    "kill": ("kill", "kill-leader", "transfer"),
    "pause": ("pause",),
    "power": ("power", "power-all", "power-while-syncing", "power-majority", "power-written"),
    "network": (
        *("isolate", "partition", "partition-leader", "one-way", "reset", "slow-link"),
        *("lossy-link", "duplicates", "swizzle"),
    ),
    "disk": ("slow-disk", "disk-full", "disk-error", "disk-error-power", "damage", "wipe"),
    "clock": ("clock", "clock-drift"),
    "targeted": (
        *("kill-at-flush", "kill-at-lead", "restart-voters", "kill-at-change"),
        "split-at-change",
        *("figure-8", "swizzle"),
    ),
}
"""Faults by what they hit; `targeted` ones wait for a decisive moment."""

BY_NAME_ONLY = ("damage-cluster", "lone-learner")
"""In no plan but where they are named."""
