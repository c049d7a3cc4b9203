"""What was refused leaves nothing behind: no batch, and no gap where it would have been."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from crc32c import crc32c

from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import BatchError, NotLeader
from goqueue.wire.layout import HEADER
from node.partition.append_queue import OFF_LOOP_BYTES
from tests.unit.node.partition.test_append_queue import Scene, batch, turn


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Scene]]:
    workers = ThreadPoolExecutor(1)
    yield lambda pending=1 << 22, entry=1 << 20: Scene(workers, pending, entry)
    workers.shutdown()


async def test_offsets_of_a_refused_proposal_are_given_to_the_next_batch(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    scene.group.leads = False
    refused = scene.append(batch("a", "b"))
    await turn()
    with pytest.raises(NotLeader):
        await refused

    scene.group.leads = True
    taken = scene.append(batch("c"))
    await turn()
    scene.group.finish(0)

    assert (await taken).base_offset == 0  # type: ignore[attr-defined]


def impossible(batch: bytes) -> bytes:
    """Its first row lies outside of it, and its checksum agrees with that."""
    changed = bytearray(batch)
    changed[HEADER.size : HEADER.size + 13] = b"\xff" * 13
    struct.pack_into("<I", changed, 4, crc32c(bytes(changed[8:])))
    return bytes(changed)


async def test_a_large_damaged_batch_is_refused_once_it_is_checked(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    large = encode_batch([Record(b"L" * OFF_LOOP_BYTES, None)])

    refused = scene.append(impossible(large))
    good = scene.append(batch("b"))
    with pytest.raises(BatchError):
        async with asyncio.timeout(30):
            await refused
    await turn()
    scene.group.finish(0)

    assert scene.values(0) == [b"b"]
    assert (await good).base_offset == 0  # type: ignore[attr-defined]
