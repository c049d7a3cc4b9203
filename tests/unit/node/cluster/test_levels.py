"""Three whole nodes of two versions: nothing new before a level is finished, nobody old after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator.errors import UpgradeWaits
from log.disk.files import OsDisk
from log.levels import Levels, Spoken
from log.store.level_file import NAME, LevelFile
from node.api.upgrade import LevelsView
from node.assembly import assemble
from node.cluster.host import ClusterHost
from node.cluster.membership import BrokerMembership
from node.runtime.stored_level import OtherLevel, stored_levels
from node.server import EXIT_CANNOT_START, EXIT_OTHER_LEVEL, open_store, run_node
from raft.configuration import pack_snapshot
from tests.unit.node.test_node import config, eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes


def speaking(highest: int) -> Levels:
    return Levels(1, highest)


async def started(nodes: ThreeNodes, highest: dict[str, int]) -> None:
    for name, level in highest.items():
        await nodes.start(name, levels=speaking(level))
    await eventually(lambda: all(nodes.broker(name).node.ready().ready for name in highest), 20)


async def told(nodes: ThreeNodes, name: str = "n1") -> LevelsView:
    return await nodes.broker(name).upgrade.levels()


async def test_level_is_finished_only_once_all_brokers_speak_it_and_are_there() -> None:
    nodes = ThreeNodes()
    try:
        await started(nodes, {"n1": 2, "n2": 2, "n3": 1})
        with pytest.raises(UpgradeWaits, match=r"n3 runs .*, which speaks level 1"):
            await nodes.broker("n1").upgrade.finish_level()

        await nodes.stop("n3")
        await eventually(lambda: "n3" in nodes.running["n1"].status.cluster_view().problems[0])
        with pytest.raises(UpgradeWaits, match="n3"):
            await nodes.broker("n1").upgrade.finish_level()

        await started(nodes, {"n3": 2})
        found = await nodes.broker("n3").upgrade.finish_level()

        assert (found.finished, found.next, found.waiting) == (2, 2, [])
        for name in NAMES:
            await eventually(lambda name=name: nodes.broker(name).upgrade.version().level == 2)
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


def _highest(nodes: ThreeNodes, name: str, asked: str = "n1") -> int:
    """What the cluster knows of a node's version; 0 where who is asked knows nothing yet."""
    known = nodes.broker(asked).topics._cluster.state.brokers
    return next((one.highest_level for node, one in known.items() if node == name), 0)


async def test_older_version_is_kept_out_after_the_level_is_finished_and_says_why() -> None:
    nodes = ThreeNodes()
    try:
        await started(nodes, dict.fromkeys(NAMES, 2))
        await nodes.broker("n1").upgrade.finish_level()
        await nodes.stop("n3")

        old = speaking(1)
        await nodes.start("n3", levels=old)
        await eventually(lambda: bool(old.refused))
        await eventually(lambda: not nodes.broker("n3").node.ready().ready)

        ready = nodes.broker("n3").node.ready()
        assert not ready.ready
        assert "run the version that finished it" in ready.checks["cluster"].message
        assert any(
            "run the version" in one for one in nodes.broker("n3").node.cluster_view().problems
        )
        await eventually(lambda: nodes.broker("n1").node.ready().ready)
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


async def test_running_node_that_learns_of_a_level_beyond_it_leaves() -> None:
    """Given a cluster in which a node of an older version was taken for one of a newer: when the
    level is finished, then it is told to leave, and none of the others is."""
    nodes = ThreeNodes()
    old = speaking(1)
    try:
        await nodes.start("n3", levels=old)
        await started(nodes, {"n1": 2, "n2": 2})
        await eventually(lambda: nodes.broker("n3").node.ready().ready, 20)
        nodes.running["n3"].broker.topics._cluster.levels.learn(2)

        await eventually(lambda: nodes.outdated == ["n3"])
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


