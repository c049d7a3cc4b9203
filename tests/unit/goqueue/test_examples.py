"""The examples run as they are written, against a node in this process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from goqueue import AsyncClient
from tests.one_node import serving
from tests.unit.goqueue.server import FakeCluster, Fault

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
ORDERS = EXAMPLES / "orders.jsonl"


@pytest.fixture
async def node() -> AsyncIterator[str]:
    """A node with a queue, in real time."""
    async with serving() as url:
        yield url


async def run(name: str, *arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name / f"{name}.py"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT / "client"), "PYTHONUTF8": "1"},
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, out.decode(), err.decode()


async def test_a_file_is_published_and_read_back(url: str, cluster: FakeCluster) -> None:
    cluster.create("orders", 3)

    code, out, err = await run("publish_file", "orders", str(ORDERS), "--server", url)
    assert (code, err) == (0, "")
    assert out.startswith("120 messages published: ")

    code, out, _ = await run("read_back", "orders", "--server", url)
    assert code == 0
    values = [line.split("  ")[3] for line in out.splitlines()]
    published = [line.split('"value": ', 1)[1][:-1] for line in ORDERS.read_text().splitlines()]
    assert sorted(values) == sorted(published)


async def test_a_partition_and_a_window_are_read(url: str, cluster: FakeCluster) -> None:
    cluster.create("orders", 1)
    await run("publish_file", "orders", str(ORDERS), "--server", url)

    _, out, _ = await run(
        "read_back", "orders", "--partition", "0", "--offset", "117", "--server", url
    )
    assert [line.split()[0] for line in out.splitlines()] == [
        f"orders:0:{offset}" for offset in (117, 118, 119)
    ]
    _, out, err = await run("read_back", "orders", "--to", "1000", "--server", url)
    assert (out, err) == ("", "0 messages\n")


async def test_the_idempotent_producer_finds_each_message_once(
    url: str, cluster: FakeCluster
) -> None:
    cluster.create("payments", 3)
    cluster.faults.extend([Fault.CUT_AFTER, Fault.CUT_BEFORE, Fault.CUT_AFTER])

    code, out, err = await run(
        "idempotent_producer", "payments", "--count", "3000", "--server", url
    )

    assert (code, err) == (0, "")
    assert "3000 messages accepted, 3000 stored" in out
    assert "read back: 3000 messages, each once, in order in its partition" in out
    assert sum(partition.next for partition in cluster.topics["payments"]) == 3000


async def test_an_error_is_told_in_a_line(url: str) -> None:
    code, out, err = await run("read_back", "missing", "--server", url)

    assert (code, out) == (1, "")
    assert err == "topic not found: missing\n"


async def test_a_worker_ends_every_order(node: str) -> None:
    await run("publish_file", "orders", str(ORDERS), "--server", node)

    code, out, err = await run(
        "worker", "orders", "--retry-after", "50ms", "--idle", "5s", "--server", node
    )

    assert (code, err) == (0, "")
    assert out == "acked: 120\nrequeued: 17\n"
    assert (await run("worker", "orders", "--idle", "0s", "--server", node))[1] == ""


async def test_a_consumer_works_on_what_its_group_gives_it(node: str) -> None:
    await run("publish_file", "orders", str(ORDERS), "--server", node)

    code, out, err = await run("consumer", "orders", "--idle", "5", "--server", node)

    assert code == 0
    assert err.count("the bank does not answer") == 17
    lines = out.splitlines()
    assert lines[0].startswith("assigned: orders:0, ")
    assert lines[-3].startswith("let go of: orders:0, ")
    assert lines[-2:] == ["done: 120", "failed, comes again: 17"]


async def test_keys_stay_in_order_with_more_consumers_than_partitions(node: str) -> None:
    code, out, err = await run("key_order", "entries", "--server", node)

    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first == "240 entries of 24 accounts, each account in order"
    most = int(second.removeprefix("5 consumers on 2 partitions booked up to ").split()[0])
    assert most > 2


async def test_what_comes_later_comes_later_and_what_was_cancelled_never(node: str) -> None:
    code, out, err = await run("later", "reminders", "--delay", "0.3", "--server", node)

    assert (code, err) == (0, "")
    assert "was cancelled\n" in out
    assert sorted(line.split(" s: ")[1] for line in out.splitlines() if " s: " in line) == [
        "it is time",
        "reminder: pay the invoice",
    ]


async def test_dead_letters_are_seen_tried_again_and_given_up(node: str) -> None:
    code, out, err = await run("dead_letters", "payments", "--server", node)

    assert (code, err) == (0, "")
    assert out.count("after 1 attempt: the bank does not answer\n") == 2
    assert "2 of them would go well now\n" in out
    assert out.count("redriven 1 time)") == 2
    assert out.endswith("redrive done: 2 moved\n1 given up for good\n")


async def test_messages_are_found_and_their_stories_told(node: str) -> None:
    async with AsyncClient(node) as client:
        await client.create_topic("orders", partitions=2)
        await client.publish("orders", "a", key="k", message_id="first")
        await client.publish("orders", "b", key="other")
        await client.receive("billing", ["orders"], limit=2)

    code, out, err = await run("find_messages", "orders", "--key", "k", "--server", node)
    _, dead, _ = await run(
        "find_messages", "orders", "--group", "billing", "--state", "dead", "--server", node
    )

    assert (code, err, dead) == (0, "", "")
    first, *events = out.splitlines()
    assert first.split()[1:] == ["in_progress", "billing:", "in_flight"]
    assert [line.split()[1] for line in events] == [
        "PUBLISHED",
        "REPLICATED",
        "DELIVERED",
        "RETAINED",
    ]
    code, _, err = await run("find_messages", "missing", "--server", node)
    assert code == 1
    assert "missing" in err
