"""All planted bugs by name, and whether the tests find them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.plants.log_plants import LOG_PLANTS
from tests.plants.node_plants import NODE_PLANTS
from tests.plants.plant import Plant
from tests.plants.raft_plants import RAFT_PLANTS
from tests.plants.stream_plants import STREAM_PLANTS
from tests.plants.turn_plants import TURN_PLANTS

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "GOQUEUE_PLANT"
LIMIT_S = 120.0
"""A test that hangs with the bug has found it, too."""

PLANTS = {
    plant.name: plant
    for plant in (*LOG_PLANTS, *NODE_PLANTS, *RAFT_PLANTS, *STREAM_PLANTS, *TURN_PLANTS)
}

FAILED = 1
"""How pytest exits where tests have failed; it has others for tests that it can't find or run."""


def is_found(plant: Plant) -> bool:
    """Whether the plant's test fails, in a process of its own that has the bug. Raises RuntimeError
    where pytest could not run it."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.plants.plugin"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", plant.test]
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, VARIABLE: plant.name, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    if ended.returncode not in (0, FAILED):
        raise RuntimeError(
            f"{plant.test} did not run: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        )
    return ended.returncode == FAILED
