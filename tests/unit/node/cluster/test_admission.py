"""Who is let in under a name that the cluster knows."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.commands.codec import RegisterBroker
from goqueue.wire.errors import Unavailable
from goqueue.wire.types import Incarnation, NodeId
from node.cluster.admission import ALIVE_S, Admission
from node.cluster.host import ClusterHost
from node.peers.link import NoPeers

N2 = NodeId("n2")
ANEW = RegisterBroker("n2", 8, "n2:7000", "http://n2:8080", "")


@pytest.fixture
async def admission(monkeypatch: pytest.MonkeyPatch) -> Admission:
    cluster = SimpleNamespace(known_incarnation=lambda _node: Incarnation(7), hellos={})
    return Admission(cast(ClusterHost, cluster), NoPeers())


async def test_a_wiped_node_is_let_in_on_a_machine_that_has_just_started(
    admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of a machine begins at 0: a node that nobody has heard was taken for alive."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: ALIVE_S / 2, raising=False)

    admission._check_alone(ANEW)


async def test_nobody_takes_the_place_of_a_node_that_is_alive(admission: Admission) -> None:
    admission.heard(N2)

    with pytest.raises(Unavailable):
        admission._check_alone(ANEW)
