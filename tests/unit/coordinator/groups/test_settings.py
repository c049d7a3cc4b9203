"""Groups of the cluster: settings are judged together, ids are never used twice."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import RegisterBroker
from coordinator.commands.placement import FinishLevel
from coordinator.commands.queue import AssignGroup, DeleteGroup, GroupResult, PutGroup
from coordinator.errors import BadConfig, ClusterFull, GroupTaken
from coordinator.groups import settings as groups
from coordinator.groups.settings import Group, GroupSettings, group_settings
from delivery.config import GroupConfig
from goqueue.wire.errors import BadName, UnknownGroup
from tests.unit.coordinator.cluster_group import START_MS, Cluster


def test_settings_and_their_defaults_are_those_that_partitions_know() -> None:
    settings = asdict(GroupSettings())
    theirs = {name: settings.pop(name) for name in GroupConfig.__struct_fields__}

    assert GroupConfig(**theirs) == GroupConfig()
    assert set(settings) == {"mode", "assignor", "session_timeout_ms", "rebalance_timeout_ms"}


def test_a_new_group_has_its_entrys_index_as_id_and_version() -> None:
    cluster = Cluster()

    result = cluster.do(PutGroup("pay", {"visibility_ms": 5}))

    index = cluster.index
    assert result == GroupResult("pay", index, index, created=True)
    settings = GroupSettings(visibility_ms=5)
    assert cluster.state.groups["pay"] == Group("pay", index, index, settings, START_MS + index)


def test_a_change_keeps_the_id_and_what_it_does_not_name() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay", {"max_attempts": 7}))
    before = cluster.state.groups["pay"]

    result = cluster.do(PutGroup("pay", {"halt_percent": 50}, {"max_attempts": 1}))

    after = cluster.state.groups["pay"]
    assert result == GroupResult("pay", before.id, cluster.index)
    assert (after.settings.max_attempts, after.settings.halt_percent) == (7, 50)
    assert after.created_ms == before.created_ms


def test_a_change_to_the_same_is_none() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay", {"max_attempts": 7}))
    before = cluster.state.groups["pay"]

    cluster.do(PutGroup("pay", {"max_attempts": 7}))

    assert cluster.state.groups["pay"] is before


def test_to_ensure_a_group_creates_it_with_defaults_or_leaves_it() -> None:
    cluster = Cluster()

    cluster.do(PutGroup("new", {}, {"max_attempts": 9}, ensure=True))
    cluster.do(PutGroup("new", {"max_attempts": 1}, ensure=True))

    assert cluster.state.groups["new"].settings.max_attempts == 9


def test_a_group_deleted_and_made_again_is_another_one() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay"))
    old = cluster.state.groups["pay"].id

    cluster.do(DeleteGroup("pay", old))
    cluster.do(PutGroup("pay"))

    assert cluster.state.groups["pay"].id > old
    cluster.refuses(DeleteGroup("pay", old), UnknownGroup)


@pytest.mark.parametrize("name", ["", "../evil", "a b", "x" * 250, ".hidden"])
def test_a_group_is_named_as_topics_are(name: str) -> None:
    Cluster().refuses(PutGroup(name), BadName)


def test_an_unknown_group_can_not_be_deleted() -> None:
    Cluster().refuses(DeleteGroup("pay"), UnknownGroup)


def test_all_problems_are_told_at_once_and_nothing_changes() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay"))

    wrong = {"visibility_ms": -1, "ordering": "lifo", "colour": "red", "lane_share": True}
    error = cluster.refuses(PutGroup("pay", wrong), BadConfig)

    problems = error.data["problems"]
    assert [text.split(":")[0] for text in problems] == [  # type: ignore[attr-defined]
        "colour",
        "lane_share",
        "ordering",
        "visibility_ms",
    ]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("visibility_ms", 0, 12 * 3_600_000),
        ("max_attempts", 0, 1000),
        ("lane_share", 2, 100),
        ("halt_percent", 0, 100),
        ("in_flight_max", 1, 10_000),
    ],
)
def test_a_bound_itself_is_allowed_and_what_is_beyond_is_not(
    name: str, low: int, high: int
) -> None:
    for value in (low, high):
        assert getattr(group_settings({name: value}), name) == value
    for value in (low - 1, high + 1, 1.5, "2", None):
        with pytest.raises(BadConfig, match=name):
            group_settings({name: value})


def test_only_groups_in_key_order_can_park() -> None:
    with pytest.raises(BadConfig, match="on_poison"):
        group_settings({"on_poison": "park"})
    assert group_settings({"on_poison": "park", "ordering": "key"}).on_poison == "park"


def test_a_group_keeps_the_ordering_that_it_was_made_with() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay", {"ordering": "key"}))

    error = cluster.refuses(PutGroup("pay", {"ordering": "none"}), BadConfig)
    cluster.do(PutGroup("pay", {"ordering": "key", "max_attempts": 7}))

    assert error.data["problems"] == ["ordering: cannot be changed; this group has key"]
    assert cluster.state.groups["pay"].settings.max_attempts == 7


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    cluster = Cluster()
    cluster.do(PutGroup("a"))
    cluster.do(PutGroup("b"))

    cluster.refuses(PutGroup("c"), ClusterFull)
    cluster.do(DeleteGroup("a"))
    assert isinstance(cluster.do(PutGroup("c")), GroupResult)


def test_groups_outlive_a_snapshot() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay", {"ordering": "key"}))

    assert ClusterState.restore(cluster.state.snapshot()).groups == cluster.state.groups


def test_a_group_belongs_to_its_maker_until_it_is_assigned_or_deleted() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay", owner="team-b."))
    cluster.do(PutGroup("old"))
    ids = {name: group.id for name, group in cluster.state.groups.items()}

    assert cluster.state.group_owners == {ids["pay"]: "team-b."}
    cluster.do(PutGroup("pay", {"max_attempts": 1}, owner="", judged=ids["pay"]))
    cluster.do(AssignGroup("old", "", ids["old"]))
    assert cluster.state.group_owners == {ids["pay"]: "team-b.", ids["old"]: ""}
    cluster.do(AssignGroup("pay", "team-c."))
    cluster.do(DeleteGroup("old"))
    assert cluster.state.group_owners == {ids["pay"]: "team-c."}


def test_a_scope_that_did_not_see_the_group_does_not_get_another_ones() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay", ensure=True, owner="team-b."))
    id = cluster.state.groups["pay"].id

    for ensure in (True, False):
        cluster.refuses(PutGroup("pay", {}, ensure=ensure, owner="team-a."), GroupTaken)
        cluster.refuses(PutGroup("pay", {}, ensure=ensure, owner="team-a.", judged=1), GroupTaken)
    again = cluster.do(PutGroup("pay", ensure=True, owner="team-b."))  # its answer was lost
    assert isinstance(again, GroupResult) and again.id == id
    cluster.do(PutGroup("pay", {"max_attempts": 1}, owner="team-a.", judged=id))
    assert cluster.state.groups["pay"].settings.max_attempts == 1


def test_an_owner_is_how_a_name_can_begin() -> None:
    cluster = Cluster()
    cluster.do(PutGroup("pay"))

    cluster.refuses(AssignGroup("pay", "not a name"), BadConfig)
    cluster.refuses(PutGroup("new", owner="not a name"), BadConfig)
    cluster.refuses(AssignGroup("nobody", "x"), UnknownGroup)
    cluster.refuses(AssignGroup("pay", "x", id=1), UnknownGroup)


def test_owners_are_in_snapshots_of_level_two() -> None:
    cluster = Cluster(0)
    cluster.do(RegisterBroker("a", 1, highest_level=2))
    cluster.do(FinishLevel(2))
    cluster.do(PutGroup("pay", owner="team-b."))
    cluster.do(PutGroup("old"))

    restored = ClusterState.restore(cluster.state.snapshot())

    assert restored.group_owners == cluster.state.group_owners != {}
    assert restored.snapshot() == cluster.state.snapshot()
