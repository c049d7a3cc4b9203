"""murmur3 as every GoQueue client computes it."""

from __future__ import annotations

import pytest

from goqueue.wire.partitioner import CACHED_KEY_BYTES_MAX, murmur3_32, partition_for


@pytest.mark.parametrize(
    ("key", "seed", "expected"),
    [
        # known answers of MurmurHash3_x86_32
        (b"", 0, 0x00000000),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"!Ce\x87", 0, 0xF55B516B),
        (b"!Ce\x87", 0x5082EDEE, 0x2362F9DE),
        (b"!Ce", 0, 0x7E4A8634),
        (b"!C", 0, 0xA0F7B07A),
        (b"!", 0, 0x72661CF4),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"\0", 0, 0x514E28B7),
        (b"a", 0, 0x3C2569B2),
        (b"abc", 0, 0xB3DD93FA),
        (b"hello", 0, 0x248BFA47),
        (b"hello, world", 0, 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0, 0x2E4FF723),
    ],
)
def test_known_answers(key: bytes, seed: int, expected: int) -> None:
    assert murmur3_32(key, seed) == expected


def test_a_partition_is_the_unsigned_hash_modulo_the_count() -> None:
    assert partition_for(b"abc", 7) == 0xB3DD93FA % 7
    assert partition_for(b"abc", 1) == 0


def test_short_and_long_keys_agree_with_the_hash() -> None:
    for length in range(CACHED_KEY_BYTES_MAX - 2, CACHED_KEY_BYTES_MAX + 3):
        key = bytes(range(length))
        assert partition_for(key, 1000) == murmur3_32(key) % 1000
