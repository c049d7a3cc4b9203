"""Fuzzes formats, raw HTTP, frames of streams and of HTTP/2, the OpenAPI document and calls of gRPC
of a real node, for as long as is asked; and with what is small on the wire and large in memory.

python -m tests.fuzz --minutes 5 --seed 1 [--only formats,raw,frames,duplex,expanding,openapi,calls]

Prints what was tried and what was found; the exit code is 1 where something was. The same seed
makes the same inputs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.processes import HOST, Node
from tests.fuzz import calls, duplex, expanding, formats, frames, raw
from tests.fuzz.served import (
    GROWTH_BYTES_MAX,
    fuzz_openapi,
    memory_bytes,
    port_of,
    served_node,
)
from tests.ports import free_ports

PARTS = ("formats", "raw", "frames", "duplex", "expanding", "openapi", "calls")
ROUND_INPUTS, ROUND_REQUESTS, ROUND_FRAMES, ROUND_EXPANDING = 2_000, 2_000, 500, 40
ROUND_CONNECTIONS = ROUND_CALLS = 500
EXAMPLES_A_MINUTE = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(PARTS), help=", ".join(PARTS))
    given = parser.parse_args()
    parts = given.only.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    seconds = given.minutes * 60 / len(parts)
    defects = fuzz_formats(seconds, given.seed) if "formats" in parts else 0
    if "expanding" in parts:
        with tempfile.TemporaryDirectory() as folder, served_node(Path(folder)) as node:
            before = memory_bytes(node)
            defects += fuzz_expanding(node, seconds, given.seed)
            defects += judge_memory(node, before, expanding.KEPT_BYTES_MAX)
    if {"raw", "frames", "duplex", "openapi"} & set(parts):
        with tempfile.TemporaryDirectory() as folder, served_node(Path(folder)) as node:
            before = memory_bytes(node)
            if "raw" in parts:
                defects += fuzz_raw(node, seconds, given.seed)
            if "frames" in parts:
                defects += fuzz_frames(node, seconds, given.seed)
            if "duplex" in parts:
                defects += fuzz_duplex(node, seconds, given.seed)
            if "openapi" in parts:
                examples = max(1, round(seconds / 60 * EXAMPLES_A_MINUTE))
                defects += fuzz_served(node, given.seed, examples)
            defects += judge_memory(node, before)
    if "calls" in parts:
        with tempfile.TemporaryDirectory() as folder:
            defects += fuzz_calls(Path(folder), seconds, given.seed)
    print(f"defects {defects}")
    return 1 if defects else 0


def fuzz_formats(seconds: float, seed: int) -> int:
    end, rng, defects = time.monotonic() + seconds, random.Random(seed), 0
    known = formats.formats()
    tried = dict.fromkeys((one.name for one in known), 0)
    while time.monotonic() < end:
        for one in known:
            try:
                formats.fuzz(one, rng, ROUND_INPUTS)
            except AssertionError as error:
                defects += 1
                print(error)
            tried[one.name] += ROUND_INPUTS
    print(f"formats {len(known)}  inputs {sum(tried.values()):,}  defects {defects}")
    return defects


def fuzz_raw(node: Node, seconds: float, seed: int) -> int:
    kept, rng = raw.samples("fuzzed", "workers"), random.Random(seed)

    def round_of() -> raw.Tally:
        return asyncio.run(raw.fuzz(HOST, node.http_port, kept, rng, ROUND_REQUESTS))

    return fuzz_rounds(node, "raw", seconds, round_of)


def fuzz_frames(node: Node, seconds: float, seed: int) -> int:
    names, rng = frames.Names("fuzzed", "workers"), random.Random(seed)

    def round_of() -> raw.Tally:
        return asyncio.run(frames.fuzz(HOST, node.http_port, names, rng, ROUND_FRAMES))

    return fuzz_rounds(node, "frames", seconds, round_of)


def fuzz_calls(folder: Path, seconds: float, seed: int) -> int:
    (port,) = free_ports(1)
    rng = random.Random(seed)

    def round_of() -> raw.Tally:
        return asyncio.run(calls.fuzz(f"{HOST}:{port}", "fuzzed", "workers", rng, ROUND_CALLS))

    wanted = ("listeners.grpc.enabled=true", f"listeners.grpc.port={port}")
    with served_node(folder, *wanted) as node:
        before = memory_bytes(node)
        defects = fuzz_rounds(node, "calls", seconds, round_of)
        return defects + judge_memory(node, before)


def fuzz_duplex(node: Node, seconds: float, seed: int) -> int:
    port, rng = port_of(node, "h2"), random.Random(seed)

    def round_of() -> raw.Tally:
        return asyncio.run(duplex.fuzz(HOST, port, "fuzzed", rng, ROUND_CONNECTIONS))

    return fuzz_rounds(node, "duplex", seconds, round_of)


def fuzz_expanding(node: Node, seconds: float, seed: int) -> int:
    rng = random.Random(seed)

    def round_of() -> raw.Tally:
        return asyncio.run(expanding.fuzz(node, "fuzzed", "workers", rng, ROUND_EXPANDING))

    return fuzz_rounds(node, "expanding", seconds, round_of)


def fuzz_rounds(node: Node, name: str, seconds: float, round_of: Callable[[], raw.Tally]) -> int:
    end, total = time.monotonic() + seconds, raw.Tally()
    while time.monotonic() < end:
        tally = round_of()
        total.sent += tally.sent
        total.statuses.update(tally.statuses)
        total.defects += tally.defects
    if not node.is_ready():
        total.defects.append("the node is not ready any more")
    print(*total.defects[:20], sep="\n", end="\n" if total.defects else "")
    print(f"{name} requests {total.sent:,}  answers {dict(sorted(total.statuses.items()))}")
    return len(total.defects)


def fuzz_served(node: Node, seed: int, examples: int) -> int:
    ran = fuzz_openapi(node, seed, examples, "examples,coverage,fuzzing")
    if ran.code:
        print(ran.output)
    print(f"openapi cases {ran.cases:,}  exit code {ran.code}")
    return int(bool(ran.code) or not node.is_ready())


def judge_memory(node: Node, before: int, most: int = GROWTH_BYTES_MAX) -> int:
    grown = memory_bytes(node) - before
    print(f"memory of the node {before >> 20} MiB, grown by {grown >> 20} MiB")
    return int(grown > most)


if __name__ == "__main__":
    sys.exit(main())
