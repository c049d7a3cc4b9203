"""What goes on for ever ends in order by SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cli.run.sigterm import ending_in_order
from tests.unit.cli.conftest import Shell


@pytest.fixture(autouse=True)
def _own_handler() -> Iterator[None]:
    """What a test leaves behind for a second signal is not the next test's."""
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


async def test_the_first_signal_is_no_failure_though_it_comes_twice_at_once() -> None:
    steps = []

    async def work() -> None:
        with ending_in_order():
            try:
                for _ in range(2):  # as `timeout` sends it: to the process, and to its group
                    os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.Event().wait()
            finally:
                steps.append("finished")
        steps.append("over")

    await asyncio.create_task(work())

    assert steps == ["finished", "over"]


async def test_a_cancellation_of_another_kind_stays_one() -> None:
    async def work() -> None:
        with ending_in_order():
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def test_following_a_topic_ends_with_0(shell: Shell) -> None:
    shell.ok("topic", "create", "t", "--partitions", "1")
    shell.ok("produce", "t", "-m", "x")
    words = ["-s", shell.url, "consume", "t", "--follow"]
    with subprocess.Popen([sys.executable, "-m", "cli", *words], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert b'"x"' in reader.stdout.readline()

        reader.send_signal(signal.SIGTERM)

        assert reader.wait(timeout=60) == 0
