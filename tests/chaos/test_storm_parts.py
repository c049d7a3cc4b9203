"""The storm's parts, each against the real thing: networks, disks, lines, files; then its score."""

from __future__ import annotations

import asyncio
import os
import random
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest

from raft.config import RaftConfig
from tests.chaos.storm import ground
from tests.chaos.storm.damage import KINDS, damage
from tests.chaos.storm.disks import Disk
from tests.chaos.storm.kinds import BESIDE, COMBINED, SINGLE, available, expand
from tests.chaos.storm.network import Cut, Network
from tests.chaos.storm.round import Judgement
from tests.chaos.storm.run import conclude
from tests.chaos.storm.score import Score, gaps
from tests.chaos.storm.site import Abilities, Site, StormNode
from tests.chaos.storm.slow_line import SlowLine
from tests.check import logcheck, queuecheck
from tests.check.history import Event

MIB = 1 << 20


# -- networks


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    missing = ground.missing_for_networks()
    if missing:
        pytest.skip(missing)
    made = Network()
    made.open()
    for number in (1, 2, 3):
        made.add(number)
    yield made
    made.close()


def hears(network: Network, at: int, by: int, *, within_s: float = 10.0) -> bool:
    """Whether a datagram from one node arrives at another."""
    listen = (
        "import os,socket,sys; s=socket.socket(2,2); s.bind((sys.argv[1],7000));"
        "os.write(1,b'up'); os.write(1,s.recv(9))"
    )
    send = "import socket,sys; socket.socket(2,2).sendto(b'here',(sys.argv[1],7000))"
    address = network.address(at)
    with subprocess.Popen(
        network.command(at, [sys.executable, "-S", "-c", listen, address]), stdout=subprocess.PIPE
    ) as listener:
        assert listener.stdout is not None
        assert os.read(listener.stdout.fileno(), 100) == b"up"
        command = [sys.executable, "-S", "-c", send, address]
        subprocess.run(network.command(by, command), stderr=subprocess.DEVNULL, check=False)
        heard, _, _ = select.select([listener.stdout], [], [], within_s)
        listener.kill()
    return bool(heard)


def test_a_cut_node_is_not_heard_until_it_is_mended_and_what_was_dropped_is_counted(
    network: Network,
) -> None:
    network.cut(1, Cut((network.address(2), network.address(3))))

    assert not hears(network, at=2, by=1, within_s=0.2)
    assert not hears(network, at=1, by=2, within_s=0.2)
    assert min(network.dropped(1)) >= 1
    network.mend(1)
    assert hears(network, at=2, by=1)


def test_a_one_way_cut_lets_the_other_way_pass(network: Network) -> None:
    network.cut(1, Cut((network.address(2),), outbound=False))

    assert hears(network, at=2, by=1)
    assert not hears(network, at=1, by=2, within_s=0.2)
    network.mend(1)


def test_what_a_node_dials_is_diverted_to_us(network: Network) -> None:
    with socket.create_server((network.host, 0)) as ours:
        ours.settimeout(5)
        network.divert(2, {1: ours.getsockname()[1]}, cutting=[1])
        dial = f"import socket; socket.create_connection(('{network.address(1)}', 7000), 5)"
        dialling = subprocess.Popen(network.command(2, [sys.executable, "-S", "-c", dial]))

        _connection, (address, _port) = ours.accept()

        assert address == network.address(2)
        assert dialling.wait(10) == 0
        network.undivert(2)


# -- disks


@pytest.fixture
def disk() -> Iterator[Disk]:
    missing = ground.missing_for_disks()
    if missing:
        pytest.skip(missing)
    made = Disk("test", 64 * MIB)
    made.open()
    yield made
    made.close()


