"""The examples run as they are written, against a server in memory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.unit.goqueue.server import FakeCluster, Fault

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
ORDERS = EXAMPLES / "orders.jsonl"


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