async def test_node_keeps_a_level_that_a_peer_of_its_cluster_tells_before_its_own_state_does() -> (
    None
):
    nodes, kept = ThreeNodes(), list[int]()

    def keep(level: int) -> bool:
        kept.append(level)
        return True

    try:
        await nodes.start("n3", levels=Levels(1, 2, keep=keep))
        await started(nodes, {"n1": 2, "n2": 2})
        await eventually(lambda: nodes.broker("n3").node.ready().ready, 20)
        nodes.broker("n1").topics._cluster.levels.learn(2)

        await eventually(lambda: kept == [1, 2])

        assert nodes.broker("n3").topics._cluster.levels.finished == 1
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


async def test_levels_are_finished_unasked_where_that_is_set() -> None:
    nodes = ThreeNodes(**{"cluster.autoFinish": True})
    try:
        await started(nodes, dict.fromkeys(NAMES, 3))

        await eventually(lambda: all(b.upgrade.version().level == 3 for b in nodes.brokers), 20)
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


async def test_directory_of_a_higher_level_is_left_alone(tmp_path: Path) -> None:
    LevelFile(OsDisk(), str(tmp_path)).write(7, "0.9.0")

    code = await run_node(config(**{"broker.dataDir": str(tmp_path)}))

    assert code == EXIT_OTHER_LEVEL
    assert os.listdir(tmp_path) == [NAME]
    with pytest.raises(OtherLevel, match="the cluster has finished level 7: run the version that"):
        stored_levels(OsDisk(), str(tmp_path))


async def test_stranger_of_a_higher_level_does_not_stop_a_cluster() -> None:
    """Given three nodes that are well; when a node of another cluster that has the same secret, and
    has finished a level beyond theirs, connects: then it is refused, and they stay ready."""
    nodes = ThreeNodes()
    try:
        await started(nodes, dict.fromkeys(NAMES, 1))
        levels = nodes.broker("n1").topics._cluster.levels

        assert levels.refusal("n9", Spoken(1, 9, 9)) is not None

        assert nodes.broker("n1").node.ready().ready
        assert nodes.broker("n1").node.cluster_view().problems == ()
        assert nodes.outdated == []
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


async def test_older_version_that_is_back_but_not_registered_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given three nodes of a new version, one of which comes back with the older one: before the
    cluster's state says so, the level is not finished, whoever is asked, and nobody is told to
    leave."""
    nodes = ThreeNodes()
    try:
        await started(nodes, dict.fromkeys(NAMES, 2))
        await nodes.stop("n3")
        await eventually(lambda: nodes.broker("n1").node.cluster_view().nodes[2].status == "dead")

        async def register(_self: BrokerMembership) -> float:
            return 3600.0

        monkeypatch.setattr(BrokerMembership, "_register", register)
        await nodes.start("n3", levels=Levels(1, 1))
        await eventually(lambda: nodes.broker("n1").node.cluster_view().nodes[2].status == "alive")
        await eventually(lambda: _highest(nodes, "n3", asked="n3") == 2)

        assert _highest(nodes, "n3") == 2
        assert "has not told the cluster yet" in str(nodes.broker("n3").node.ready())
        for name in ("n1", "n3"):
            with pytest.raises(UpgradeWaits, match="n3 is back with another version, which speaks"):
                await nodes.broker(name).upgrade.finish_level()
        assert nodes.outdated == []
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


async def test_directory_whose_cluster_state_is_of_a_later_version_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a node whose stored cluster state a later version has written, and whose level file is
    gone: when this version is started there, then it does not start, and says why."""
    settings = config(**{"broker.dataDir": str(tmp_path)})
    node = assemble(settings, open_store(settings), on_failure=lambda _error: None)
    await node.services.start()
    await eventually(lambda: node.broker.node.ready().ready)
    cluster = node.broker.topics._cluster
    assert isinstance(cluster, ClusterHost)
    raft_group, log = cluster.raft_group, cluster._log
    assert raft_group is not None
    assert log is not None
    of_version_99 = pack_snapshot(raft_group.membership.configuration, b"\x91\x63")
    await eventually(lambda: raft_group.applied_index <= log.durable_index)
    log.save_snapshot(raft_group.applied_index, of_version_99).run()
    await node.services.stop()

    code = await run_node(settings)

    assert code == EXIT_CANNOT_START
    assert "run the one that wrote it" in "".join(capsys.readouterr())
