"""Finding messages in a whole node: what is answered matches; nothing is left out in silence."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping

import pytest

from delivery.offsets.bitmaps import span
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import UnknownGroup, UnknownPartition, UnknownTopic
from log.disk.memory import MemoryDisk
from node.api.search import SearchFilter, SearchPage
from node.assembly import NodeAssembly
from node.broker import search as search_broker
from node.lookup.message_search import WINDOW, _Search
from tests.unit.node.partition.retention.test_trimming import CHECKS, KEPT_MS, trimmed
from tests.unit.node.queue.test_whole_node import publish, receive, settle
from tests.unit.node.test_node import config, eventually, running

TRACE = "0af7651916cd43dd8448eb211c80319c"
MANY = 20
"""Messages of 256 KiB: enough for two blocks of hashes."""
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with running(MemoryDisk()) as started:
        await started.broker.topics.create_topic("t", {"partitions": 1})
        yield started


async def search(node: NodeAssembly, **which: object) -> SearchPage:
    wanted = SearchFilter(**which)  # type: ignore[arg-type]
    return await node.broker.lookup.search(["t"], wanted, below=None, limit=100)


async def offsets(node: NodeAssembly, **which: object) -> list[int]:
    """Offsets of all matches; whole, or the test fails."""
    page = await search(node, **which)
    assert page.not_searched == []
    assert page.following == {}
    return [found.message.offset for found in page.found]


async def test_messages_are_found_by_what_they_carry_newest_first(node: NodeAssembly) -> None:
    await publish(
        node,
        Record(b"0", b"k1", (("source", b"web"),), message_id="one"),
        Record(b"1", b"k2", (("traceparent", PARENT), ("source", b"web"))),
        Record(b"2", b"k1"),
    )
    await publish(node, Record(b"3", message_id="two"), "4")

    assert await offsets(node, message_id="one") == [0]
    assert await offsets(node, message_id="two") == [3]
    assert await offsets(node, message_id="none") == []
    assert await offsets(node, trace_id=TRACE) == [1]
    assert await offsets(node, key=b"k1") == [2, 0]
    assert await offsets(node, headers=[("source", b"web")]) == [1, 0]
    assert await offsets(node, headers=[("source", b"web")], key=b"k2") == [1]
    assert await offsets(node, headers=[("source", b"other")]) == []
    assert await offsets(node) == [4, 3, 2, 1, 0]


async def test_partitions_share_the_bytes_of_a_page_and_the_next_pages_have_the_rest(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link takes no answer of any size: one that is too large is as none."""
    monkeypatch.setattr(search_broker, "ANSWER_BYTES", 2500)
    await node.broker.topics.create_topic("wide", {"partitions": 8})
    for number in range(8):
        large = encode_batch([Record(b"x" * 2000, b"k")])
        await node.broker.records.append("wide", number, large, deadline_s=30)
    found: list[list[int]] = []
    below: Mapping[tuple[str, int], int] | None = None
    while below is None or below:
        which = SearchFilter(key=b"k")
        page = await node.broker.lookup.search(["wide"], which, below=below, limit=100)
        found.append([one.message.partition for one in page.found])
        below = page.following

    assert [len(one) for one in found] == [2] * 4
    assert sorted(number for one in found for number in one) == list(range(8))


async def test_a_found_message_is_whole_and_says_its_state_for_each_group(
    node: NodeAssembly,
) -> None:
    record = Record(b"v", b"k", (("traceparent", PARENT),), lane=1, message_id="id")
    await publish(node, record)
    await receive(node, "g")

    (found,) = (await search(node, message_id="id")).found

    message = found.message
    assert (message.value, message.key, message.lane, message.message_id) == (b"v", b"k", 1, "id")
    assert (message.topic, message.partition, message.offset) == ("t", 0, 0)
    assert (found.trace_id, found.status) == (TRACE, "in_progress")
    assert found.states == {"g": "in_flight"}


