"""Ports of tests: no two tests have the same one."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests import ports
from tests.ports import HOST, free_ports, neighbouring_ports

ROOT = Path(__file__).resolve().parents[2]
TAKES = "import sys; from tests import ports; print(ports._take([int(sys.argv[1])]))"


def _another_takes(port: int) -> bool:
    command = [sys.executable, "-c", TAKES, str(port)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ended.stdout.strip() == "True"


def test_a_port_that_was_given_is_given_to_nobody_else() -> None:
    (port,) = free_ports(1)
    assert not ports._take([port])
    assert not _another_takes(port)


def test_a_port_whose_neighbour_is_taken_is_let_go() -> None:
    with socket.create_server((HOST, neighbouring_ports(2))) as busy:
        port = busy.getsockname()[1]
        ports._given -= {port, port + 1}
        assert not ports._take([port + 1, port])
        assert _another_takes(port + 1)
