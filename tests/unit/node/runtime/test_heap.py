"""What a process keeps of large buffers that it has freed."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from node.runtime.heap import give_back

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20

if sys.argv[1] == "give back":
    assert give_back()
large = b"x" * (16 << 20)
del large
before, buffers, stays = resident(), [], []
for _ in range(40):
    buffers.append(b"x" * (4 << 20))
    stays.append(b"x" * (64 << 10))
del buffers
print(resident() - before)
"""


def kept_mib(what: str) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, check=True
    )
    return int(ran.stdout)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc: no mallopt"
)
def test_large_buffers_are_given_back_though_small_ones_stay_between_them() -> None:
    assert kept_mib("leave it") > 100
    assert kept_mib("give back") < 20
