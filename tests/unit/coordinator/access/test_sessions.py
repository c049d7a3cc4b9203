"""Sessions that were logged out of: over for everybody, bounded, forgotten once it is too late."""

from __future__ import annotations

from coordinator.access.sessions import SESSIONS_MAX
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import RegisterBroker
from coordinator.commands.keys import EndSession
from coordinator.commands.placement import FinishLevel
from coordinator.errors import UnknownKey
from tests.unit.coordinator.access.test_api_keys import create
from tests.unit.coordinator.cluster_group import Cluster

LIFE_S = 8 * 3600


def with_key(*, level: int = 2) -> Cluster:
    cluster = Cluster(brokers=0)
    cluster.do(RegisterBroker("n0", 7, lowest_level=1, highest_level=2))
    if level == 2:
        cluster.do(FinishLevel(2))
    cluster.do(create("root", "admin", "", seed=True))
    return cluster


def end(cluster: Cluster, nonce: str, key: str = "root") -> EndSession:
    command = EndSession(key, nonce, cluster.now_ms // 1000 + LIFE_S)
    cluster.do(command)
    return command


def is_ended(state: ClusterState, command: EndSession) -> bool:
    return state.keys.sessions.is_ended(command.key, command.nonce, command.ends_s)


def test_ended_session_is_over_and_others_of_its_key_go_on() -> None:
    cluster = with_key()
    command = end(cluster, "one")

    other = EndSession("root", "two", command.ends_s)
    assert is_ended(cluster.state, command)
    assert not is_ended(cluster.state, other)
    assert is_ended(ClusterState.restore(cluster.state.snapshot()), command)
    cluster.refuses(EndSession("nobody", "one", command.ends_s), UnknownKey)


def test_key_that_ends_too_many_ends_all_it_had_until_then_and_none_after() -> None:
    cluster = with_key()
    early = EndSession("root", "early", cluster.now_ms // 1000 + LIFE_S)
    ended = [end(cluster, f"s{number}") for number in range(10 * SESSIONS_MAX)]

    assert all(is_ended(cluster.state, one) for one in ended)
    assert is_ended(cluster.state, early)
    cluster.pass_ms(2000)
    late = EndSession("root", "late", cluster.now_ms // 1000 + LIFE_S)
    assert not is_ended(cluster.state, late)
    (kept,) = cluster.state.keys.sessions.dump()
    assert len(kept.nonces) <= SESSIONS_MAX


def test_what_would_have_ended_by_itself_is_forgotten() -> None:
    cluster = with_key()
    for number in range(SESSIONS_MAX + 1):
        end(cluster, f"s{number}")
    cluster.do(create("app", "admin", ""))
    end(cluster, "old", "app")
    cluster.pass_ms((LIFE_S + 60) * 1000)
    new = end(cluster, "new", "app")

    (kept,) = cluster.state.keys.sessions.dump()
    assert (kept.key, kept.nonces) == ("app", {"new": new.ends_s})


def test_snapshot_of_level_one_tells_no_sessions() -> None:
    cluster = with_key(level=1)

    restored = ClusterState.restore(cluster.state.snapshot())

    assert restored.keys.sessions.dump() == []
    assert b"ended_sessions" not in cluster.state.snapshot()
