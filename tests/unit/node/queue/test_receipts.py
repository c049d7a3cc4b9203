"""Which receipts are this cluster's own: by keys that rotate, one code for each delivery."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from coordinator.access.receipt_keys import KEYS_MAX, ROTATED_MS, ReceiptKeys
from coordinator.commands.keys import AddReceiptKey
from delivery.config import VISIBILITY_MS_MAX
from goqueue.wire.errors import BadReceipt, GoQueueError, ReceiptExpired
from goqueue.wire.types import Index, Offset, PartitionId, TopicId
from node.queue import receipts
from node.queue.receipt import MAC_BYTES, Receipt, encode_receipts, place_of, signed, vouched_of
from node.queue.receipts import KeyNotKnown, Receipts

PARTITION = PartitionId(TopicId(7, 9), 3)
NOW_MS = 1_800_000_000_000


@dataclass
class Node:
    """One that knows what it is told."""

    keys: ReceiptKeys = field(default_factory=ReceiptKeys)
    now_ms: int = NOW_MS

    def __post_init__(self) -> None:
        self.receipts = Receipts(lambda: self.keys, lambda: self.now_ms)

    def rotate(self, times: int = 1) -> None:
        for _ in range(times):
            if self.keys.all:
                self.now_ms += ROTATED_MS
            id = self.keys.following
            assert self.keys.add(self.now_ms, AddReceiptKey(id, bytes([id]) * 32)).created

    def write(self, *offsets: int, delivery: int = 5) -> list[str]:
        return self.receipts.write(PARTITION.pack(), 4, delivery, offsets)

    def read(self, text: str) -> Receipt | GoQueueError:
        return self.receipts.read([text])[0]

    def refuses(self, text: str) -> type[GoQueueError] | None:
        found = self.read(text)
        return type(found) if isinstance(found, GoQueueError) else None


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What codes were made of."""
    made: list[bytes] = []
    code = receipts._code
    monkeypatch.setattr(
        receipts, "_code", lambda key, vouched: made.append(vouched) or code(key, vouched)
    )
    return made


def named(found: Receipt | GoQueueError) -> tuple[PartitionId, int, int, int]:
    assert isinstance(found, Receipt), found
    return found.partition, found.group, found.delivery, found.offset


def test_a_receipt_names_its_lease_with_and_without_a_key(node: Node) -> None:
    for _ in range(2):
        (text,) = node.write(1 << 40)
        assert named(node.read(text)) == (PARTITION, 4, Index(5), Offset(1 << 40))
        node.rotate()


def test_a_delivery_costs_one_code_however_many_messages_it_has(
    node: Node, codes: list[bytes]
) -> None:
    node.rotate()

    texts = node.write(*range(1000)) + node.write(7, delivery=6)
    assert len(codes) == 2

    read = node.receipts.read(texts)
    assert [named(one)[3] for one in read] == [*range(1000), 7]
    assert len(codes) == 4


@pytest.mark.parametrize("delivery", [4, 6])
def test_another_members_receipt_can_not_be_made_up(node: Node, delivery: int) -> None:
    """Its delivery's number is guessed, its group and offset are known: the code is not."""
    node.rotate()
    (mine,) = node.write(1)
    (other,) = node.write(2, delivery=delivery)
    held = node.read(mine)
    assert isinstance(held, Receipt)

    theirs = vouched_of(place_of(PARTITION.pack(), 4, delivery), [2])
    forged = [
        *encode_receipts(PARTITION.pack(), 4, delivery, [2]),
        *signed(theirs, 1, held.mac, [2]),
        *signed(theirs, 1, bytes(MAC_BYTES), [2]),
        *signed(theirs, 0, bytes(MAC_BYTES), [2]),
        *signed(theirs, 2, bytes(MAC_BYTES), [2]),
        *signed(vouched_of(place_of(PARTITION.pack(), 5, 5), [2]), 1, held.mac, [2]),
    ]
    node.now_ms += VISIBILITY_MS_MAX

    for text in forged:
        error = node.read(text)
        assert isinstance(error, GoQueueError) and error.http_status in (400, 409), text
        assert text != other
    assert node.refuses(forged[1]) is BadReceipt
    assert named(node.read(other))[2:] == (delivery, 2)


def test_members_that_one_entry_answers_can_not_make_up_each_others(node: Node) -> None:
    """Both have the number of the same delivery."""
    node.rotate()
    mine, other = node.write(1, 2, 5), node.write(3, 4)
    held = [node.read(text) for text in mine]
    assert [named(one)[3] for one in held] == [1, 2, 5]

    for one in held:
        assert isinstance(one, Receipt)
        for offset in (3, 4):
            (moved,) = signed(one.vouched, one.key, one.mac, [offset])
            grown = vouched_of(place_of(PARTITION.pack(), 4, 5), range(1, 6))
            assert node.refuses(moved) is BadReceipt
            assert node.refuses(signed(grown, one.key, one.mac, [offset])[0]) is BadReceipt
    assert [named(node.read(text))[3] for text in other] == [3, 4]


def test_receipts_of_former_keys_hold_for_a_month(node: Node) -> None:
    node.rotate()
    (text,) = node.write(1)

    node.rotate(KEYS_MAX - 1)
    assert node.refuses(text) is None
    node.rotate()
    assert node.refuses(text) is ReceiptExpired


def test_receipts_of_before_the_first_key_hold_for_as_long_as_a_lease(node: Node) -> None:
    (text,) = node.write(1)
    node.now_ms += 30 * VISIBILITY_MS_MAX
    assert node.refuses(text) is None

    node.rotate()
    node.now_ms += VISIBILITY_MS_MAX - 1
    assert node.refuses(text) is None
    node.now_ms += 1
    assert node.refuses(text) is ReceiptExpired

    node.rotate(2 * KEYS_MAX)
    assert node.refuses(text) is ReceiptExpired


def test_a_key_that_this_node_has_not_heard_of_is_told_apart(node: Node) -> None:
    ahead = Node()
    ahead.rotate(2)
    (text,) = ahead.write(1)

    assert node.refuses(text) is KeyNotKnown
    node.rotate()
    assert node.refuses(text) is KeyNotKnown
    node.rotate()
    assert node.refuses(text) is None
