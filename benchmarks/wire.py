"""How long a record batch takes to encode and to decode: `python -m benchmarks.wire`.

Each figure is the median of many runs, on one core, of the call that brokers and clients make;
decoding is parse, keys and values. The target is 0.4 ms each for 1000 x 100 B.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from goqueue.wire.batch import RecordBatch, encode_columns

TARGET_MS = 0.4
SHAPES = ((1000, 100), (100, 1024), (1, 100))
CODECS = ("none", "zstd", "lz4", "gzip")
RUN_S = 0.3
WORDS = [
    "order",
    "paid",
    "shipped",
    "customer",
    "street",
    "error",
    "retry",
    "connection",
    "closed",
    "from",
    "port",
    "user",
]


@dataclass(frozen=True, slots=True)
class Row:
    """Times in milliseconds for one shape and codec; `bytes` is the encoded length."""

    count: int
    size_bytes: int
    codec: str
    encode_ms: float
    parse_ms: float
    decode_ms: float
    validate_ms: float
    bytes: int


def values(count: int, size_bytes: int) -> list[bytes]:
    """Text that compresses about as log lines do."""
    chance = random.Random(1)
    text = " ".join(chance.choice(WORDS) + str(chance.randrange(1000)) for _ in range(20_000))
    starts = [chance.randrange(len(text) - size_bytes) for _ in range(count)]
    return [text[start : start + size_bytes].encode() for start in starts]


def median_ms(call: Callable[[], object]) -> float:
    """The median over as many runs as `RUN_S` holds, after a few to warm up."""
    for _ in range(3):
        call()
    times: list[float] = []
    end_s = time.perf_counter() + RUN_S
    while time.perf_counter() < end_s:
        started_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - started_s)
    return statistics.median(times) * 1000


def measure(count: int, size_bytes: int, codec: str) -> Row:
    blobs = values(count, size_bytes)
    keys: list[bytes | None] = [b"key-%d" % number for number in range(count)]

    def encode() -> bytes:
        return encode_columns(blobs, keys, timestamps_ms=1_700_000_000_000, codec=codec)

    encoded = encode()
    batch = RecordBatch.parse(encoded)
    assert batch.values() == blobs
    assert batch.keys() == keys

    def decode() -> None:
        parsed = RecordBatch.parse(encoded)
        parsed.keys()
        parsed.values()

    return Row(
        count,
        size_bytes,
        codec,
        median_ms(encode),
        median_ms(lambda: RecordBatch.parse(encoded)),
        median_ms(decode),
        median_ms(batch.validate),
        len(encoded),
    )


def main() -> None:
    print("| records | codec | encode ms | parse ms | decode ms | validate ms | bytes | 0.4 ms |")
    print("|---|---|---:|---:|---:|---:|---:|---|")
    for count, size_bytes in SHAPES:
        for codec in CODECS:
            row = measure(count, size_bytes, codec)
            judged = (count, size_bytes, codec) == (1000, 100, "none")
            passed = max(row.encode_ms, row.decode_ms) <= TARGET_MS
            verdict = ("pass" if passed else "FAIL") if judged else ""
            print(
                f"| {count} x {size_bytes} B | {codec} | {row.encode_ms:.3f} | {row.parse_ms:.3f} "
                f"| {row.decode_ms:.3f} | {row.validate_ms:.3f} | {row.bytes} | {verdict} |"
            )


if __name__ == "__main__":
    main()
