"""What is wrong with rows holds no memory: neither the rows nor the body that they came in."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from goqueue.wire.errors import BadRequest, NoQuorum
from node.http.messages.columns import Rows, decode_rows
from node.http.messages.results import PartitionRows, publish_answer


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_errors_of_rows_have_no_frames() -> None:
    rows = decode_rows(b'{"messages":[{},{"value":1},{"value":"x","delay":"soon"},[]]}', False, 9)

    assert len(rows.errors) >= 3
    assert [one for one in rows.errors.values() if one.__traceback__ or one.__context__] == []


def test_rows_are_gone_with_a_refusal_of_their_only_message() -> None:
    class Kept(Rows):
        """One that can be watched."""

        __slots__ = ("__weakref__",)

    rows = Kept([b""], errors={0: BadRequest("no")}, single=True)
    watched = weakref.ref(rows)
    with pytest.raises(BadRequest):
        publish_answer("orders", rows, [])
    del rows

    assert watched() is None


def test_a_group_that_failed_is_gone_with_its_error() -> None:
    part = PartitionRows(partition=0, rows=[0])
    part.outcome = NoQuorum()
    watched = weakref.ref(part.outcome)
    parts = [part]
    del part
    with pytest.raises(NoQuorum):
        publish_answer("orders", Rows([b""], single=True), parts)
    del parts

    assert watched() is None
