"""Wheels made of what the pipeline's image is made of, in an environment that knows no checkout.

Third-party packages are those of the running interpreter: its site-packages stand last on the
environment's path, without the links to the checkout that an editable install put there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "pipeline.Dockerfile"
SCRATCH = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
PACKAGES = ("log", "raft", "delivery", "coordinator", "node", "cli", "pipeline")
EPOCH = "1767225600"
TIMEOUT_S = 300


@dataclass(frozen=True)
class Installed:
    """An environment with both wheels, and a folder with the user's modules, where all is run."""

    environment: Path
    users: Path
    wheels: tuple[Path, Path]

    def program(self, name: str) -> str:
        return str(self.environment / "bin" / name)

    def around(self) -> dict[str, str]:
        """The user's modules come first, whatever is run."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("GOQUEUE_", "PYTHON"))}
        return {**own, "PYTHONPATH": str(self.users), "PYSPARK_PYTHON": self.program("python")}

    def run(self, name: str, *words: str) -> str:
        """What the program says on standard output. Raises AssertionError where it fails."""
        ended = self.tried(name, *words)
        assert ended.returncode == 0, ended.stderr[-3000:] + ended.stdout[-1000:]
        return ended.stdout

    def tried(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program(name), *words],
            cwd=self.users,
            env=self.around(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


def install(folder: Path) -> Installed:
    """Build both wheels, beside what a build of an earlier version left, and install them."""
    tree = copy_sources(folder / "tree")
    stale = tree / "build" / "lib" / "node" / "removed.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    wheels = (build(tree / "client", folder / "wheels"), build(tree, folder / "wheels"))
    environment = folder / "environment"
    python = environment / "bin" / "python"
    do(sys.executable, "-m", "venv", "--without-pip", str(environment))
    pip("--python", str(python), "install", "--no-deps", "--no-index", *map(str, wheels))
    (own,) = environment.glob("lib/python*/site-packages")
    paths = sysconfig.get_paths()
    (own / "others.pth").write_text(f"{paths['purelib']}\n{paths['platlib']}\n")
    users = folder / "users"
    users.mkdir()
    for name in PACKAGES:
        text = f'raise RuntimeError("the {name}.py of the user was imported")\n'
        (users / f"{name}.py").write_text(text)
    return Installed(environment, users, wheels)


def copy_sources(tree: Path) -> Path:
    """What the image's build stage copies, which is all that it builds the wheels of."""
    stage = DOCKERFILE.read_text().partition("\nFROM debian:${DEBIAN}\n")[0]
    for words in re.findall(r"(?m)^COPY (.+)$", stage):
        *sources, target = words.split()
        for source in sources:
            place = tree / target / Path(source).name if target == "./" else tree / target
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=SCRATCH)
            elif not target.startswith("/"):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / source, place)
    return tree


def build(source: Path, folder: Path) -> Path:
    """The wheel of a source tree or an sdist."""
    before = set(folder.glob("*.whl"))
    flags = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder))
    pip("wheel", *flags, str(source))
    (made,) = set(folder.glob("*.whl")) - before
    return made


def pip(*words: str) -> None:
    do(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words)


def do(*command: str, folder: Path | None = None, settings: Sequence[tuple[str, str]] = ()) -> None:
    """Raises AssertionError with what it said."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    around = {**own, "SOURCE_DATE_EPOCH": EPOCH, **dict(settings)}
    ended = subprocess.run(command, cwd=folder, env=around, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr + ended.stdout
