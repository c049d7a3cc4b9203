"""What this machine lets us do to processes, networks and disks, and what earlier runs left here.

Everything made carries the pid of the run that made it; what carries a dead one is taken away at
the next start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos.cluster import ClusterError
from tests.chaos.shim import ShimUnavailable, library

MARK = "goqueue-chaos"
IMAGES = Path("/dev/shm")
MOUNTS = Path("/run") / MARK
_NAMESPACE = re.compile(rf"{MARK}-(\d+)-\d+")
_BRIDGE = re.compile(r"gqb(\d+)")
_IMAGE = re.compile(rf"{MARK}-(\d+)-[\w-]+\.img")
_GONE_S = 5.0


class CommandFailed(ClusterError):
    """A command of the system failed; what it said."""


def do(*command: str, text: str | None = None) -> str:
    """What the command printed. Raises CommandFailed."""
    done = subprocess.run(
        command,
        input=text,
        stdin=None if text is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def is_root() -> bool:
    return os.geteuid() == 0


def missing_for_networks() -> str | None:
    """Why nodes can't have networks of their own here, or None. It is tried."""
    if absent := _absent("ip", "nft", "nsenter"):
        return absent
    name = f"{MARK}-{os.getpid()}-0"
    try:
        do("ip", "netns", "add", name)
        try:
            table = "table ip chaos {\n chain out {\n type nat hook output priority -100\n }\n}\n"
            do("nsenter", f"--net=/run/netns/{name}", "nft", "-f", "-", text=table)
        finally:
            do("ip", "netns", "del", name)
    except CommandFailed as error:
        return str(error)
    return None


def missing_for_disks() -> str | None:
    """Why nodes can't have disks of their own here, or None."""
    if absent := _absent("mkfs.ext4", "losetup", "mount", "umount"):
        return absent
    try:
        do("losetup", "--find")
    except CommandFailed as error:
        return str(error)
    return None


def missing_for_shim() -> str | None:
    """Why nodes' disks and clocks can't be made to fail from within, or None."""
    try:
        library()
    except ShimUnavailable as error:
        return str(error)
    return None


def _absent(*programs: str) -> str | None:
    if not is_root():
        return "not root"
    missing = [program for program in programs if shutil.which(program) is None]
    return f"no {', '.join(missing)}" if missing else None


def clean_up() -> list[str]:
    """Takes away what runs left that are over; what that was."""
    if not is_root():
        return []
    return [*_namespaces(), *_bridges(), *_disks()]


def _is_over(pid: str) -> bool:
    return int(pid) != os.getpid() and not Path(f"/proc/{pid}").exists()


def _namespaces() -> Iterator[str]:
    folder = Path("/run/netns")
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        found = _NAMESPACE.fullmatch(path.name)
        if found and _is_over(found[1]):
            for pid in do("ip", "netns", "pids", path.name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            do("ip", "netns", "del", path.name)
            yield path.name


def _bridges() -> Iterator[str]:
    for path in sorted(Path("/sys/class/net").iterdir()):
        found = _BRIDGE.fullmatch(path.name)
        if found and _is_over(found[1]):
            do("ip", "link", "del", path.name)
            yield path.name


def _disks() -> Iterator[str]:
    for path in sorted(IMAGES.iterdir()) if IMAGES.is_dir() else []:
        found = _IMAGE.fullmatch(path.name)
        if found and _is_over(found[1]):
            unmount_image(path)
            path.unlink()
            yield path.name
    for folder in MOUNTS.iterdir() if MOUNTS.is_dir() else []:
        if folder.name.isdigit() and _is_over(folder.name):
            shutil.rmtree(folder)


def unmount_image(image: Path) -> None:
    """Whatever is mounted from it, no more; no loop device has it."""
    for device in _loops(image):
        for line in Path("/proc/mounts").read_text().splitlines():
            source, target = line.split()[:2]
            if source == device:
                unmount(Path(target))
        with contextlib.suppress(CommandFailed):
            do("losetup", "--detach", device)


def unmount(target: Path) -> None:
    """Waits for processes that are being taken away. Raises CommandFailed."""
    ends = time.monotonic() + _GONE_S
    while True:
        try:
            do("umount", str(target))
            return
        except CommandFailed:
            if time.monotonic() > ends:
                raise
            time.sleep(0.01)


def _loops(image: Path) -> Sequence[str]:
    listed = do("losetup", "--associated", str(image), "--output", "NAME", "--noheadings")
    return listed.split()
