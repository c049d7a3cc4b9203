"""Creates the virtual environment and installs one lock file into it, or says what is missing.

A file whose hash is not in the lock file is refused. What has no wheel is built by the locked
setuptools, which are installed first: pip would fetch others, whose hashes nobody knows.
With `--and-this` the packages of this checkout are installed too, editable.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL

MINIMUM = (3, 11)
# what all lock files together take
ROOM = 2_000_000_000
# in the environment: the lock's entries of what builds distributions that have no wheel
BUILDERS = "builders.txt"
BUILDER = re.compile(r"^(?:setuptools|wheel|packaging)==(?:.*\\\n)*.*\n", re.MULTILINE)


def main(venv: Path, lock: Path, *, with_this: bool) -> int:
    if sys.version_info < MINIMUM:
        found = ".".join(map(str, sys.version_info[:3]))
        return fail(
            f"Python 3.11 or newer is needed, this is {found}.",
            "make PYTHON=python3.11 …  (Debian: apt install python3; macOS: brew install python)",
        )
    python = venv / "bin" / "python"
    if not has_pip(python) and create(venv) != 0:
        return fail(
            "The virtual environment could not be made: the venv module is missing or incomplete.",
            "Debian, Ubuntu: apt install python3-venv",
        )
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    print(f"installing {lock} into {venv}", flush=True)
    locked = ["--require-hashes", "--no-build-isolation", "-r"]
    runs = [[*locked, str(lock)]]
    if needed := builders(lock):
        (venv / BUILDERS).write_text(needed)
        runs.insert(0, [*locked, str(venv / BUILDERS)])
    if with_this:
        runs.append(["--no-deps", "--no-build-isolation", "-e", "client", "-e", "."])
    for arguments in runs:
        if subprocess.call([*install, *arguments], env={**os.environ, "PIP_NO_INPUT": "1"}) != 0:
            return fail(
                f"pip could not install {' '.join(arguments)}; its own message stands above.",
                "offline: put the wheels into a folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR",
            )
    return 0


def has_pip(python: Path) -> bool:
    """Whether the environment is whole: a run that failed leaves one with only its python."""
    return python.exists() and not subprocess.call(
        [str(python), "-c", "import pip"], stderr=DEVNULL
    )


def builders(lock: Path) -> str:
    """The entries of setuptools, wheel and what it needs, with hashes; empty where it has none."""
    return "".join(BUILDER.findall(lock.read_text()))


def create(venv: Path) -> int:
    return subprocess.call([sys.executable, "-m", "venv", "--clear", str(venv)])


def fail(problem: str, remedy: str) -> int:
    """Says what went wrong; pip and venv do not say it themselves when the disk is full."""
    print(f"{problem}\n  {remedy}", file=sys.stderr)
    free = shutil.disk_usage(Path.cwd()).free
    if free < ROOM:
        print(
            f"Only {free / 1e6:,.0f} MB are free on this disk, which may be why.", file=sys.stderr
        )
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), with_this="--and-this" in sys.argv[3:]))