def test_a_power_cut_loses_what_was_not_synced_and_nothing_else(disk: Disk) -> None:
    path = disk.path / "file"
    with path.open("wb", buffering=0) as file:
        file.write(b"s" * 10_000)
        os.fsync(file.fileno())
        file.write(b"u" * 10_000)
        disk.cut_power()
        with pytest.raises(OSError):
            os.fsync(file.fileno())

    assert disk.restore_power()
    assert path.read_bytes() == b"s" * 10_000


def test_a_full_disk_refuses_another_file_until_it_is_emptied(disk: Disk) -> None:
    assert disk.fill()
    with pytest.raises(OSError), (disk.path / "new").open("wb") as file:
        file.write(bytes(MIB))
        os.fsync(file.fileno())

    disk.empty()
    (disk.path / "new").write_bytes(bytes(MIB))


def test_a_power_cut_does_not_fill_a_disk_again_that_was_emptied(disk: Disk) -> None:
    assert disk.fill()
    os.sync()
    disk.empty()

    disk.cut_power()

    assert disk.restore_power()
    (disk.path / "new").write_bytes(bytes(MIB))


def test_what_a_run_that_is_over_has_left_is_taken_away(disk: Disk) -> None:
    with subprocess.Popen(["true"]) as over:
        over.wait()
    left = disk.image.with_name(f"{ground.MARK}-{over.pid}-node-1.img")
    disk.image.rename(left)

    assert left.name in ground.clean_up()
    assert not left.exists()
    assert not os.path.ismount(disk.path)


# -- lines


