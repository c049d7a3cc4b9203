"""Columns of numbers as files hold them: little-endian, whatever the machine is."""

from __future__ import annotations

import sys
from array import array


def le_bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def numbers(typecode: str, column: bytes) -> array[int]:
    """What `little` made of such numbers. Raises ValueError for part of one."""
    found: array[int] = array(typecode)
    found.frombytes(column)
    if sys.byteorder == "big":
        found.byteswap()
    return found
