"""The simulation is exact, finds planted bugs, and finds nothing in the code as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from tests.check.queuecheck import check
from tests.sim.faults import BY_NAME_ONLY, FAULTS, NEMESES, chosen
from tests.sim.found_from import FOUND_FROM
from tests.sim.hunt import hunt
from tests.sim.mutants import MUTANTS
from tests.sim.setup import Setup
from tests.sim.shape import KINDS
from tests.sim.shrink import shrink
from tests.sim.world import Verdict, World

ROOT = Path(__file__).resolve().parents[2]
FOUND_WITHIN = 300
"""Seeds from the first one on; most of these bugs need fewer than 20."""
EXACT = (
    *((29, "core"), (29, "log"), (29, "topics"), (0, "queue"), (1, "members"), (29, "moving")),
    (113, "compact"),
)
"""A seed of each kind, a short one."""


def run(seed: int) -> Verdict:
    return World(seed).run()


def queue_worlds(seeds: int) -> Iterator[World]:
    return (World(seed, kind="queue") for seed in range(seeds))


def member_worlds(seeds: int) -> Iterator[World]:
    return (World(seed, kind="members") for seed in range(seeds))


def is_found(mutant: str) -> bool:
    setup, first = Setup.hunting(mutant), FOUND_FROM.get(mutant, 0)
    seeds = [*range(first, first + FOUND_WITHIN), *range(first)]
    return any(setup.shows_the_bug(setup.run(seed)) for seed in seeds)


def test_the_same_seed_gives_the_same_trace() -> None:
    first = [World(seed, kind=kind).run() for seed, kind in EXACT]
    again = [World(seed, kind=kind).run() for seed, kind in reversed(EXACT)][::-1]

    assert [verdict.trace for verdict in first] == [verdict.trace for verdict in again]
    assert [verdict.acks for verdict in first] == [verdict.acks for verdict in again]
    assert len({verdict.trace for verdict in first}) == len(EXACT)
    assert {kind for _seed, kind in EXACT} == set(KINDS)


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    program = (
        "from tests.sim.world import World\n"
        f"print(*(World(seed, kind=kind).run().trace for seed, kind in {EXACT}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))

    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.split()

    assert told == [World(seed, kind=kind).run().trace for seed, kind in EXACT]


def test_a_kept_trace_changes_nothing_and_tells_what_happened() -> None:
    quiet = run(1)
    loud = World(1, keep_trace=True).run()

    assert loud.trace == quiet.trace
    words = {line.split()[1] for line in loud.lines}
    assert {"fault", "lead", "commit", "ack", "frame", "heal"} <= words


def test_a_run_without_faults_acks_everything_once() -> None:
    verdict = World(3, kind="log", faults=0).run()

    assert verdict.violations == []
    assert verdict.acks > 100


def test_faults_bring_about_what_they_are_for() -> None:
    """Over some seeds there are elections, repeated requests, and topics that were deleted."""
    kinds = ("core", "log", "topics")
    worlds = [World(seed, kind=kinds[seed % len(kinds)]) for seed in range(24)]

    verdicts = [world.run() for world in worlds]

    assert [verdict.violations for verdict in verdicts] == [[]] * len(worlds)
    assert sum(verdict.elections for verdict in verdicts) > 3 * len(worlds)
    assert sum(verdict.duplicates for verdict in verdicts) > len(worlds)
    assert sum(verdict.acks > 0 for verdict in verdicts) > 0.9 * len(worlds)
    assert {len(world.nodes) for world in worlds} == {3, 5}
    managed = [world for world in worlds if world.shape.managed]
    newest = [world.machines.running()[0].cluster for world in managed]
    states = [cluster.state for cluster in newest if cluster is not None]
    assert any(state.deleted for state in states)
    assert sum(world.checks.reads for world in worlds) > 100
    assert sum(world.checks.end_reads for world in worlds) > 100


def test_members_bring_about_what_they_are_for() -> None:
    """Over some seeds: partitions move, by joins, leaves and deaths; former owners are fenced."""
    worlds = list(islice(member_worlds(FOUND_WITHIN), 10))

    assert [world.run().violations for world in worlds] == [[]] * len(worlds)

    causes: Counter[str] = Counter()
    for world in worlds:
        assert world.members is not None
        for membership in world.newest_state().members.by_group.values():
            causes.update(membership.rebalances.totals.by_cause)
            causes["moved"] += membership.rebalances.totals.moved
            causes["fenced"] += membership.rebalances.totals.fenced
        causes["delivered"] += world.members.deliveries
    wanted = {"join", "leave", "expiry", "topic", "moved", "fenced", "delivered"}
    assert wanted <= {name for name, count in causes.items() if count > 5}


def test_moves_bring_about_what_they_are_for() -> None:
    """Over some seeds: replicas join and leave, whole ones are copied, brokers are drained, one is
    wiped and let in again; some are removed, alive and dead; topics get more partitions."""
    worlds = [
        World(seed, kind="moving", nemesis=() if seed % 2 else ("wipe", "kill"))
        for seed in range(12)
    ]

    assert [world.run().violations for world in worlds] == [[]] * len(worlds)

    assert sum(world.changes for world in worlds) > 5 * len(worlds)
    assert sum(world.copies for world in worlds) > 3
    states = [world.newest_state() for world in worlds]
    plans = [plan for state in states for plan in state.layout.reassignments.by_id.values()]
    assert {"drain", "reassign"} <= {plan.cause for plan in plans}
    assert any(broker.former for state in states for broker in state.brokers.values())
    assert any(topic.raised for state in states for topic in state.topics.values())
    leavers = [world.moves.removing for world in worlds if world.moves is not None]
    gone = [(one.leaver, one.is_dead) for one in leavers if one.removed]
    assert {is_dead for _node, is_dead in gone} == {False, True}


MOVES_WITH_LOSS = "kill-at-change,split-at-change,wipe,power-majority,kill,partition"
DAMAGE_OF_ALL = "damage-cluster,kill,power,wipe,damage"


@pytest.mark.parametrize(
    ("seed", "nemesis", "only"),
    [
        (300, "", (0, 1, 4, 5, 7, 8, 11)),
        (63, MOVES_WITH_LOSS, (0, 2, 4, 5, 9)),
        (315, "", (0, 1, 4, 6, 8, 9, 10)),
        (2543, "", ()),
        (41633, "", ()),
        (48440, "", (0, 1, 3, 4, 5, 6, 7, 8, 10, 11)),
        (61810, "", (0, 1, 2, 3, 4, 6, 7, 8, 9)),
        (94903, "", (0, 2, 3)),
        (831, MOVES_WITH_LOSS, (1, 7)),
        (2530, MOVES_WITH_LOSS, (0, 1, 2, 3, 4, 5, 7, 9)),
        (1717, "damage", (11,)),
        (2131, "damage,kill,power,wipe", (0, 1, 2, 3, 5, 8, 9, 10, 11)),
        (1485, DAMAGE_OF_ALL, (0, 2, 5, 6, 7, 9)),
        (1104, DAMAGE_OF_ALL, (0, 1, 2, 3, 4, 5, 6, 8, 9)),
    ],
    ids=[
        "a dead broker that stays",
        "founders that were drained and wiped",
        "a stray",
        "a late step for a broker that is removed",
        "drains that leave no room for each other",
        "voters that damage hid",
        "a state to be copied that damage hid",
        "one of two voters that stays dead",
        "one of two voters whose disk is wiped",
        "a replica without a vote that names a leader of long ago",
        "one of two voters whose write-ahead log is damaged",
        "a snapshot that is stored after its replica began anew",
        "a copied replica whose term index is damaged",
        "a deleted topic that damage brings back",
    ],
)
def test_moves_that_once_went_wrong_end_well(
    seed: int, nemesis: str, only: tuple[int, ...]
) -> None:
    names = tuple(nemesis.split(",")) if nemesis else ()

    assert Setup(kind="moving", nemesis=names, only=only).run(seed).violations == []


def test_streams_break_at_every_point_and_come_to_an_end() -> None:
    """Over some seeds: in order, lost, and with the node that serves them."""
    worlds = [World(seed, kind="queue") for seed in (2, 3, 13)]

    assert all(world.queue and world.queue.has_streams for world in worlds)
    assert [world.run().violations for world in worlds] == [[]] * len(worlds)

    ended = sum((world.queue.log.ended for world in worlds if world.queue), Counter[str]())
    assert min(ended[how] for how in ("returned", "lost", "lost with its run")) > 5


def test_compaction_brings_about_what_it_is_for() -> None:
    """Over some seeds: runs that are obeyed, null values that go, runs that end early; every
    replica is read from the beginning on."""
    worlds = [World(seed, kind="compact", keep_trace=True) for seed in range(140, 152)]

    verdicts = [world.run() for world in worlds]

    assert [verdict.violations for verdict in verdicts] == [[]] * len(worlds)
    works = [world.compaction for world in worlds if world.compaction is not None]
    assert sum(work.runs for work in works) > len(worlds)
    assert sum(work.dropped_nulls for work in works) > 5
    assert sum(work.looked_at for work in works) > 20 * len(worlds)
    ended = [line for verdict in verdicts for line in verdict.lines if " compacted " in line]
    assert any("another node leads" in line for line in ended)


def test_damage_is_healed() -> None:
    """Over some seeds: by single entries of other replicas, and by copies of whole ones; a node
    whose write-ahead log is damaged begins anew."""
    worlds = [World(seed, kind="core", nemesis=("damage", "kill", "power")) for seed in range(60)]

    assert [world.run().violations for world in worlds] == [[]] * len(worlds)

    assert sum(world.repairs + world.copies for world in worlds) > 1
    assert sum(world.set_aside for world in worlds) > 1
    damaged = sum((world.damaged for world in worlds), Counter[str]())
    assert {"segment", "terms", "offsets", "snapshot", "wal"} <= damaged.keys()


def test_a_cluster_group_that_is_damaged_and_keeps_few_commands_is_whole_again() -> None:
    """Who lacks commands that nobody has any more gets a copy, and so does who can read no
    snapshot; single entries come back from peers."""
    nemesis = ("damage-cluster", "kill", "power", "wipe")
    worlds = [World(seed, kind="moving", nemesis=nemesis) for seed in range(24)]
    for world in worlds:
        assert world.run().violations == [], world.seed

    assert sum(world.cluster_copies for world in worlds) > 10
    assert sum(world.cluster_repairs for world in worlds) > 0
    damaged = sum((world.damaged for world in worlds), Counter[str]())
    assert {"segment", "terms", "snapshot"} <= damaged.keys()


def test_a_learner_that_alone_has_the_newest_entry_campaigns() -> None:
    setup = Setup(kind="moving", nemesis=("lone-learner",))

    verdict = setup.run(FOUND_FROM["learners-stand-by"])

    assert verdict.violations == []
    assert verdict.rare["campaigns of learners"] > 0


@pytest.mark.parametrize(
    ("setup", "seed"),
    [
        (Setup(only=(0, 1)), 4189),
        (Setup(only=(0, 1, 4)), 6248),
        (
            Setup(
                kind="core",
                nemesis=("disk", "kill", "power", "targeted"),
                only=(0, 2, 3, 5, 6),
            ),
            40766,
        ),
    ],
    ids=[
        "a sync that failed, then a recovery cut short",
        "damage under an entry in memory",
        "a cut behind a damaged index item",
    ],
)
def test_disks_that_were_once_misjudged_are_judged_well(setup: Setup, seed: int) -> None:
    assert setup.run(seed).violations == []


def test_a_message_that_expires_after_it_was_carried_keeps_its_whole_timeline() -> None:
    assert Setup(only=(0, 3)).run(4803).violations == []


def test_queue_work_brings_about_what_it_is_for() -> None:
    """Over some seeds: every outcome of a settle, repeated ids, deaths, redrives, trims."""
    worlds = list(islice(queue_worlds(FOUND_WITHIN), 12))

    assert [world.run().violations for world in worlds] == [[]] * len(worlds)

    outcomes: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for world in worlds:
        assert world.queue is not None
        verdict = check(world.queue.history.events, world.queue.limits)
        outcomes.update(verdict.settles)
        outcomes["duplicate"] += verdict.duplicates
        outcomes["redelivered"] += verdict.redeliveries
        outcomes["dead letter"] += sum(verdict.dead.values())
        outcomes["late"] += sum(map(len, verdict.lateness_s.values()))
        events.update(event["type"] for event in world.queue.history.events)
    wanted = {"acked", "requeued", "dead", "extended", "released", "refused", "unknown"}
    wanted |= {"duplicate", "redelivered", "dead letter", "late"}
    assert wanted <= {name for name, count in outcomes.items() if count > 5}
    assert {"redrive", "purge", "cancelled", "fallen"} <= events.keys()
    calls = sum((world.calls for world in worlds), Counter[str]())
    assert {"answers lost", "operations sent again", "leases recalled"} <= calls.keys()


@pytest.mark.parametrize(
    "mutant",
    [
        "no-fsync",
        "ack-before-fsync",
        "truncate-always",
        "ready-before-noop",
        "commit-index-believed",
        "discarded-means-applied",
        "votes-counted-twice",
        "dedup-forgotten",
        "flights-ignored",
        "duplicate-answered-early",
        "appender-kept",
        "doubt-forgotten",
        "twins-answered-anyway",
        "failed-fsync-ignored",
        "learner-counted",
        "configuration-awaits-commit",
        "joiner-trusted",
        "learners-stand-by",
        "lagging-counts-as-in-sync",
        "copy-misnamed",
        "copies-not-offered",
        "copied-never-released",
        "removed-unasked",
        "removed-come-back",
        "removed-stay",
    ],
)
def test_a_planted_bug_is_found(mutant: str) -> None:
    """Those that few seeds find; `python -m tests.sim --mutants` takes its time for all."""
    assert is_found(mutant)


@pytest.mark.parametrize(
    "mutant",
    [
        "early-delay",
        "delay-by-wall-clock",
        "cancelled-and-delivered",
        "trimmed-while-delayed",
        "dead-twice",
        "expiry-uncounted",
        "expired-settles",
        "foreign-receipts",
        "leases-not-in-snapshot",
        "leases-dropped-at-failover",
        "settle-answered-early",
        "ack-in-memory",
        "lane-skip",
        "lanes-ignored",
        "lanes-forgotten-by-seeks",
        "repeats-choose",
        "delayed-outlive-commits",
        "commits-come-twice",
        "key-goes-on",
        "ids-forgotten-at-failover",
        "ids-in-flight-ignored",
    ],
)
def test_a_planted_bug_of_the_queue_is_found(mutant: str) -> None:
    assert is_found(mutant)


def test_timelines_are_looked_at_while_faults_strike_and_in_the_end() -> None:
    worlds = [World(seed, kind=kind) for seed in range(2) for kind in ("queue", "members")]

    assert [world.run().violations for world in worlds] == [[]] * len(worlds)

    looked_at = [world.timelines.looked_at for world in worlds]
    assert min(looked_at) > 5
    assert sum(looked_at) > 10 * len(worlds)


@pytest.mark.parametrize(
    "mutant",
    [
        *("redelivery-untold", "attempts-miscounted", "index-skips", "seeks-untold"),
        *("refused-told", "repeats-told"),
    ],
)
def test_a_planted_bug_of_timelines_is_found(mutant: str) -> None:
    assert is_found(mutant)


@pytest.mark.parametrize(
    "mutant", [mutant.name for mutant in MUTANTS.values() if mutant.kind == "compact"]
)
def test_a_planted_bug_of_compaction_is_found(mutant: str) -> None:
    assert is_found(mutant)


@pytest.mark.parametrize(
    "mutant", [mutant.name for mutant in MUTANTS.values() if mutant.kind == "members"]
)
def test_a_planted_bug_of_members_is_found(mutant: str) -> None:
    assert is_found(mutant)


def test_a_seed_that_violates_without_the_bug_is_not_counted_as_having_found_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judged(setup: Setup, seed: int) -> Verdict:
        is_bad = seed == 3 or (seed == 5 and setup.mutant)
        return replace(clean, seed=seed, violations=["1.0 s: one value: n1"] if is_bad else [])

    clean = World(29, kind="core").run()
    monkeypatch.setattr(Setup, "run", judged)

    assert hunt(["ack-before-fsync"], range(2, 9), 1) == 0
    assert hunt(["ack-before-fsync"], range(2, 5), 1) == 1

    told = capsys.readouterr().out
    assert "seed 3 violates without the bug, too: python -m tests.sim --seeds 3:4" in told
    assert "|     4 |" in told  # seed 5 is the fourth
    assert "not found: ack-before-fsync" in told


def test_a_plan_shrinks_to_the_faults_that_matter() -> None:
    setup = Setup.hunting("ack-before-fsync")
    first = FOUND_FROM["ack-before-fsync"]
    seed = next(seed for seed in range(first, first + 40) if setup.run(seed).violations)

    shorter, verdict = shrink(setup, seed)

    assert verdict.violations
    assert len(verdict.plan) < len(setup.world(seed).plan)
    assert shorter.run(seed).trace == verdict.trace
    assert replace(shorter, mutant="").run(seed).violations == []


def test_the_command_that_is_printed_replays_the_run() -> None:
    setup = Setup("no-fsync", 6, "core", ("power", "kill"), (0, 2, 3))
    expected = setup.run(5)

    told = subprocess.run(
        [sys.executable, *setup.command(5).split()[1:], "--jobs", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert f"seed 5  trace {expected.trace}" in told.stdout
    assert setup.command(5) in told.stdout


def test_only_the_faults_that_are_named_strike() -> None:
    plan = World(1, nemesis=("network", "clock")).plan

    assert {fault.kind for fault in plan} <= {*NEMESES["network"], *NEMESES["clock"]}
    assert chosen(()) == [kind for kind in FAULTS if kind not in BY_NAME_ONLY]
    assert chosen(("damage-cluster",)) == ["damage-cluster"]
    with pytest.raises(KeyError):
        chosen(("bad luck",))