@pytest.fixture
async def line() -> AsyncIterator[SlowLine]:
    """To a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made = SlowLine("127.0.0.1", server.sockets[0].getsockname(), random.Random(1))
    await made.start()
    yield made
    await made.stop()
    server.close()


async def round_trip_s(line: SlowLine) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
    began = time.monotonic()
    writer.write(b"ping")
    assert await asyncio.wait_for(reader.readexactly(4), 30) == b"ping"
    writer.close()
    return time.monotonic() - began


async def test_a_slow_line_is_late_in_both_directions(line: SlowLine) -> None:
    line.delay_s = (0.1, 0.1)

    assert await round_trip_s(line) >= 0.2
    assert line.passed >= 2


async def test_a_line_that_is_cut_holds_what_is_sent_until_it_is_whole(line: SlowLine) -> None:
    line.is_cut = True
    waiting = asyncio.create_task(round_trip_s(line))
    async with asyncio.timeout(30):
        while not line.held:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not waiting.done()

    line.is_cut = False

    await waiting


# -- files


def test_damage_reaches_every_kind_of_file_in_every_way_and_never_what_was_only_allocated(
    tmp_path: Path,
) -> None:
    rng = random.Random(1)
    seen: Counter[tuple[str, str]] = Counter()
    for _ in range(150):
        for number in (1, 2):
            (tmp_path / f"000{number}.wal").write_bytes(bytes([7]) * 5000 + bytes(9000))
        (tmp_path / "0001.segment").write_bytes(bytes([7]) * 5000)
        (tmp_path / "LOCK").write_text("pid 1")
        done = damage(tmp_path, rng)
        assert done is not None and done.at < 5000
        if done.is_done:
            seen[Path(done.file).suffix, done.kind] += 1

    assert set(seen) == {(suffix, kind) for suffix in (".wal", ".segment") for kind in KINDS}
    assert min(seen.values()) > 3


def test_nothing_is_damaged_where_nothing_is_stored(tmp_path: Path) -> None:
    (tmp_path / "0001.wal").write_bytes(bytes(100))

    assert damage(tmp_path, random.Random(1)) is None


# -- what is asked for, and what it came to


def test_names_mean_kinds() -> None:
    assert expand("kill,power,kill") == ["kill", "power", "blackout"]
    assert expand(None) == expand("all") == [*SINGLE, *COMBINED]
    with pytest.raises(ValueError, match="'quake'"):
        expand("quake")


def test_what_a_machine_cannot_do_is_skipped_by_name_and_the_run_is_incomplete() -> None:
    abilities = Abilities("not root", "not root", None)

    kinds, skipped = available(expand("kill,loss,power,partition,full,partition+kill"), abilities)

    assert kinds == ["kill", "partition", "full", "partition+kill"]
    assert set(skipped) == {
        *("loss", "power", "blackout"),
        *("partition in full", "full in full", "partition+kill in full"),
    }
    assert list(Score(skipped=skipped).lines())[-1].startswith("INCOMPLETE")
    assert list(Score().lines())[-1] == "complete"


def test_pauses_and_partitions_outlast_the_longest_election_timeout() -> None:
    longest_s = RaftConfig().election_max_s

    for name in ("pause", "partition", "oneway"):
        site = cast(Site, None)
        made = SINGLE[name](site, StormNode("n", "", [], 0), random.Random(1))
        assert made.lasts_s[0] > longest_s


def test_what_strikes_at_the_same_time_takes_one_node_each_and_different_means() -> None:
    for beside, kinds in BESIDE.items():
        assert {beside, *kinds} <= set(SINGLE) - {"blackout"}
        assert beside not in kinds
    assert not {"partition", "oneway", "loss", "clock"} & set(BESIDE["delay"])


def test_gaps_are_told_of_faults_that_were_alone() -> None:
    ack = {"type": "ok", "partition": 0, "sent": 10.01, "time": 10.5}

    found = gaps([ack, fault("kill", "killed"), fault("loss", "lost", beside=["kill"])])

    assert list(found) == [("kill", 0.5)]


def fault(kind: str, effect: str, **fields: object) -> Event:
    return {
        "type": "fault",
        "fault": kind,
        "nodes": ["n"],
        "partitions": [0],
        "at": 10.0,
        "until": 10.5,
        "effect": effect,
        "healthy_s": 1.0,
        **fields,
    }


def judged(*events: Event) -> Judgement:
    return Judgement(logcheck.Verdict([], acked=5), queuecheck.Verdict([]), Counter(), list(events))


def test_only_faults_that_are_shown_to_have_happened_count() -> None:
    score = Score()
    score.add_fault(fault("kill", ""))
    score.add_fault(fault("kill", "killed"))
    score.add_round(judged(fault("kill", "killed")))

    assert (score.rows["kill"].asked, score.rows["kill"].shown) == (2, 1)
    assert score.has_enough(1, 5, ["kill"])
    assert not score.has_enough(2, 5, ["kill"])
    assert not score.has_enough(1, 6, ["kill"])
    assert not score.has_enough(1, 5, ["kill", "pause"])


def test_exit_status_tells_what_failed() -> None:
    def score(gap_s: float = 0.1) -> Score:
        made = Score()
        made.add_fault(fault("kill", "killed"))
        ack = {"type": "ok", "partition": 0, "sent": 10.01, "time": 10.0 + gap_s}
        made.add_round(judged(ack, fault("kill", "killed")))
        return made

    broken, found = score(), score()
    broken.violations.append("L1: gone")
    found.findings.append("went on")

    assert conclude(score(), [], 1, 5, ["kill"]) == 0
    assert conclude(broken, [], 1, 5, ["kill"]) == 1
    assert conclude(found, [], 1, 5, ["kill"]) == 1
    assert conclude(score(), ["ground gone"], 1, 5, ["kill"]) == 2
    assert conclude(score(2.5), [], 1, 5, ["kill"]) == 3
    assert conclude(score(), [], 2, 5, ["kill"]) == 4


def test_what_clients_of_other_protocols_find_counts_also_when_storms_are_added_up() -> None:
    found = judged(fault("kill", "killed"))
    found.spoken.append("redis: lost: 7")
    found.spoken_counts["redis published"] = 10
    one, both = Score(), Score()
    one.add_round(found)
    both.merge(Score.load(one.dump()))

    assert not found.is_clean and not both.is_clean
    assert both.violations == ["redis: lost: 7"]
    assert any("{'redis published': 10}" in line for line in both.lines())
