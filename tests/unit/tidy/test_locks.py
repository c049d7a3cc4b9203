"""What is installed is what was locked, byte by byte."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
DOCKERFILES = sorted((ROOT / "deploy/docker").glob("*Dockerfile"))
ENTRY = re.compile(r"(?m)^[a-z0-9][\w.-]*==(?:.*\\\n)*.*\n")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_entry_of_a_lock_has_hashes_and_nothing_else_is_in_it(lock: Path) -> None:
    text = lock.read_text()
    without = [entry.split()[0] for entry in ENTRY.findall(text) if "--hash=sha256:" not in entry]

    assert without == [], "write it with `make lock`, which asks for hashes"
    assert ENTRY.sub("", text) == ""


def test_a_file_of_other_bytes_than_the_locked_ones_is_not_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "tampered-1.0-py3-none-any.whl"
    info = "tampered-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("tampered.py", "")
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tampered\nVersion: 1.0\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", "")
    lock, venv = tmp_path / "one.lock", tmp_path / "venv"
    offline = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    command = [sys.executable, str(ROOT / "scripts/bootstrap.py"), str(venv), str(lock)]

    lock.write_text("tampered==1.0\n")
    unhashed = subprocess.run(command, env=offline, capture_output=True, text=True)
    lock.write_text(f"tampered==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    other = subprocess.run(command, env=offline, capture_output=True, text=True)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock.write_text(f"tampered==1.0 \\\n    --hash=sha256:{digest}\n")
    same = subprocess.run(command, env=offline, capture_output=True, text=True)

    assert (unhashed.returncode, other.returncode, same.returncode) == (1, 1, 0), same.stderr
    assert "DO NOT MATCH THE HASHES" in other.stderr


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_installs_locks_by_their_hashes_only(dockerfile: Path) -> None:
    joined = dockerfile.read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install ([^&\n]*--requirement[^&\n]*)", joined)

    assert len(installs) == 2
    assert all("--require-hashes" in one for one in installs)


def test_what_builds_is_taken_from_the_lock_with_its_hashes(tmp_path: Path) -> None:
    script = re.search(r"(sed -n '[^']*') requirements/image.lock", DOCKERFILES[0].read_text())
    assert script is not None
    lock = ROOT / "requirements/image.lock"
    found = subprocess.run(
        f"{script[1]} {lock}", shell=True, capture_output=True, check=True, text=True
    )

    taken = ENTRY.findall(found.stdout)
    assert [one.partition("==")[0] for one in taken] == ["packaging", "setuptools", "wheel"]
    assert taken == [one for one in ENTRY.findall(lock.read_text()) if one in taken]
    assert "".join(taken) == found.stdout
