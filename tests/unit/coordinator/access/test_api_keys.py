"""API keys in the cluster's state: made, rotated, revoked, over by log time."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.access import api_keys
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import RegisterBroker
from coordinator.commands.keys import CreateKey, KeyResult, RevokeKey, RotateKey, SecretDigest
from coordinator.commands.placement import FinishLevel
from coordinator.errors import (
    BadConfig,
    ClusterFull,
    KeyExists,
    KeyRevoked,
    LastAdminKey,
    TwoSecrets,
    UnknownKey,
)
from goqueue.wire.errors import BadName
from tests.unit.coordinator.cluster_group import Cluster

HOUR_MS = 3_600_000


def digest(number: int = 1) -> SecretDigest:
    return SecretDigest("scrypt-11-8-1", b"s" * 16, bytes([number]) * 32)


def create(id: str = "app", role: str = "producer", *prefixes: str, **given: object) -> CreateKey:
    chosen = {"secret": digest(), **given}
    return CreateKey(id, role, list(prefixes or ("orders.",)), **chosen)  # type: ignore[arg-type]


def live(cluster: Cluster, id: str = "app") -> list[int]:
    """The first bytes of the digests that open anything now."""
    key = cluster.state.keys.named(id)
    return [one.secret.digest[0] for one in key.live_secrets(cluster.now_ms)]


def with_master() -> Cluster:
    cluster = Cluster()
    cluster.do(create("root", "admin", "", seed=True))
    return cluster


def test_a_key_is_made_once_and_a_call_that_is_repeated_is_answered_again() -> None:
    cluster = Cluster()

    assert cluster.do(create(request=7)) == KeyResult("app", created=True)
    assert cluster.do(create(request=7)) == KeyResult("app", created=True)
    cluster.refuses(create(request=8), KeyExists)
    assert cluster.state.keys.named("app").prefixes == ["orders."]


@pytest.mark.parametrize(
    "wrong",
    [
        create(role="root"),
        CreateKey("app", "producer", [], digest()),
        create("app", "producer", "*"),
        create("app", "producer", "a/b"),
        create("app", "producer", "x" * 250),
        create(name="n" * 201),
        create(name="two\nlines"),
        create(secret=SecretDigest("scrypt", b"", b"")),
        create(expires_ms=1),
    ],
)
def test_a_key_that_would_not_do_is_refused(wrong: CreateKey) -> None:
    Cluster().refuses(wrong, BadConfig)


def test_an_id_that_could_not_be_told_from_its_secret_is_refused() -> None:
    for id in ("", "a.b", "-a", "a b", "x" * 64):
        Cluster().refuses(create(id), BadName)


def test_after_a_rotation_both_secrets_live_until_the_older_ones_grace_is_over() -> None:
    cluster = Cluster()
    cluster.do(create())

    cluster.do(RotateKey("app", digest(2), HOUR_MS))
    assert live(cluster) == [1, 2]
    cluster.pass_ms(HOUR_MS)
    assert live(cluster) == [2]


def test_a_third_secret_needs_to_be_told_which_one_stays() -> None:
    cluster = Cluster()
    cluster.do(create())
    cluster.do(RotateKey("app", digest(2), HOUR_MS))

    cluster.refuses(RotateKey("app", digest(3), HOUR_MS), TwoSecrets)
    cluster.do(RotateKey("app", digest(3), HOUR_MS, keep="oldest", request=9))
    assert live(cluster) == [1, 3]
    cluster.do(RotateKey("app", digest(4), HOUR_MS, keep="oldest", request=9))
    assert live(cluster) == [1, 3]  # the same call
    cluster.do(RotateKey("app", digest(5), HOUR_MS, keep="newest"))
    assert live(cluster) == [3, 5]
    cluster.do(RotateKey("app", digest(6), 0))
    assert live(cluster) == [6]


def test_rotating_never_lets_a_secret_live_longer_than_it_was_to() -> None:
    cluster = Cluster()
    cluster.do(create())
    cluster.do(RotateKey("app", digest(2), HOUR_MS))
    cluster.do(RotateKey("app", digest(3), 10 * HOUR_MS, keep="oldest"))

    cluster.pass_ms(HOUR_MS)

    assert live(cluster) == [3]


def test_a_key_expires_by_log_time() -> None:
    cluster = Cluster()
    cluster.do(create(expires_ms=cluster.now_ms + HOUR_MS))
    assert live(cluster) == [1]

    cluster.pass_ms(HOUR_MS)

    assert live(cluster) == []
    assert cluster.state.keys.named("app").state(cluster.now_ms) == "expired"
    cluster.refuses(RotateKey("app", digest(2), HOUR_MS), KeyRevoked)


def test_a_key_that_is_revoked_has_no_secrets_and_never_comes_back() -> None:
    cluster = Cluster()
    cluster.do(create())

    assert cluster.do(RevokeKey("app")) == KeyResult("app")
    assert cluster.do(RevokeKey("app")) == KeyResult("app")

    assert cluster.state.keys.named("app").secrets == []
    cluster.refuses(create(), KeyRevoked)
    cluster.refuses(RotateKey("app", digest(2), 0), KeyRevoked)
    cluster.refuses(RevokeKey("other"), UnknownKey)


def test_the_seed_is_sown_only_where_nobody_can_make_keys() -> None:
    cluster = with_master()

    assert cluster.do(create("root2", "admin", "", seed=True)) == KeyResult("root2")
    assert list(cluster.state.keys.by_id) == ["root"]

    for lesser in (create("a", "admin", "orders."), create("b", "readonly", "")):
        other = Cluster()
        other.do(lesser)
        assert other.do(create("root", "admin", "", seed=True)) == KeyResult("root", created=True)


def test_a_revoked_seed_is_not_sown_again() -> None:
    cluster = with_master()
    cluster.do(create("root2", "admin", ""))
    cluster.do(RevokeKey("root"))
    cluster.refuses(RevokeKey("root2"), LastAdminKey)

    cluster.state.keys.by_id.pop("root2")

    cluster.refuses(create("root", "admin", "", seed=True), KeyRevoked)


def test_the_last_admin_key_can_not_be_revoked_also_beside_one_that_will_expire() -> None:
    cluster = with_master()
    cluster.do(create("passing", "admin", "", expires_ms=cluster.now_ms + HOUR_MS))
    cluster.do(create("scoped", "admin", "orders."))

    cluster.refuses(RevokeKey("root"), LastAdminKey)

    cluster.do(RevokeKey("passing"))
    cluster.do(RevokeKey("scoped"))


def test_keys_are_bounded_and_those_that_are_over_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_keys, "KEYS_MAX", 2)
    cluster = Cluster()
    cluster.do(create("a"))
    cluster.do(create("b"))
    cluster.refuses(create("c"), ClusterFull)

    cluster.do(RevokeKey("a"))
    cluster.do(create("c"))

    assert list(cluster.state.keys.by_id) == ["b", "c"]


def test_keys_are_in_the_snapshot() -> None:
    cluster = with_master()
    cluster.do(create())
    cluster.do(RotateKey("app", digest(2), HOUR_MS))

    restored = ClusterState.restore(cluster.state.snapshot())

    assert restored.keys.by_id == cluster.state.keys.by_id
    assert restored.snapshot() == cluster.state.snapshot()


def test_a_key_that_was_over_by_log_time_is_over_after_a_restart_with_a_slow_clock() -> None:
    """A node's clock may stand before log time; what it restores tells how late it is at least."""
    cluster = with_master()
    cluster.do(create(expires_ms=cluster.now_ms + HOUR_MS))
    cluster.pass_ms(2 * HOUR_MS)
    cluster.do(create("other"))

    restored = ClusterState.restore(cluster.state.snapshot())

    slow_clock_ms = 0
    now_ms = max(slow_clock_ms, restored.time_ms)
    assert restored.keys.named("app").live_secrets(now_ms) == []


