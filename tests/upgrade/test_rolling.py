"""Three real nodes rolled between the release and this tree, under load: nothing is lost, no
replica stops, nothing new is written before it is finished, and nothing old comes back after."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from log.config import StorageConfig
from log.disk.files import OsDisk
from log.entry import EntryKind
from log.store.directory import Store
from node.server import EXIT_OTHER_LEVEL
from tests.cluster.processes import Answer, Cluster, Node, eventually, tail
from tests.upgrade.load import GROUP, Load
from tests.upgrade.versions import Version, head, made_up, released

STOPPED = re.compile(r"replica_stopped|applies no more|cannot_start|Traceback")
OLD_FAULT = re.compile(r'"scrub_hashes".*/released\d+/node/comparison\.py.*after shutdown')
"""Of 0.2.0: a node that stops, and is asked to compare replicas meanwhile, says so by a traceback.
Nothing is lost by it, and its wheels can't be changed."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Version:
    return released(tmp_path_factory.mktemp("released"))


@pytest.fixture(scope="module")
def new(old: Version, tmp_path_factory: pytest.TempPathFactory) -> Version:
    """This tree; until it has a level that the release has not, with one that is made up."""
    return head() if head().highest > old.highest else made_up(tmp_path_factory.mktemp("made-up"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, 3) as made:
        yield made


def all_started(cluster: Cluster, version: Version) -> None:
    for node in cluster.nodes:
        version.start(node)
    cluster.wait_until_ready(60)


def roll(cluster: Cluster, version: Version, meanwhile: Callable[[Node], None] | None) -> None:
    """One node after the other, each once all is whole again; after the first something happens
    to another one."""
    for node in cluster.nodes:
        assert node.stop() == 0, tail(node.log)
        version.start(node)
        until_whole(cluster)
        if meanwhile is not None:
            meanwhile(cluster.nodes[(cluster.nodes.index(node) + 1) % 3])
            meanwhile = None
            until_whole(cluster)


def until_whole(cluster: Cluster) -> None:
    """Every node is ready, and every partition has all its replicas in sync."""
    cluster.wait_until_ready(60)

    def whole() -> bool:
        found = [node.ask("GET", "/v1/cluster/health").body for node in cluster.nodes]
        return all(one["status"] == "healthy" and not one["problems"] for one in found)

    eventually("a whole cluster", whole, deadline_s=60)


def upgrade(node: Node, *, dry_run: bool = False) -> Answer:
    return node.ask("POST", "/v1/admin/cluster/upgrade", {"dry_run": dry_run})


def assign(node: Node) -> Answer:
    """Gives the group an owner, which is a command of level 2."""
    return node.ask("PUT", f"/v1/groups/{GROUP}/owner", {"owner": "work"})


def kinds(node: Node) -> set[int | str]:
    """The tags of all operations and commands that a stopped node's logs hold."""
    store = Store.open(OsDisk(), str(node.data), StorageConfig(), read_only=True)
    found: set[int | str] = set()
    for partition_id in store.partition_ids():
        log = store.partition_log(partition_id)
        at = log.first_index
        while at <= log.last_index:
            entries = log.entries(at)
            for entry in entries:
                if entry.kind == EntryKind.QUEUE:
                    found.update(op[0] for op in msgspec.msgpack.decode(entry.body))
                elif entry.kind == EntryKind.COMMAND:
                    found.add(msgspec.msgpack.decode(entry.body)["type"])
            at = entries[-1].index + 1
    return found


def test_rolling_there_and_back_and_there_again_loses_nothing(
    cluster: Cluster, old: Version, new: Version
) -> None:
    """Given three nodes of the release under load; when they are rolled to this tree, back, and
    there again, with a kill, and with a node that nobody hears for a while, in the middle, and the
    level is finished: then nothing that was acked is lost, no replica has stopped, nothing new was
    written before, and the release is refused from then on."""

    def killed(node: Node) -> None:
        node.kill()
        load.until_more()
        (old if node is not cluster[0] else new).start(node)

    def silent(node: Node) -> None:
        node.pause()
        other = next(one for one in cluster.nodes if one is not node)
        eventually(f"{node.id} is missed", lambda: is_missed(other, node), deadline_s=60)
        load.until_more()
        node.resume()

    all_started(cluster, old)
    with Load(cluster) as load:
        roll(cluster, new, killed)
        load.until_more()
        assert upgrade(cluster[0], dry_run=True).body["waiting"] == []
        roll(cluster, old, silent)
        load.until_more()
        cluster[2].stop()
        assert kinds(cluster[2]) & new.kinds == set()
        new.start(cluster[2])
        until_whole(cluster)
        refused = upgrade(cluster[2])
        assert (refused.status, refused.body["code"]) == (409, "upgrade_waits"), refused.body
        assert [one.split()[0] for one in refused.body["waiting"]] == ["node-1", "node-2"]

        roll(cluster, new, None)
        assert assign(cluster[0]).body["code"] == "level_not_finished"
        assert upgrade(cluster[0]).body["finished_level"] == new.highest
        assert assign(cluster[0]).body["owner"] == "work"
        load.until_more()
        until_whole(cluster)
        old_is_refused(cluster[1], old, new)
        new.start(cluster[1])
        until_whole(cluster)
        load.until_more()

    load.verify()
    logs = "\n".join(node.log.read_text(errors="replace") for node in cluster.nodes)
    kept = [line for line in logs.splitlines() if STOPPED.search(line)]
    kept = [line for line in kept if not OLD_FAULT.search(line)]
    assert [line for line in kept if "has finished level" not in line] == []
    print(f"\n{len(load.acked)} acked, {len(load.worked)} delivered, {load.failures} refused calls")


def old_is_refused(node: Node, old: Version, new: Version) -> None:
    """By its own directory; and where it has none, and knows no level, by the others."""
    node.stop()
    assert not new.kinds or kinds(node) & new.kinds
    old.start(node)
    assert node.process is not None
    assert node.process.wait(60) == EXIT_OTHER_LEVEL
    assert "run the version that finished it" in tail(node.log)

    kept = node.data.rename(node.data.with_name("kept"))
    old.start(node)
    eventually("why it is not ready", lambda: "has finished level" in why_not(node), deadline_s=60)
    node.stop()
    shutil.rmtree(node.data)
    kept.rename(node.data)


def is_missed(by: Node, node: Node) -> bool:
    """Whether the link to a node is cut, as nothing was heard over it."""
    return bool(by.ask("GET", "/v1/cluster/health").body["nodes"][node.id] != "alive")


def why_not(node: Node) -> str:
    try:
        return str(node.ask("GET", "/readyz").body.get("message", ""))
    except OSError:
        return ""
