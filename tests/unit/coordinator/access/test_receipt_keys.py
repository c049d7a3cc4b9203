"""Keys for receipts in the cluster's state: one a day, bounded, and in no snapshot of level 1."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.access.receipt_keys import KEYS_MAX, ROTATED_MS, ReceiptKeys
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import RegisterBroker, feature_of
from coordinator.commands.keys import AddReceiptKey, KeyResult
from coordinator.commands.placement import FinishLevel
from coordinator.errors import BadConfig
from log.levels import Feature
from tests.unit.coordinator.cluster_group import Cluster

SECRET = bytes(range(32))
NOW_MS = 1_800_000_000_000


def add(keys: ReceiptKeys, id: int, time_ms: int, secret: bytes = SECRET) -> bool:
    return keys.add(time_ms, AddReceiptKey(id, secret)).created


def test_a_key_is_made_once_a_day_whoever_proposes_it() -> None:
    keys = ReceiptKeys()

    assert add(keys, 1, NOW_MS)
    assert not add(keys, 1, NOW_MS, b"another leader's proposal of it!")
    assert not add(keys, 2, NOW_MS + ROTATED_MS - 1)
    assert not add(keys, 3, NOW_MS + ROTATED_MS)
    assert add(keys, 2, NOW_MS + ROTATED_MS)

    assert [(key.id, key.secret) for key in keys.all] == [(1, SECRET), (2, SECRET)]


def test_former_keys_are_remembered_for_a_month() -> None:
    keys = ReceiptKeys()
    for day in range(KEYS_MAX + 10):
        assert add(keys, day + 1, NOW_MS + day * ROTATED_MS)

    assert [key.id for key in keys.all] == list(range(11, KEYS_MAX + 11))
    assert keys.all[-1].created_ms - keys.all[0].created_ms == 31 * ROTATED_MS


@pytest.mark.parametrize("secret", [b"", b"short", bytes(33)])
def test_a_secret_of_another_length_is_refused(secret: bytes) -> None:
    with pytest.raises(BadConfig):
        add(ReceiptKeys(), 1, NOW_MS, secret)


def test_keys_are_proposed_and_stored_from_level_two_on() -> None:
    cluster = Cluster(0)
    cluster.do(RegisterBroker("a", 7, lowest_level=1, highest_level=2))
    assert feature_of(AddReceiptKey(1, SECRET)) == Feature.RECEIPT_KEYS
    before = cluster.state.snapshot()

    cluster.do(FinishLevel(2))
    assert cluster.do(AddReceiptKey(1, SECRET)) == KeyResult("1", created=True)
    after = cluster.state.snapshot()

    assert msgspec.msgpack.decode(before)[0] == 4
    restored = ClusterState.restore(after)
    assert restored.receipt_keys.all == cluster.state.receipt_keys.all
    assert restored.snapshot() == after
