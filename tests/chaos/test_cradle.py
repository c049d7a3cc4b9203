"""Processes of nodes that are forked from one that has imported the service."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import ClusterError, environment
from tests.chaos.shim import Shim, ShimUnavailable
from tests.chaos.storm.cradle import Cradle, Forked
from tests.ports import neighbouring_ports

ENDS_S = 30.0


@pytest.fixture
def cradle(tmp_path: Path) -> Iterator[Cradle]:
    made = Cradle([], environment(), tmp_path / "log")
    made.open()
    made.until_ready()
    yield made
    made.close()


def arguments(folder: Path, port: int) -> list[str]:
    secret = folder / "secret"
    secret.write_text("the secret of a test, which nobody guesses\n")
    told = {
        "--node-id": "n",
        "--data": str(folder / "data"),
        "--http": f"127.0.0.1:{port}",
        "--peer-listen": f"127.0.0.1:{port + 1}",
        "--peer": f"n=127.0.0.1:{port + 1}",
        "--secret-file": str(secret),
    }
    return [word for pair in told.items() for word in pair]


def until_it_serves(process: Forked, port: int) -> None:
    deadline = time.monotonic() + ENDS_S
    while True:
        assert process.poll() is None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as found:
                assert found.status == 200
                return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_nodes_are_born_one_after_the_other_with_processes_and_exit_codes_of_their_own(
    cradle: Cradle, tmp_path: Path
) -> None:
    port = neighbouring_ports(2)
    killed = cradle.bear(arguments(tmp_path, port))
    until_it_serves(killed, port)

    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(ENDS_S) == -signal.SIGKILL == killed.poll() == killed.returncode

    stopped = cradle.bear(arguments(tmp_path, port))
    until_it_serves(stopped, port)
    assert stopped.pid != killed.pid
    with pytest.raises(subprocess.TimeoutExpired):
        stopped.wait(0.01)
    os.kill(stopped.pid, signal.SIGTERM)
    assert stopped.wait(ENDS_S) == 0
    assert "node_started" in (tmp_path / "log").read_text()

    assert cradle.bear(["--no-such-option"]).wait(ENDS_S) == 2


def test_a_node_does_not_outlive_its_cradle(cradle: Cradle, tmp_path: Path) -> None:
    port = neighbouring_ports(2)
    process = cradle.bear(arguments(tmp_path, port))
    until_it_serves(process, port)

    cradle.close()

    deadline = time.monotonic() + ENDS_S
    while Path(f"/proc/{process.pid}/cmdline").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_cradle_that_dies_is_told(cradle: Cradle) -> None:
    process = cradle.bear(["--help"])
    assert process.wait(ENDS_S) == 0

    cradle.close()

    with pytest.raises((ClusterError, ValueError, OSError)):
        cradle.bear(["--help"])


def test_the_shim_strikes_what_a_cradle_bears(tmp_path: Path) -> None:
    shim = Shim(tmp_path / "faults")
    try:
        told = shim.environment()
    except ShimUnavailable as error:
        pytest.skip(str(error))
    cradle = Cradle([], environment() | told, tmp_path / "log")
    cradle.open()
    cradle.until_ready()
    port = neighbouring_ports(2)
    process = cradle.bear(arguments(tmp_path, port))
    until_it_serves(process, port)

    shim.set_wall(3600.0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
        pass

    assert shim.wall_reads
    cradle.close()
    shim.close()
