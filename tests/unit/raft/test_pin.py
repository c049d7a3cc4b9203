"""PySyncObj is the release we know, with the private names that we override and use."""

from __future__ import annotations

import ast
import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pysyncobj
import pytest
from pysyncobj import SyncObj
from pysyncobj.journal import Journal as SyncObjJournal
from pysyncobj.node import Node
from pysyncobj.syncobj import _COMMAND_TYPE, _RAFT_STATE
from pysyncobj.transport import Transport

import raft
from raft.errors import Refused
from raft.state import CANDIDATE, FOLLOWER, LEADER
from raft.syncobj import NO_OP, SYNCOBJ_VERSION, Journal, Server
from tests.unit.raft.cluster import Cluster

RAFT = Path(raft.__file__).parent
SIGNATURES = {
    "_SyncObj__onMessageReceived": "(self, node, message)",
    "_SyncObj__onBecomeLeader": "(self)",
    "_SyncObj__setCurrentTerm": "(self, term, votedForNodeId)",
    "_SyncObj__setState": "(self, newState)",
    "_SyncObj__sendAppendEntries": "(self)",
    "_SyncObj__applyLogEntries": "(self)",
    "_SyncObj__generateRaftTimeout": "(self)",
    "_SyncObj__onSetCodeVersion": "(self, newVersion)",
    "_SyncObj__setCodeVersion": "(self, newVersion)",
    "_SyncObj__doApplyCommand": "(self, command)",
    "_SyncObj__changeCluster": "(self, request)",
    "_SyncObj__doChangeCluster": "(self, request, reverse=False)",
    "_SyncObj__parseChangeClusterRequest": "(self, command)",
    "_SyncObj__updateClusterConfiguration": "(self, newNodes)",
    "_SyncObj__tryLogCompaction": "(self)",
    "_SyncObj__loadDumpFile": "(self, clearJournal)",
    "_SyncObj__deleteEntriesFrom": "(self, fromIDx)",
    "_SyncObj__deleteEntriesTo": "(self, toIDx)",
    "_SyncObj__onReadonlyNodeConnected": "(self, node)",
    "_SyncObj__onReadonlyNodeDisconnected": "(self, node)",
    "_SyncObj__sendNextNodeIdx": "(self, node, reset=False, nextNodeIdx=None, success=False)",
    "_applyCommand": "(self, command, callback, commandType=None)",
    "_checkCommandsToApply": "(self)",
    "_onTick": "(self, timeToWait=0.0)",
    "doTick": "(self, timeToWait=0.0)",
    "setCodeVersion": "(self, newVersion, callback=None)",
    "addNodeToCluster": "(self, node, callback=None)",
    "removeNodeFromCluster": "(self, node, callback=None)",
    "transferLeadership": "(self, node=None, callback=None)",
    "forceLogCompaction": "(self)",
    "getStatus": "(self)",
}


def names_in_raft() -> set[str]:
    """Every private name of PySyncObj that our source mentions."""
    found: set[str] = set()
    for path in RAFT.glob("*.py"):
        found |= set(re.findall(r"_SyncObj__\w+", path.read_text()))
    return found


def test_release_is_the_pinned_one() -> None:
    assert version("pysyncobj") == SYNCOBJ_VERSION == "0.3.17"
    pins = (RAFT.parent / "pyproject.toml").read_text()
    assert f'"pysyncobj=={SYNCOBJ_VERSION}"' in pins


def test_every_private_name_we_use_exists_in_pysyncobj() -> None:
    source = inspect.getsource(pysyncobj.syncobj)
    attributes = {f"_SyncObj__{name}" for name in re.findall(r"self\.__(\w+)", source)}
    methods = {name for name in vars(SyncObj) if name.startswith("_SyncObj__")}

    assert names_in_raft() - attributes - methods == set()


def test_every_method_we_override_or_call_has_the_known_signature() -> None:
    found = {name: str(inspect.signature(getattr(SyncObj, name))) for name in SIGNATURES}
    assert found == SIGNATURES

    assert Server.__mro__ == (Server, SyncObj, object)
    ours = {name for name in vars(Server) if name in vars(SyncObj)}
    ours = {name for name in ours if inspect.isfunction(vars(SyncObj).get(name))} - {"__init__"}
    assert ours - set(SIGNATURES) == set()


def test_states_and_command_types_are_the_known_ones() -> None:
    known = (_RAFT_STATE.FOLLOWER, _RAFT_STATE.CANDIDATE, _RAFT_STATE.LEADER)
    assert known == (FOLLOWER, CANDIDATE, LEADER)
    assert bytes((_COMMAND_TYPE.NO_OP,)) == NO_OP


def test_bases_of_journal_node_and_transport_are_the_known_ones() -> None:
    assert str(inspect.signature(Transport.__init__)) == "(self, syncObj, selfNode, otherNodes)"
    assert str(inspect.signature(Transport.send)) == "(self, node, message)"
    assert str(inspect.signature(Node.__init__)) == "(self, id, **kwargs)"
    missing = {
        name
        for name, member in vars(SyncObjJournal).items()
        if inspect.isfunction(member) and name not in vars(Journal)
    }
    assert missing == set()


def test_only_one_module_knows_pysyncobj() -> None:
    importers = set()
    for path in RAFT.rglob("*.py"):
        if "_SyncObj__" in path.read_text():
            importers.add(path.name)
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.split(".")[0] == "pysyncobj" for name in names):
                importers.add(path.name)
    assert importers == {"syncobj.py"}


@pytest.mark.parametrize(
    "door",
    [
        "_applyCommand",
        "_checkCommandsToApply",
        "_onTick",
        "doTick",
        "setCodeVersion",
        "addNodeToCluster",
        "removeNodeFromCluster",
        "transferLeadership",
        "forceLogCompaction",
        "_SyncObj__applyLogEntries",
        "_SyncObj__doApplyCommand",
        "_SyncObj__changeCluster",
        "_SyncObj__doChangeCluster",
        "_SyncObj__parseChangeClusterRequest",
        "_SyncObj__tryLogCompaction",
        "_SyncObj__loadDumpFile",
        "_SyncObj__deleteEntriesFrom",
        "_SyncObj__deleteEntriesTo",
        "_SyncObj__onMessageReceived",
    ],
)
def test_door_to_pickle_membership_or_dumps_is_closed(door: str) -> None:
    server = Cluster(3).raft_group("a").server
    before = {**vars(server), **vars(server.state)}

    with pytest.raises(Refused):
        getattr(server, door)(*([b"\x02cos\nsystem\n"] * 2))

    assert {**vars(server), **vars(server.state)} == before


def test_journal_can_neither_be_cleared_nor_cut_behind_our_back() -> None:
    cluster = Cluster(3)
    cluster.elect()
    journal = cluster.raft_group("a").server._SyncObj__raftLog

    for call in (
        journal.clear,
        lambda: journal.deleteEntriesFrom(0),
        lambda: journal.deleteEntriesTo(1),
        lambda: journal.add(b"\x00raw", 9, 9),
        lambda: journal[1],
    ):
        with pytest.raises(Refused):
            call()
    assert (
        len(journal)
        == cluster.nodes["a"].store.partition_log(cluster.raft_group("a").id).last_index
    )


def test_group_opens_no_file_thread_or_socket() -> None:
    fds = Path("/proc/self/fd")
    if not fds.exists():
        pytest.skip("counts descriptors by /proc")
    before = len(list(fds.iterdir()))
    Cluster(5)
    assert len(list(fds.iterdir())) == before
