"""Configurations: encoding, and the steps from one to the next."""

from __future__ import annotations

import pytest

from goqueue.wire.types import Incarnation, Index, NodeId, Voter
from raft.configuration import (
    REPLICAS_MAX,
    AddLearner,
    Change,
    Configuration,
    Confirm,
    Promote,
    Remove,
    decode_configuration,
    encode_configuration,
    encode_voters,
    pack_snapshot,
    unpack_snapshot,
)
from raft.errors import ChangeRefused


def replica(name: str, incarnation: int = 1) -> Voter:
    return Voter(NodeId(name), Incarnation(incarnation))


THREE = Configuration((replica("c"), replica("a"), replica("b")), (replica("d", 4),))


def test_a_configuration_is_read_as_it_was_written() -> None:
    assert decode_configuration(encode_configuration(THREE), 7) == Configuration(
        (replica("a"), replica("b"), replica("c")), (replica("d", 4),), index=Index(7)
    )


def test_an_epoch_is_kept_never_falls_and_takes_no_byte_where_there_is_none() -> None:
    later = THREE.after(Confirm(), 4)

    assert (later.voters, later.learners, later.epoch) == (THREE.voters, THREE.learners, 4)
    assert later.after(Remove(NodeId("d")), 3).epoch == 4
    assert later.after(Promote(NodeId("d")), 5).epoch == 5
    assert decode_configuration(encode_configuration(later), 7).epoch == 4
    content = pack_snapshot(later, b"state")
    assert isinstance(content, bytes)
    assert unpack_snapshot(content) == (later, b"state")
    assert b"epoch" not in encode_configuration(THREE)


def test_the_creating_entry_is_a_configuration_of_voters() -> None:
    assert decode_configuration(encode_voters(THREE.voters), 1) == Configuration(
        THREE.voters, (), index=Index(1)
    )


@pytest.mark.parametrize("lazy", [False, True])
def test_a_snapshot_gives_back_configuration_and_state(lazy: bool) -> None:
    packed = pack_snapshot(THREE, (lambda: b"state") if lazy else b"state")
    content = packed if isinstance(packed, bytes) else packed()

    assert unpack_snapshot(content) == (THREE, b"state")
    assert unpack_snapshot(b"an older snapshot") == (None, b"an older snapshot")


def test_every_change_moves_at_most_one_vote() -> None:
    changes: list[Change] = [
        AddLearner(replica("e")),
        Promote(NodeId("d")),
        Remove(NodeId("a")),
        Remove(NodeId("d")),
    ]
    for change in changes:
        after = THREE.after(change)
        assert len(set(after.voters) ^ set(THREE.voters)) <= 1, change
        assert after.is_sound()


@pytest.mark.parametrize(
    "change",
    [
        AddLearner(replica("a")),
        AddLearner(replica("a", 9)),
        AddLearner(replica("d", 4)),
        Promote(NodeId("a")),
        Promote(NodeId("z")),
        Remove(NodeId("z")),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: Change) -> None:
    with pytest.raises(ChangeRefused):
        THREE.after(change)


def test_the_last_voter_stays_and_replicas_are_bounded() -> None:
    with pytest.raises(ChangeRefused):
        Configuration((replica("a"),), (replica("b"),)).after(Remove(NodeId("a")))

    many = tuple(replica(f"n{number}") for number in range(REPLICAS_MAX))
    with pytest.raises(ChangeRefused):
        Configuration(many).after(AddLearner(replica("z")))
