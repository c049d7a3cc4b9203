"""Installs programs that some tests use, where that is allowed: PROGRAM=DEBIAN-PACKAGE ...

Done as root on Debian and its kin, with apt-get, and only for what is missing. Anywhere else it
says what to install, and ends well: tests that need a missing program are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

APT_S = 300


def main(wanted: list[str]) -> int:
    packages = {
        package
        for program, _, package in (one.partition("=") for one in wanted)
        if shutil.which(program) is None
    }
    if packages and not install(sorted(packages)):
        names = " ".join(sorted(packages))
        print(f"not installed: {names} (apt-get install {names}, as root): its tests are skipped")
    return 0


def install(packages: list[str]) -> bool:
    """Whether they are there now. Their services are not started."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    print(f"installing {' '.join(packages)} with apt-get", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    quiet = ["apt-get", "-qq", "-o", "Acquire::Retries=2"]
    add = [*quiet, "install", "--yes", "--no-install-recommends", *packages]
    try:
        for command in (add, [*quiet, "update"], add):
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=APT_S,
            )
            if command is add and done.returncode == 0:
                return True
    except subprocess.TimeoutExpired:
        print(f"apt-get took longer than {APT_S} s")
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
