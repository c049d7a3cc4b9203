"""Which partition a key belongs to: murmur3_32(key) modulo the number of partitions, seed 0.

The same function as every other GoQueue client and server uses, so that a key stays in its
partition whoever publishes it (Austin Appleby, MurmurHash3_x86_32).
"""

from __future__ import annotations

import struct
from functools import lru_cache

KEYS_CACHED = 16_384
CACHED_KEY_BYTES_MAX = 64

_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_MASK = 0xFFFFFFFF


def murmur3_32(data: bytes, seed: int = 0) -> int:
    """The unsigned 32-bit hash."""
    length = len(data)
    words = length >> 2
    h = seed
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _C1 & _MASK
        k = ((k << 15) | (k >> 17)) * _C2 & _MASK
        h ^= k
        h = (((h << 13) | (h >> 19)) * 5 + 0xE6546B64) & _MASK
    tail = data[words << 2 :]
    if tail:
        k = int.from_bytes(tail, "little") * _C1 & _MASK
        h ^= ((k << 15) | (k >> 17)) * _C2 & _MASK
    h ^= length
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _MASK
    return h ^ (h >> 16)


_cached = lru_cache(maxsize=KEYS_CACHED)(murmur3_32)


def partition_for(key: bytes, partitions: int) -> int:
    """The key's partition, from 0. Hashes of short keys are remembered (a bounded cache)."""
    if len(key) > CACHED_KEY_BYTES_MAX:
        return murmur3_32(key) % partitions
    return _cached(key) % partitions
