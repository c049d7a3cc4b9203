"""Bytes that were sound once: flipped, cut, stretched, repeated, swapped, and with huge numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 2**63 - 1, 2**63, 2**64 - 1)
WIDTHS = (1, 2, 4, 8)
JUNK_BYTES_MAX = 64


def mutate(sample: bytes, rng: random.Random) -> bytes:
    """The sample with one to four changes, each of a random kind."""
    data = bytearray(sample)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(CHANGES)(data, rng)
    return bytes(data)


def crossed(one: bytes, other: bytes, rng: random.Random) -> bytes:
    """The beginning of one sample and the end of another."""
    return one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other) + 1) :]


def any_of(samples: Sequence[bytes], rng: random.Random) -> bytes:
    """A mutation of any of them; now and then two crossed, or nothing but junk."""
    chance = rng.random()
    if chance < 0.02:
        return rng.randbytes(rng.randrange(JUNK_BYTES_MAX))
    sample = rng.choice(samples)
    if chance < 0.1:
        sample = crossed(sample, rng.choice(samples), rng)
    return mutate(sample, rng)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _number(data: bytearray, rng: random.Random) -> None:
    """A number that somebody may take for a length or a count."""
    width = rng.choice(WIDTHS)
    if len(data) >= width:
        at = rng.randrange(len(data) - width + 1)
        value = rng.choice(EXTREMES) % (1 << 8 * width)
        data[at : at + width] = value.to_bytes(width, rng.choice(("little", "big")))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    first, last = _span(data, rng)
    del data[first:last]


def _repeat(data: bytearray, rng: random.Random) -> None:
    first, last = _span(data, rng)
    data[last:last] = data[first:last]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.randrange(1, JUNK_BYTES_MAX))


def _zero(data: bytearray, rng: random.Random) -> None:
    first, last = _span(data, rng)
    data[first:last] = bytes(last - first)


def _junk(data: bytearray, rng: random.Random) -> None:
    first, last = _span(data, rng)
    data[first:last] = rng.randbytes(last - first)


def _span(data: bytearray, rng: random.Random) -> tuple[int, int]:
    first = rng.randrange(len(data) + 1)
    return first, min(len(data), first + rng.randrange(1, JUNK_BYTES_MAX))


CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _flip,
    _number,
    _number,
    _cut,
    _remove,
    _repeat,
    _insert,
    _zero,
    _junk,
)
