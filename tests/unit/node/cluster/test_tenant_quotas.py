"""A tenant fills no bound of the cluster: it has a share, and part is kept for who holds little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.commands.codec import AllocateProducer, CreateTopic
from coordinator.commands.members import JoinGroup
from coordinator.commands.queue import DeleteGroup, PutGroup, PutSchedule
from coordinator.errors import ShareFull
from coordinator.topics.producers import REMEMBERED_MS
from log.disk.memory import MemoryDisk
from node.cluster import tenant_quotas as shares
from node.cluster.tenant_quotas import COUNT_LIVES_S, COUNTS_MAX, Bound, Shares
from tests.unit.coordinator.cluster_group import Cluster
from tests.unit.node.keyed import Keyed, keyed_node

A, B = ("team-a.",), ("team-b.",)
MOST = 40
"""Of each bound here: a share is 10, beyond 36 nobody gets more but who has none, which is 1%."""
KINDS = {
    "TOPICS": "topics",
    "PARTITIONS": "partitions",
    "GROUPS": "groups",
    "MEMBERS": "members of groups",
    "SCHEDULES": "schedules",
    "SCHEDULE_BYTES": "bytes of schedules",
    "TRANSACTIONAL_IDS": "transactional ids",
}


class Tenants:
    """A cluster's state and the shares that are held against it. Time goes by with each command."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.now_s = 0.0
        self.shares = Shares(lambda: self.cluster.state, 6, lambda: self.now_s)

    def do(self, *commands: Any) -> None:
        for command in commands:
            found = self.cluster.do(command)
            assert not isinstance(found, Exception), found
        self.now_s += COUNT_LIVES_S

    def refused(self, asked: Callable[[], None]) -> ShareFull:
        with pytest.raises(ShareFull) as found:
            asked()
        assert found.value.http_status == 429
        return found.value


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in KINDS.items():
        monkeypatch.setattr(shares, name, Bound(text, MOST))


@pytest.fixture
def tenants(small: None) -> Tenants:
    return Tenants()


def topic(name: str, partitions: int = 1) -> CreateTopic:
    return CreateTopic(name, {"partitions": partitions})


def schedule(name: str, topic: str, size: int = 1) -> PutSchedule:
    return PutSchedule(name, topic, b"v" * size, every_ms=60_000)


