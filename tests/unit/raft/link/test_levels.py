"""Who may be linked with whom, by the feature levels that both tell in the handshake."""

from __future__ import annotations

import pytest

from log.levels import Levels
from tests.unit.raft.link.conftest import Cluster, eventually


@pytest.mark.parametrize(
    ("mine", "peers", "why"),
    [
        (Levels(1, 3, known=2), Levels(1, 1), "speaks level 1, and the cluster has finished"),
        (Levels(1, 3, known=2), Levels(3, 4), "speaks levels 3 to 4, and the cluster has finished"),
        (Levels(1, 1), Levels(2, 2), "they have none in common"),
    ],
)
async def test_node_that_does_not_speak_the_finished_level_is_refused_by_name(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, mine: Levels, peers: Levels, why: str
) -> None:
    cluster.reserve("a", "b")
    a, b = cluster.node("a", levels=mine), cluster.node("b", levels=peers)
    await a.mesh.start()
    await b.mesh.start()

    await eventually(lambda: any(why in str(p.complaint) for p in a.mesh._peers.values()))

    assert not a.mesh.connected()
    assert not b.mesh.connected()


async def test_node_that_is_told_that_it_is_outdated_knows_why_it_takes_no_part(
    cluster: Cluster,
) -> None:
    old = Levels(1, 1)
    cluster.reserve("a", "b")
    a, b = cluster.node("a", levels=Levels(1, 2, known=2)), cluster.node("b", levels=old)
    await a.mesh.start()
    await b.mesh.start()

    await eventually(lambda: bool(old.refused))

    assert "finished level 2: run the version that finished it" in old.refused
    assert old.refused.endswith("(told by a)"), "it may be a stranger's word"
    assert not old.problem, "the peer may belong to another cluster"


async def test_link_ends_when_a_level_is_finished_that_the_peer_does_not_speak(
    cluster: Cluster,
) -> None:
    """Given three nodes that are linked, one of an older version; when the level that it does not
    speak is finished, then it is cut and the other is told of the level before anything else."""
    new, newer, old = Levels(1, 2, known=1), Levels(1, 2, known=1), Levels(1, 1, known=1)
    cluster.reserve("a", "b", "c")
    a, b = cluster.node("a", levels=new), cluster.node("b", levels=newer)
    c = cluster.node("c", levels=old)
    for node in (a, b, c):
        await node.mesh.start()
    await eventually(lambda: a.is_up(b, c) and b.is_up(a, c))
    new.on_known = a.mesh.tell_levels
    told = len(b.statuses)

    a.hello["finished"] = 2
    new.learn(2)

    await eventually(lambda: c.id not in a.mesh.connected())
    assert b.id in a.mesh.connected()
    await eventually(lambda: any(s.get("finished") == 2 for _, s in b.statuses[told:]))
