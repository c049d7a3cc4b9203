"""Bits flip on the disks of real nodes: named, never served, and repaired from the other nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cluster.conftest import Start
from tests.cluster.processes import Cluster, Node, eventually, publish, read_all

MESSAGES = [{"value": f"message {n} {'x' * 50}", "partition": 0} for n in range(20)]


def flip(node: Node, number: int) -> None:
    """Flips a bit within one message, in the one segment of the topic's partition."""
    needle = f"message {number} ".encode()
    for path in node.data.glob("groups/*/*.segment"):
        data = path.read_bytes()
        at = data.find(needle)
        if at >= 0:
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            return
    raise AssertionError(f"{node.id} holds no message {number} in a segment")


REPAIRED_S = 120.0
"""Ends what hangs."""
SMALL = (
    "storage.segmentBytes=64KiB",
    "storage.checkpointInterval=200ms",
    "storage.snapshotInterval=300ms",
    "storage.scrubRate=0",
)


def partition_directory(node: Node) -> Path:
    return next(p for p in node.data.glob("groups/*") if not p.name.startswith("0000"))


def spoil(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def scrubbed(node: Node) -> dict[str, object] | None:
    """The answer, once all nodes are idle and nothing waits for repair."""
    found: dict[str, object] = node.ask("GET", "/admin/scrub").body
    return found if found["state"] == "idle" else None


def whole(cluster: Cluster, victim: Node) -> Callable[[], bool]:
    """Whether a node is ready, in sync everywhere, and nobody names a problem."""

    def look() -> bool:
        if not victim.is_ready():
            return False
        listed = cluster[0].ask("GET", "/topics/t/partitions").body["partitions"]
        synced = all(len(row["isr"]) == len(row["voters"]) == 3 for row in listed)
        return synced and all(healthy(node)() for node in cluster.nodes)

    return look


def healthy(node: Node) -> Callable[[], bool]:
    return lambda: node.ask("GET", "/cluster/health").body["problems"] == []


def test_two_nodes_damaged_in_different_places_are_whole_again(start: Start) -> None:
    cluster = start()
    answer = cluster[0].ask("POST", "/topics", {"name": "t", "num_partitions": 1})
    assert answer.status == 201
    for message in MESSAGES:
        publish(cluster[0], "t", [message])
    for node in cluster.nodes:  # twice: only then is everything in segments, and nothing in the log
        assert node.stop() == 0
    cluster.start()
    for node in cluster.nodes:
        assert node.stop() == 0

    flip(cluster[0], 5)
    flip(cluster[1], 12)
    cluster.start()
    expected = [message["value"] for message in MESSAGES]
    for node in cluster.nodes:
        eventually(f"{node.id} without a problem", healthy(node))
        read = [message["value"] for message in read_all(node, "t", 0)]
        assert read[: len(expected)] == expected
        publish(node, "t", [{"value": "after", "partition": 0}])

    for node in cluster.nodes[:2]:
        assert "entries_repaired" in node.log.read_text()

    cluster[2].kill()  # the two that were damaged are voters like any other
    publish(cluster[0], "t", [{"value": "last", "partition": 0}])


def test_a_node_is_damaged_while_it_runs_and_while_it_is_stopped_and_comes_back_by_itself(
    start: Start,
) -> None:
    cluster = start(3, *SMALL)
    assert cluster[0].ask("POST", "/topics", {"name": "t", "num_partitions": 1}).status == 201
    expected = [f"message {number} {'x' * 1000}" for number in range(300)]
    for at in range(0, 300, 10):
        publish(cluster[0], "t", [{"value": v, "partition": 0} for v in expected[at : at + 10]])
    victim = cluster[1]
    directory = partition_directory(victim)
    eventually("a snapshot", lambda: list(directory.glob("*.snapshot")))
    sealed, *_, active = sorted(directory.glob("*.segment"))

    spoil(sealed, 5_000, bytes(4096))
    sealed.with_suffix(".terms").unlink()
    spoil(active, active.stat().st_size // 2, b"junk" * 100)
    with active.with_suffix(".terms").open("r+b") as file:
        file.truncate(60)
    spoil(max(victim.data.glob("wal/*.wal")), 400, b"\xff" * 100)
    assert cluster[0].ask("POST", "/admin/scrub").status == 202
    eventually("repaired while running", lambda: scrubbed(cluster[0]), deadline_s=REPAIRED_S)
    eventually("whole", whole(cluster, victim), deadline_s=REPAIRED_S)
    assert "scrub_found" in victim.log.read_text()
    assert [message["value"] for message in read_all(victim, "t", 0)] == expected

    victim.kill()
    spoil(max(victim.data.glob("wal/*.wal")), 0, b"\0" * 4096)
    publish(cluster[0], "t", [{"value": "while it was away", "partition": 0}])
    victim.start()
    eventually("begun anew and whole", whole(cluster, victim), deadline_s=REPAIRED_S)
    assert "data_set_aside" in victim.log.read_text()
    cluster[2].kill()  # who came back is a voter like any other
    publish(cluster[0], "t", [{"value": "last", "partition": 0}])
    values = [message["value"] for message in read_all(victim, "t", 0)]
    assert values == [*expected, "while it was away", "last"]