def test_the_bounds_are_those_of_the_cluster_and_a_share_is_a_quarter() -> None:
    bounds = (shares.TOPICS, shares.PARTITIONS, shares.GROUPS, shares.MEMBERS)
    more = (shares.SCHEDULES, shares.SCHEDULE_BYTES, shares.TRANSACTIONAL_IDS)

    assert [one.most for one in bounds] == [10_000, 20_000, 10_000, 20_000]
    assert [one.most for one in more] == [10_000, 16 << 20, 100_000]
    assert [one.share for one in (*bounds, *more)] == [one.most // 4 for one in (*bounds, *more)]
    assert shares.GROUPS.limit(9_000) == 2_500 and shares.GROUPS.limit(9_001) == 100


def test_a_tenant_makes_no_more_groups_than_its_share(tenants: Tenants) -> None:
    for n in range(10):
        tenants.shares.group(A, f"g{n}")
        tenants.do(PutGroup(f"g{n}", owner="team-a."))

    error = tenants.refused(lambda: tenants.shares.group(A, "g10"))
    assert error.data == {
        "bound": "groups",
        "limit": 10,
        "bound_max": MOST,
        "prefixes": ["team-a."],
    }
    assert "team-a.*" in error.message and "10 of the cluster's 40 groups" in error.message
    tenants.shares.group(A, "g3")  # it is there
    tenants.shares.group(B, "g10")
    tenants.shares.group(("",), "g10")
    tenants.do(DeleteGroup("g3"))
    tenants.shares.group(A, "g10")


def test_groups_count_by_their_name_where_they_have_no_owner_of_their_own(tenants: Tenants) -> None:
    tenants.do(*(PutGroup(f"team-a.{n}", owner="") for n in range(5)))
    tenants.do(*(PutGroup(f"team-a.x{n}") for n in range(5)))

    tenants.refused(lambda: tenants.shares.group(A, "one-more"))
    tenants.shares.group(B, "one-more")


def test_the_last_tenth_is_for_who_holds_little(small: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(shares, "GROUPS", Bound("groups", 200))
    tenants = Tenants()
    tenants.do(*(PutGroup(f"other-{n}", owner="") for n in range(180)))
    tenants.do(PutGroup("team-a.1", owner="team-a."), PutGroup("team-a.2", owner="team-a."))

    error = tenants.refused(lambda: tenants.shares.group(A, "team-a.3"))
    assert error.data["limit"] == 2
    tenants.shares.group(B, "team-b.1")


def test_members_count_in_the_groups_of_their_tenant(tenants: Tenants) -> None:
    tenants.do(topic("team-a.t"), PutGroup("g", owner="team-a."), PutGroup("h", owner="team-b."))
    ids = {name: group.id for name, group in tenants.cluster.state.groups.items()}
    for n in range(10):
        tenants.shares.member(A, "g", "")
        tenants.do(JoinGroup("g", ids["g"], f"m{n}", instance_id=f"i{n}", topics=["team-a.t"]))

    assert tenants.refused(lambda: tenants.shares.member(A, "g", "")).data["limit"] == 10
    tenants.refused(lambda: tenants.shares.member(A, "new", "i3"))
    tenants.shares.member(A, "g", "i3")  # takes the place of a member
    tenants.shares.member(B, "h", "")


def test_topics_and_their_partitions_have_a_share_each(tenants: Tenants) -> None:
    tenants.do(topic("team-a.big", 5))
    tenants.shares.topic(A, "team-a.more", 5)
    assert tenants.refused(lambda: tenants.shares.topic(A, "team-a.z", 6)).data["bound"] == (
        "partitions"
    )
    tenants.now_s += COUNT_LIVES_S
    tenants.refused(lambda: tenants.shares.topic(A, "team-a.z", None))  # the default is 6
    tenants.shares.topic(A, "team-a.big", 6)  # it is there
    tenants.now_s += COUNT_LIVES_S
    tenants.shares.partitions(A, 5)
    tenants.refused(lambda: tenants.shares.partitions(A, 1))  # as what was let in counts at once
    tenants.shares.partitions(A, 0)
    tenants.shares.topic(B, "team-b.t", 10)


def test_a_tenant_has_no_more_topics_than_its_share(small: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(shares, "PARTITIONS", Bound("partitions", 1000))
    tenants = Tenants()
    tenants.do(*(topic(f"team-a.{n}") for n in range(10)))

    assert tenants.refused(lambda: tenants.shares.topic(A, "team-a.z", 1)).data["bound"] == "topics"
    tenants.shares.topic(B, "team-b.z", 1)


def test_schedules_count_by_number_and_by_bytes(small: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(shares, "SCHEDULE_BYTES", Bound("bytes of schedules", 400))
    tenants = Tenants()
    tenants.do(topic("team-a.t"), topic("team-b.t"), schedule("big", "team-a.t", 60))
    mine = {"name": "more", "topic": "team-a.t", "key": None, "headers": ()}

    tenants.shares.schedule(A, {**mine, "value": b"v" * 40})
    tenants.now_s += COUNT_LIVES_S
    error = tenants.refused(lambda: tenants.shares.schedule(A, {**mine, "value": b"v" * 41}))
    assert error.data["bound"] == "bytes of schedules"
    tenants.now_s += COUNT_LIVES_S
    tenants.shares.schedule(A, {**mine, "name": "big", "value": b"v" * 100})  # in its place
    tenants.shares.schedule(B, {**mine, "topic": "team-b.t", "value": b"v" * 100})
    tenants.do(*(schedule(f"s{n}", "team-a.t") for n in range(9)))
    error = tenants.refused(lambda: tenants.shares.schedule(A, {**mine, "value": b"v"}))
    assert error.data["bound"] == "schedules"


def test_transactional_ids_count_until_they_make_room_for_others(tenants: Tenants) -> None:
    for n in range(10):
        tenants.shares.transactional_id(A, f"team-a.{n}")
        tenants.do(AllocateProducer(f"team-a.{n}"))

    tenants.refused(lambda: tenants.shares.transactional_id(A, "team-a.new"))
    tenants.shares.transactional_id(A, "team-a.3")  # known
    tenants.shares.transactional_id(B, "team-b.1")
    tenants.cluster.pass_ms(REMEMBERED_MS + 1)
    tenants.do(AllocateProducer("team-b.1"))
    tenants.shares.transactional_id(A, "team-a.new")


def test_a_tenant_at_its_share_is_counted_a_few_times_a_second_however_often_it_asks(
    tenants: Tenants,
) -> None:
    tenants.do(*(PutGroup(f"g{n}", owner="team-a.") for n in range(10)))
    rows_read = 0

    def rows() -> Any:
        nonlocal rows_read
        rows_read += 1
        return [("team-a.x", 10)]

    for _ in range(100):
        with pytest.raises(ShareFull):
            tenants.shares._require(shares.GROUPS, A, rows)
    assert rows_read == 1
    for n in range(COUNTS_MAX + 1):
        tenants.shares._require(shares.GROUPS, (f"t{n}",), lambda: ())
    assert len(tenants.shares._counts) <= COUNTS_MAX


# whatever makes something asks


JOB = {"topic": "team-a.t"}
JOIN = {"client_id": "c", "topics": ["team-a.t"]}
SCHEDULE = {"name": "s", "topic": "team-a.t", "every": "1m", "value": "v"}


@pytest.mark.parametrize(
    ("bound", "role", "method", "path", "body"),
    [
        ("TOPICS", "admin", "POST", "/topics", {"name": "team-a.new"}),
        ("PARTITIONS", "admin", "POST", "/topics", {"name": "team-a.new", "partitions": 2}),
        ("PARTITIONS", "admin", "POST", "/admin/topics/team-a.t/partitions", {"count": 3}),
        ("TOPICS", "producer", "POST", "/topics/team-a.auto/messages", {"value": "v"}),
        ("GROUPS", "consumer", "PUT", "/groups/team-a.new", {"max_attempts": 1}),
        ("GROUPS", "consumer", "POST", "/groups/new/receive", JOB),
        ("GROUPS", "consumer", "POST", "/groups/new/commit", {**JOB, "offsets": {"0": 0}}),
        ("GROUPS", "consumer", "POST", "/groups/new/join", JOIN),
        ("MEMBERS", "consumer", "POST", "/groups/new/join", JOIN),
        ("SCHEDULES", "producer", "POST", "/schedules", SCHEDULE),
        ("SCHEDULE_BYTES", "producer", "POST", "/schedules", SCHEDULE),
        (
            "TRANSACTIONAL_IDS",
            "producer",
            "POST",
            "/producers/init",
            {"transactional_id": "team-a."},
        ),
    ],
)
async def test_a_request_beyond_the_share_is_429_and_makes_nothing(
    node: Keyed,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    role: str,
    method: str,
    path: str,
    body: Any,
) -> None:
    token = await node.key(role, "team-a.")
    monkeypatch.setattr(shares, bound, Bound(KINDS[bound], 0))

    status, answer = await node(method, path, body, token)

    assert (status, answer["code"]) == (429, "share_full"), answer
    assert (answer["bound"], answer["limit"], answer["prefixes"]) == (KINDS[bound], 0, ["team-a."])
    assert answer["retriable"] is False
    state = node.node.broker.topics._cluster.state
    assert (set(state.groups), set(state.schedules)) == (set(), set())
    assert set(state.topics) - {"__audit"} == {"team-a.t"}
    assert (await node(method, path, body))[0] < 300  # a key of all has no share


@pytest.fixture
async def node(tmp_path: Path) -> Any:
    settings = {"audit.enabled": False, "broker.autoCreateTopics": True}
    async with keyed_node(MemoryDisk(), tmp_path, **settings) as keyed:
        await keyed.ok("POST", "/topics", {"name": "team-a.t", "partitions": 1})
        yield keyed
