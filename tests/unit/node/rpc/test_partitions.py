"""What nodes tell each other about an append arrives as it was."""

from __future__ import annotations

import pytest

from goqueue.wire.types import Offset
from node.api.records import AppendResult
from node.rpc.partitions import decode_appended, encode_appended


@pytest.mark.parametrize(
    "result",
    [
        AppendResult(Offset(7), 3, False, 1_700_000_000_000, "majority"),
        AppendResult(Offset(7), 3, False, 5, "relaxed"),
        AppendResult(Offset(7), 3, True, 5, "relaxed"),
        AppendResult(Offset(2**62), 1, True, 5, "majority", ((Offset(2**62), True),)),
        AppendResult(
            Offset(9),
            3,
            False,
            5,
            "relaxed",
            ((Offset(9), False), (Offset(0), True), (Offset(3), True)),
        ),
    ],
)
def test_the_answer_to_an_append_survives_the_way(result: AppendResult) -> None:
    assert decode_appended(encode_appended(result)) == result