async def test_states_are_those_of_the_group_that_was_named(node: NodeAssembly) -> None:
    await publish(node, *"abcdef", Record(b"later", deliver_at_ms=60_000))
    acked, dead, failed, leased = await receive(node, "g", limit=4)
    await settle(node, [acked])
    await settle(node, [dead], "reject", reason="broken")
    await settle(node, [failed], "nack", delay_ms=60_000)
    await receive(node, "h", limit=1)

    by_state = {
        state: await offsets(node, group="g", states=[state])
        for state in ("acked", "dead", "retrying", "in_flight", "ready", "delayed", "cancelled")
    }

    assert by_state == {
        "acked": [0],
        "dead": [1],
        "retrying": [2],
        "in_flight": [3],
        "ready": [5, 4],
        "delayed": [6],
        "cancelled": [],
    }
    assert leased.offset == 3
    by_status = {
        status: await offsets(node, group="g", status=status)
        for status in ("completed", "failed", "retrying", "in_progress", "delayed", "expired")
    }
    assert by_status == {
        "completed": [0],
        "failed": [1],
        "retrying": [2],
        "in_progress": [5, 4, 3],
        "delayed": [6],
        "expired": [],
    }
    assert await offsets(node, group="h", states=["in_flight"]) == [0]
    assert await offsets(node, states=["in_flight"]) == [3, 0]
    assert await offsets(node, group="g", states=["dead"], status="failed") == [1]
    assert await offsets(node, group="h", states=["dead"]) == []


async def test_what_a_group_that_begins_at_the_end_never_had_is_in_no_state_for_it(
    node: NodeAssembly,
) -> None:
    await publish(node, "a")
    await node.broker.groups.put_group("g", {"start": "latest"})
    await receive(node, "g")
    await publish(node, "b")

    assert await offsets(node, group="g", states=["ready"]) == [1]
    assert await offsets(node, group="g", states=["acked"]) == []
    assert await offsets(node, status="completed") == []
    assert await offsets(node, status="in_progress") == [1, 0]
    new, old = (await search(node)).found
    assert (new.states, old.states, old.status) == ({"g": "ready"}, {}, "in_progress")


async def test_pages_go_on_below_what_was_told(node: NodeAssembly) -> None:
    await publish(node, *(Record(b"%d" % n, headers=(("h", b"x"),)) for n in range(25)))
    which, seen, below = SearchFilter(headers=[("h", b"x")]), list[int](), None

    for _ in range(3):
        page = await node.broker.lookup.search(["t"], which, below=below, limit=10)
        seen += [found.message.offset for found in page.found]
        below = page.following

    assert seen == list(range(24, -1, -1))
    assert below == {}


async def test_times_cut_before_their_end(node: NodeAssembly) -> None:
    for value in "abc":
        await publish(node, value)
    times = [found.message.time_ms for found in (await search(node)).found][::-1]

    expected = [n for n in (2, 1, 0) if times[1] <= times[n] < times[2]]
    assert await offsets(node, from_ms=times[1], to_ms=times[2]) == expected
    assert await offsets(node, from_ms=times[2] + 1) == []


async def test_a_dead_letter_that_outlived_the_log_is_found_by_its_id() -> None:
    async with running(MemoryDisk(), config(**CHECKS)) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1, "retention_ms": KEPT_MS})
        await publish(node, Record(b"bad", b"k", (("h", b"x"),), message_id="id"), "gone")
        await settle(node, (await receive(node))[:1], "reject", reason="broken")
        await trimmed(node, 2)

        assert await offsets(node, message_id="id") == [0]
        assert await offsets(node, key=b"k") == [0]
        assert await offsets(node, headers=[("h", b"x")]) == [0]
        assert await offsets(node, states=["dead"]) == [0]
        assert await offsets(node) == [0]


async def test_hashes_are_kept_on_disk_and_made_again_where_they_are_damaged_or_lost() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        for n in range(MANY):
            await publish(node, Record(bytes(2**18), message_id=f"id-{n}"))
        await eventually(lambda: hash_files(disk) != [])
        assert await offsets(node, message_id="id-1") == [1]
    first = hash_files(disk)
    assert first
    async with running(disk) as node:
        assert await offsets(node, message_id="id-0") == [0]
        assert hash_files(disk) == first
    damage(disk, first[0])
    async with running(disk) as node:
        for n in range(MANY):
            assert await offsets(node, message_id=f"id-{n}") == [n]
    for path in hash_files(disk):
        disk.unlink(path)
    async with running(disk) as node:
        for n in range(MANY):
            assert await offsets(node, message_id=f"id-{n}") == [n]


