"""Versions that a node can run: the released wheels, this tree, and this tree with one level more.

Each is a folder that stands first on PYTHONPATH; dependencies are those of the running interpreter.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from coordinator.commands import codec as commands
from delivery.entries import ops
from log.levels import HIGHEST
from tests.cluster.nursery import SERVE
from tests.cluster.processes import ROOT, Node

WHEELS = Path(__file__).parent / "wheels"
PACKAGES = ("log", "raft", "delivery", "coordinator", "node", "cli")
MADE_UP_TAG = 99
"""Of the operation that only the made-up level knows."""

# What a version with one level more would have changed: a level, an operation that came with it,
# what applying it does, and who writes it once that is allowed.
_PATCHES = {
    "log/levels.py": [
        (f"\nHIGHEST = {HIGHEST}\n", f"\nHIGHEST = {HIGHEST + 1}\n"),
        ("\n    BASE = 1\n", f"\n    BASE = 1\n    MADE_UP = {HIGHEST + 1}\n"),
    ],
    "delivery/entries/ops.py": [
        (
            "\n\nOp = (\n",
            f"\n\nclass MadeUp(_Op, array_like=True, frozen=True, tag={MADE_UP_TAG}):\n"
            "    note: str\n\n\nOp = (\n    MadeUp\n    |",
        ),
        (
            "FEATURES: Mapping[type, Feature] = {",
            "FEATURES: Mapping[type, Feature] = {MadeUp: Feature.MADE_UP,",
        ),
    ],
    "delivery/state/queue.py": [
        ("    Configure: QueueState._configure,\n", "    MadeUp: lambda *_: None,\n"),
        ("    Cancelled,\n", "    Cancelled,\n    MadeUp,\n"),
    ],
    "node/partition/queue.py": [
        (
            "            self._levels.require(feature_of(proposal.ops))\n",
            "            if self._levels.speaks(Feature.MADE_UP):\n"
            "                note = encode_ops([MadeUp('written')])\n"
            "                ended = lambda *_: None\n"
            "                self._group.propose(EntryKind.QUEUE, note, callback=ended)\n",
        ),
        ("from log.levels import Levels\n", "from log.levels import Feature, Levels\n"),
        ("    Delivered,\n", "    Delivered,\n    MadeUp,\n"),
    ],
}


@dataclass(frozen=True)
class Version:
    """`highest` is the highest feature level that it speaks; `kinds` are the tags of the operations
    and commands that came with that level."""

    name: str
    folders: tuple[Path, ...]
    highest: int
    kinds: frozenset[int | str] = frozenset()
    module: str = SERVE
    """What starts a node of it."""

    def start(self, node: Node) -> None:
        """A process of this version over the node's data."""
        folders = os.pathsep.join(map(str, self.folders))
        node.environment = {"PYTHONPATH": folders, "PYTHONSAFEPATH": "1"}
        node.module = self.module
        node.start()


def released(folder: Path) -> Version:
    """The committed wheels, unpacked. Fails where they are not what their sums say."""
    wheels = sorted(WHEELS.glob("*.whl"))
    told = dict(line.split()[::-1] for line in (WHEELS / "SHA256SUMS").read_text().splitlines())
    found = {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
    assert found == told, "the wheels are not those of SHA256SUMS: make wheels"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--no-compile", "--target", str(folder)]
    subprocess.run([*command, *map(str, wheels)], check=True)
    (levels,) = folder.rglob("log/levels.py")
    lines = levels.read_text().splitlines()
    highest = next(line for line in lines if line.startswith("HIGHEST = "))
    below = ".".join([*levels.parent.parent.relative_to(folder).parts, SERVE])
    return Version("released", (folder,), int(highest.removeprefix("HIGHEST = ")), module=below)


def head() -> Version:
    new = [
        kind for kind, level in {**ops.FEATURES, **commands.FEATURES}.items() if level == HIGHEST
    ]
    kinds = frozenset(kind.__struct_config__.tag for kind in new)
    return Version("head", (ROOT, ROOT / "client"), HIGHEST, kinds)


def made_up(folder: Path) -> Version:
    """This tree, with a level that there is not: it writes one more entry once that is finished."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name, patches in _PATCHES.items():
        path = folder / name
        text = path.read_text()
        for old, new in patches:
            assert text.count(old) == 1, f"{name} has other lines by now: {old!r}"
            keeps = old if name == "delivery/state/queue.py" and old not in new else ""
            text = text.replace(old, new + keeps)
        path.write_text(text)
    kinds = frozenset({MADE_UP_TAG})
    return Version("made up", (folder, ROOT / "client"), HIGHEST + 1, kinds)
