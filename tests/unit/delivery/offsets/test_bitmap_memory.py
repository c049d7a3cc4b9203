"""A set that is looked through, and has nothing to give, keeps no memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import pytest

from delivery.offsets.bitmaps import BitMap64, span

TIMES = 4_000
KEPT_BYTES_MAX = 100 * 1024
"""Far less than so many iterators of 224 bytes; what the test itself holds is a fraction of it."""


class _Figures(ctypes.Structure):
    """`struct mallinfo2` of glibc, see mallinfo(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def used_bytes() -> int:
    """What malloc has given out: Python's own small objects aside."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("only glibc 2.33 and later tells what malloc has given out")
    libc.mallinfo2.restype = _Figures
    return int(libc.mallinfo2().uordblks)


def beyond(offsets: BitMap64) -> Iterator[int]:
    return offsets.iter_equal_or_larger(100)


@pytest.mark.parametrize("look", [iter, beyond, sorted])
@pytest.mark.parametrize("end", [0, 10])
def test_looking_through_a_set_keeps_nothing(look: Callable[[BitMap64], object], end: int) -> None:
    offsets = span(0, end)
    for _ in range(50):
        tuple(look(offsets))  # type: ignore[arg-type]
    before = used_bytes()

    for _ in range(TIMES):
        tuple(look(offsets))  # type: ignore[arg-type]

    assert used_bytes() - before < KEPT_BYTES_MAX


def test_what_is_made_of_sets_is_such_a_set() -> None:
    one, other = span(0, 5), BitMap64([3, 9])

    made = (one & other, one | other, one - other, one ^ other, one.copy(), one[1:3])
    read = BitMap64.deserialize(one.serialize())
    one |= other

    assert {type(found) for found in (*made, read, one)} == {BitMap64}
    assert list(one) == [0, 1, 2, 3, 4, 9]
    assert list(one.iter_equal_or_larger(4)) == [4, 9]