def hash_files(disk: MemoryDisk) -> list[str]:
    groups = "/data/groups"
    return [
        f"{groups}/{group}/{name}"
        for group in disk.list_directory(groups)
        for name in disk.list_directory(f"{groups}/{group}")
        if name.endswith(".hashes")
    ]


def damage(disk: MemoryDisk, path: str) -> None:
    """Flip the last byte: of the rows of the last block's last kind."""
    handle, size = disk.open(path, write=True), disk.size(path)
    last = disk.pread(handle, 1, size - 1)
    disk.pwritev(handle, [bytes([last[0] ^ 1])], size - 1)
    disk.close(handle)


async def test_what_is_not_there_is_refused_by_name(node: NodeAssembly) -> None:
    with pytest.raises(UnknownGroup):
        await search(node, group="nobody")
    with pytest.raises(UnknownPartition):
        await search(node, partition=3)
    with pytest.raises(UnknownTopic):
        await node.broker.lookup.search(["no"], SearchFilter(), below=None, limit=1)


async def test_figures_are_of_what_is_stored_and_indexed(node: NodeAssembly) -> None:
    await publish(node, Record(b"0", message_id="one"), Record(b"1", headers=(("h", b"x"),)))
    await search(node, message_id="one")

    async def indexed() -> bool:
        return (await node.broker.lookup.search_stats()).items == 2

    while not await indexed():
        await search(node, message_id="one")
    stats = await node.broker.lookup.search_stats()

    assert (stats.nodes, stats.messages, stats.items, stats.behind_entries) == (1, 2, 2, 0)
    assert stats.ram_bytes + stats.disk_bytes > 0


async def test_with_timelines_off_look_ups_hash_what_they_need_and_name_missing_events() -> None:
    disk = MemoryDisk()
    async with running(disk, config(**{"timelines.enabled": "false"})) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        await publish(node, Record(b"v", message_id="id"))

        assert await offsets(node, message_id="id") == [0]
        page = await node.broker.lookup.search(
            ["t"], SearchFilter(message_id="id"), below=None, limit=1, with_events=True
        )
        assert [found.events for found in page.found] == [None]
        assert "switched off" in page.not_searched[0].reason
        assert not (await node.broker.lookup.search_stats()).timelines


async def test_events_are_asked_of_what_is_shown_only_in_its_order(node: NodeAssembly) -> None:
    await publish(node, *(Record(b"%d" % n, headers=(("h", b"x"),)) for n in range(9)))
    await settle(node, (await receive(node, limit=9))[-2:])

    which = SearchFilter(headers=[("h", b"x")])
    page = await node.broker.lookup.search(None, which, below=None, limit=3, with_events=True)

    assert [found.message.offset for found in page.found] == [8, 7, 6]
    assert page.following == {("t", 0): 6}
    types = [[event.type for event in found.events or ()] for found in page.found]
    assert ["ACKNOWLEDGED" in told for told in types] == [True, True, False]
    assert all(told[0] == "PUBLISHED" for told in types)


async def test_candidates_far_below_the_end_come_in_windows_of_bounded_size() -> None:
    search = object.__new__(_Search)
    search._below = 1_000_000
    wanted = span(5, 300_000) | span(700_000, 700_001)

    windows = [list(part) async for part in search._all(wanted)]

    assert max(map(len, windows)) <= WINDOW
    assert windows[0] == [700_000]
    assert [offset for part in windows[1:] for offset in part] == list(range(299_999, 4, -1))


async def test_a_message_that_only_the_disk_holds_is_found_without_the_loop_reading(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await publish(node, Record(b"%d" % number, b"k"))
    (host,) = node.broker.topics._replicas.led()
    await eventually(lambda: host.log.spilled_index >= host.applied_index)
    host.log.evict(0)
    readers: list[threading.Thread] = []
    pread = MemoryDisk.pread

    def watched(disk: MemoryDisk, *where: int) -> bytes:
        readers.append(threading.current_thread())
        return pread(disk, *where)

    monkeypatch.setattr(MemoryDisk, "pread", watched)

    assert await offsets(node, key=b"k") == [2, 1, 0]

    assert readers
    assert threading.main_thread() not in readers
