"""`make programs`: what it asks apt-get for, and what it says is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/programs.py"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs. Its apt-get has packages named `had-…`, each with a program of that
    name, and refuses a line that names another, as Debian's does."""
    apt = tmp_path / "apt-get"
    apt.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        f'case "$*" in *install*) ;; *) exit 0;; esac\n'
        f"for word; do case $word in lost-*) exit 100;; esac; done\n"
        f'for word; do case $word in had-*) echo "#!/bin/sh" > {tmp_path}/$word;'
        f" /bin/chmod +x {tmp_path}/$word;; esac; done\n"
    )
    apt.chmod(0o755)
    return tmp_path


def run(machine: Path, *words: str) -> list[str]:
    """The lines that it prints."""
    told = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        env=os.environ | {"PATH": str(machine)},
        capture_output=True,
        check=True,
        text=True,
    )
    return told.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is allowed to install")
def test_one_package_that_is_not_to_be_had_keeps_no_other_away(machine: Path) -> None:
    told = run(machine, "had-nft=had-nft", "lost-tool=lost-one+had-docs", "had-ip=had-ip")

    assert told == [
        "installing had-docs had-ip had-nft lost-one with apt-get",
        "no lost-tool (apt-get install lost-one had-docs, as root): tests that need it are skipped",
    ]
    assert (machine / "had-nft").exists() and (machine / "had-ip").exists()


def test_nothing_is_asked_for_that_is_there(machine: Path) -> None:
    (machine / "tool").write_text("#!/bin/sh\n")
    (machine / "tool").chmod(0o755)

    assert run(machine, "tool=lost-one") == []
    assert not (machine / "calls").exists()


def test_without_apt_get_all_that_is_missing_is_named(machine: Path) -> None:
    (machine / "apt-get").unlink()

    assert [line.split()[1] for line in run(machine, "one=lost-one", "two=lost-two")] == [
        "one",
        "two",
    ]


def test_the_makefile_asks_for_all_that_network_faults_need() -> None:
    rule = (ROOT / "Makefile").read_text().partition("\nprograms:\n")[2].partition("\n\n")[0]

    assert {"nft=nftables", "ip=iproute2"} <= set(rule.split())