def test_a_snapshot_from_before_there_were_keys_is_read() -> None:
    fields = msgspec.msgpack.decode(Cluster().state.snapshot())

    restored = ClusterState.restore(msgspec.msgpack.encode([3, *fields[1:12]]))

    assert restored.keys.by_id == {}


def test_a_keys_groups_begin_as_its_topics_unless_it_says_otherwise() -> None:
    cluster = with_master()
    cluster.do(create("same", "consumer"))
    cluster.do(create("other", "consumer", group_prefixes=["bills-", "bills-"]))
    keys = cluster.state.keys

    assert keys.groups_of(keys.named("same")) == ["orders."]
    assert keys.groups_of(keys.named("other")) == ["bills-"]
    assert keys.named("other").prefixes == ["orders."]


def test_names_that_begin_as_some_keys_groups_do_are_reserved_while_it_lives() -> None:
    cluster = with_master()
    cluster.do(create("other", "consumer", group_prefixes=["bills-", ""]))
    keys = cluster.state.keys

    assert keys.is_reserved("bills-1")
    assert not keys.is_reserved("bills") and not keys.is_reserved("orders.x")
    cluster.do(create("same", "consumer"))
    assert keys.is_reserved("orders.x")
    cluster.do(RevokeKey("other"))
    assert not keys.is_reserved("bills-1")


@pytest.mark.parametrize(
    "prefixes", [["not a name"], [str(n) for n in range(api_keys.PREFIXES_MAX + 1)]]
)
def test_group_prefixes_are_judged_as_those_of_topics(prefixes: list[str]) -> None:
    error = Cluster().refuses(create(group_prefixes=prefixes), BadConfig)

    assert "group_prefixes" in error.message


def test_an_admin_of_every_topic_reaches_every_group() -> None:
    cluster = Cluster()

    cluster.refuses(create("a", "admin", "", group_prefixes=["x"]), BadConfig)
    assert isinstance(cluster.do(create("a", "admin", "", group_prefixes=[""])), KeyResult)
    assert isinstance(cluster.do(create("b", "admin", "o", group_prefixes=["x"])), KeyResult)


def test_group_prefixes_are_in_snapshots_of_level_two() -> None:
    cluster = Cluster(0)
    cluster.do(RegisterBroker("a", 1, highest_level=2))
    cluster.do(FinishLevel(2))
    cluster.do(create("other", "consumer", group_prefixes=["bills-"]))

    restored = ClusterState.restore(cluster.state.snapshot())

    assert restored.keys.group_prefixes == {"other": ["bills-"]}
    assert restored.snapshot() == cluster.state.snapshot()
