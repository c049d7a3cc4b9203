"""Creates the virtual environment and installs one lock file into it, or says what is missing.

With `--and-this` the packages of this checkout are installed too, editable.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MINIMUM = (3, 11)


def main(venv: Path, lock: Path, *, with_this: bool) -> int:
    if sys.version_info < MINIMUM:
        found = ".".join(map(str, sys.version_info[:3]))
        return fail(
            f"Python 3.11 or newer is needed, this is {found}.",
            "make PYTHON=python3.11 …  (Debian: apt install python3; macOS: brew install python)",
        )
    python = venv / "bin" / "python"
    if not python.exists() and create(venv) != 0:
        return fail(
            "The virtual environment could not be made: the venv module is missing or incomplete.",
            "Debian, Ubuntu: apt install python3-venv",
        )
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    print(f"installing {lock} into {venv}", flush=True)
    runs = [["-r", str(lock)]]
    if with_this:
        runs.append(["--no-deps", "--no-build-isolation", "-e", "client", "-e", "."])
    for arguments in runs:
        if subprocess.call([*install, *arguments], env={**os.environ, "PIP_NO_INPUT": "1"}) != 0:
            return fail(
                f"pip could not install {' '.join(arguments)}; its own message stands above.",
                "offline: put the wheels into a folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR",
            )
    return 0


def create(venv: Path) -> int:
    return subprocess.call([sys.executable, "-m", "venv", str(venv)])


def fail(problem: str, remedy: str) -> int:
    print(f"{problem}\n  {remedy}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), with_this="--and-this" in sys.argv[3:]))
