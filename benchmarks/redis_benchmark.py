"""Redis' own load generator, against whoever speaks its protocol."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

from benchmarks.redis import FIELD

CLIENTS, PIPELINED = 50, 16
DEADLINE_S = 60.0


def installed() -> bool:
    return shutil.which("redis-benchmark") is not None


async def add(address: tuple[str, int], stream: str, value: bytes, count: int) -> float:
    """XADD the same value `count` times, a multiple of what is pipelined; messages a second. Raises
    RuntimeError where it fails, or was told an error."""
    host, port = address
    command = ["redis-benchmark", "-h", host, "-p", str(port), "--csv"]
    command += ["-c", str(CLIENTS), "-P", str(PIPELINED), "-n", str(count)]
    command += ["XADD", stream, "*", FIELD.decode(), value.decode()]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = said.decode(errors="replace")
    if process.returncode or "Error from server" in text:
        raise RuntimeError(f"redis-benchmark, exit {process.returncode}: {text[-500:]}")
    return rate_of(text)


def rate_of(text: str) -> float:
    """Of what it prints with --csv. Raises RuntimeError where that is something else."""
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith('"test","rps"')]
    if len(heads) != 1 or len(lines) <= heads[0] + 1:
        raise RuntimeError(f"redis-benchmark said {text[-500:]!r}")
    columns = lines[heads[0]].count(",")
    _title, rate, *_latencies = lines[heads[0] + 1].rsplit(",", columns)  # a title may have commas
    return float(rate.strip('"'))
