"""Names, ids and the types that carry them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.wire.errors import BadName, BadRequest
from goqueue.wire.ids import MessageId, is_name, validate_topic_name
from goqueue.wire.types import CLUSTER_GROUP, PARTITION_ID_BYTES, Offset, PartitionId, TopicId

uint64s = st.integers(0, 2**64 - 1)
topic_ids = st.builds(TopicId, uint64s, uint64s)
group_ids = st.builds(PartitionId, topic_ids, st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("name", ["a", "orders", "0", "A.b_c-d", "x" * 249])
def test_a_good_name_is_returned(name: str) -> None:
    assert validate_topic_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../../evil",
        "-a",
        "_a",
        "a/b",
        "a b",
        "a:b",
        "ä",
        "a\n",
        "x" * 250,
        "a\0",
        "٣",
    ],
)
def test_a_bad_name_is_refused(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(BadName):
        validate_topic_name(name)


def test_the_dead_letter_suffix_is_reserved_but_may_be_read() -> None:
    with pytest.raises(BadName, match="reserved"):
        validate_topic_name("orders.dlq")

    assert validate_topic_name("orders.dlq", allow_dead_letter=True) == "orders.dlq"


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), st.integers(0, 2**63 - 1))
def test_a_message_id_parses_back(topic: str, offset: int) -> None:
    message_id = MessageId(topic, 3, Offset(offset))

    assert MessageId.parse(str(message_id)) == message_id


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:1", "a:1:2:3", "a::2", "a:1:", "a:-1:2", "a:01:2", "a: 1:2", "a:1:2 ", "a:+1:2",
     "a:1_0:2", "../x:1:2", f"a:{2**31}:0", f"a:0:{2**63}", "a:٣:1", "a:1:2\n"],
)  # fmt: skip
def test_anything_else_is_no_message_id(text: str) -> None:
    with pytest.raises(BadRequest):
        MessageId.parse(text)


@given(group_ids)
def test_a_group_id_survives_packing_and_printing(partition_id: PartitionId) -> None:
    assert len(partition_id.pack()) == PARTITION_ID_BYTES
    assert PartitionId.unpack(b"xx" + partition_id.pack(), 2) == partition_id
    assert PartitionId.parse(str(partition_id)) == partition_id


def test_the_cluster_group_has_a_fixed_name() -> None:
    assert str(CLUSTER_GROUP) == "0000000000000000-0-0"


@pytest.mark.parametrize("text", ["", "lost+found", "1-2-3", "0000000000000000-0-x", "0-0-0"])
def test_other_directory_names_are_no_group_ids(text: str) -> None:
    with pytest.raises(ValueError):
        PartitionId.parse(text)
