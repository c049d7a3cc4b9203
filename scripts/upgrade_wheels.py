"""Builds the wheels that upgrades are tested from, of the commit that is checked out.

    python scripts/upgrade_wheels.py        writes tests/upgrade/wheels/*.whl and SHA256SUMS

The wheels of a release are what `tests/upgrade` rolls back to, so they are made once, at the end
of the release, and committed. They depend on the commit alone: the same commit gives the same
bytes. What was in the folder before is removed.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "tests" / "upgrade" / "wheels"
SUMS = "SHA256SUMS"
EPOCH = "1767225600"
"""2026-01-01: the time that every file in them has."""
DISTRIBUTIONS = ("client", ".")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        tree, built = Path(folder, "tree"), Path(folder, "built")
        unpack(tree)
        for distribution in DISTRIBUTIONS:
            build(tree / distribution, built)
        replace(sorted(built.glob("*.whl")))
    return 0


def unpack(tree: Path) -> None:
    """The commit's files, with the same modes whatever this user's are by default."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", "HEAD"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(tree, filter="data")
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def build(source: Path, built: Path) -> None:
    """With the setuptools that is installed here: nothing is downloaded."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(built)]
    around = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "PYTHONHASHSEED": "0"}
    subprocess.run([*command, str(source)], env=around, check=True)


def replace(wheels: list[Path]) -> None:
    WHEELS.mkdir(parents=True, exist_ok=True)
    for old in WHEELS.iterdir():
        old.unlink()
    lines = []
    for wheel in wheels:
        content = wheel.read_bytes()
        (WHEELS / wheel.name).write_bytes(content)
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {wheel.name}\n")
        print(f"{wheel.name}: {len(content):,} bytes")
    (WHEELS / SUMS).write_text("".join(lines))


if __name__ == "__main__":
    sys.exit(main())
