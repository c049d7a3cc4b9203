"""Installs programs that some tests use, where that is allowed: PROGRAM=PACKAGE[+PACKAGE] ...

Done as root on Debian and its kin, with apt-get, and only for what is missing: all at once, and one
after the other where that fails, so that one that is not to be had keeps no other away. It prints
what is missing afterwards, and ends well: tests that need such a program are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

APT_S = 300
PLACES = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
"""Debian keeps `nft` and `mkfs.ext4` where only root's PATH leads."""


def main(wanted: list[str]) -> int:
    programs = {
        program: packages.split("+")
        for program, _, packages in (one.partition("=") for one in wanted)
    }
    missing = absent(programs)
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        install([programs[program] for program in missing])
    for program in absent(programs):
        names = " ".join(programs[program])
        print(f"no {program} (apt-get install {names}, as root): tests that need it are skipped")
    return 0


def absent(programs: dict[str, list[str]]) -> list[str]:
    return [program for program in programs if shutil.which(program, path=PLACES) is None]


def install(wanted: list[list[str]]) -> None:
    """Their services are not started."""
    together = sorted({package for packages in wanted for package in packages})
    print(f"installing {' '.join(together)} with apt-get", flush=True)
    add = ["install", "--yes", "--no-install-recommends"]
    try:
        if apt(*add, *together):
            return
        apt("update")
        if apt(*add, *together):
            return
        for packages in wanted:
            apt(*add, *packages)
    except subprocess.TimeoutExpired:
        print(f"apt-get took longer than {APT_S} s")


def apt(*words: str) -> bool:
    """Whether it did. Raises TimeoutExpired."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    done = subprocess.run(
        ["apt-get", "-qq", "-o", "Acquire::Retries=2", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=APT_S,
    )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
