"""Builds deploy/docker/Dockerfile without an engine, and runs what it makes.

    python scripts/check_image.py [--keep FOLDER]

Each stage is a bare root of Debian's packages (mmdebstrap, the release that FROM names). The
Dockerfile's own RUN, COPY, ENV, USER, VOLUME, ENTRYPOINT and CMD are read and carried out there, by
chroot; an instruction that is not known here fails the check, so that the two can't drift apart.
Then the entry point runs as process 1 of its own process and network namespaces, as the image's
user, without capabilities, on a read-only root. Needs root, mmdebstrap and the package registries.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
IGNORE = ROOT / ".dockerignore"
RELEASES = {"12": "bookworm", "13": "trixie"}
MIRROR = "http://deb.debian.org/debian"
RESOLVER = "/etc/resolv.conf"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
MOUNTED = "/run/authorities.crt"
"""Where a stage finds this machine's authorities of registries, while it is built and no longer."""
PORTS = {"7000", "8080", "9000"}
STARTED_S, STOPPED_S = 60.0, 20.0


@dataclass
class Stage:
    """One FROM and what follows it: (instruction, its text with variables put in)."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Image:
    """What an engine would know of the last stage beside its files."""

    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    folder: str = "/"
    labels: dict[str, str] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    ports: set[str] = field(default_factory=set)
    health: list[str] = field(default_factory=list)
    entry: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keep", type=Path, help="build here, and leave the roots there")
    keep = arguments.parse_args().keep
    missing = [name for name in ("mmdebstrap", "unshare", "nsenter") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        print(f"SKIPPED: the image is not checked: not root, or no {missing or 'right to mount'}")
        return 0
    folder = Path(keep or tempfile.mkdtemp(prefix="goqueue-image-", dir="/var/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        stages = parse(DOCKERFILE.read_text())
        root, image = build(stages, folder)
        checked = [*look_at(root, image), *run(root, image, folder)]
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print("\nexecuted, in bare roots of Debian packages:")
    for line in checked:
        print(f"  {line}")
    print("not executed: an engine's layers and cache, pulling of the base image (the root is made")
    print("  of the same release's packages), push to a registry, HEALTHCHECK on a timer, seccomp")
    return 0


def parse(text: str) -> list[Stage]:
    """Raises ValueError for what is not known here."""
    joined = re.sub(r"\\\n", "", re.sub(r"(?m)^\s*#.*\n", "", text))
    values: dict[str, str] = {}
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        rest = re.sub(r"\$\{(\w+)\}", lambda found: values.get(found[1], found[0]), rest.strip())
        if word == "ARG":
            name, _, value = rest.partition("=")
            values[name] = value
        elif word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(name or str(len(stages)), base))
        elif word in _STEPS:
            stages[-1].steps.append((word, rest))
        else:
            raise ValueError(f"{word} is not carried out here: {line}")
    return stages


def build(stages: list[Stage], folder: Path) -> tuple[Path, Image]:
    """The root of the last stage. Raises CalledProcessError where a command fails."""
    roots: dict[str, Path] = {}
    image = Image()
    for stage in stages:
        root = roots[stage.name] = folder / stage.name
        bootstrap(stage.base, root, folder)
        image = Image()
        shutil.copy(RESOLVER, root / RESOLVER[1:])
        shutil.copy(AUTHORITIES, root / MOUNTED[1:])
        for word, rest in stage.steps:
            print(f"{stage.name}: {word} {rest[:150]}", flush=True)
            _STEPS[word](root, image, rest, roots)
        for path in (RESOLVER, MOUNTED):
            (root / path[1:]).unlink()
    return roots[stages[-1].name], image


def bootstrap(base: str, root: Path, folder: Path) -> None:
    """`debian:12.12-slim`, made of the same release's packages."""
    found = re.fullmatch(
        r"(?:docker\.io/library/)?debian:(\d+)(?:\.\d+)?-slim(?:@sha256:\w+)?", base
    )
    if found is None:
        raise ValueError(f"{base} can't be made of Debian's packages")
    packed = folder / f"{found[1]}.tar"
    if not packed.exists():
        release = RELEASES[found[1]]
        print(f"mmdebstrap {release}", flush=True)
        do("mmdebstrap", "--quiet", "--variant=minbase", release, str(packed), MIRROR)
    root.mkdir()
    do("tar", "--extract", "--file", str(packed), "--directory", str(root))


# instructions


def _run(root: Path, image: Image, rest: str, _roots: dict[str, Path]) -> None:
    told = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    told |= {"DEBIAN_FRONTEND": "noninteractive", **image.environment}
    told |= {name: value for name, value in os.environ.items() if name in ("PIP_DEFAULT_TIMEOUT",)}
    told["PIP_CERT"] = MOUNTED
    script = f"cd {image.folder} && {rest}"
    do(*_inside(root, told), "/bin/sh", "-c", script)


def _copy(root: Path, image: Image, rest: str, roots: dict[str, Path]) -> None:
    words = rest.split()
    origin = ROOT
    is_context = not words[0].startswith("--from=")
    if not is_context:
        origin = roots[words.pop(0).removeprefix("--from=")]
    *sources, target = words
    to = root / os.path.join(image.folder, target).lstrip("/")
    for source in sources:
        found = origin / source.lstrip("/")
        if is_context and is_ignored(source):
            raise ValueError(f".dockerignore leaves out {source}")
        if found.is_dir():
            shutil.copytree(found, to, symlinks=True, ignore=_left_out, dirs_exist_ok=True)
        else:
            place = to / found.name if target.endswith("/") or len(sources) > 1 else to
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, place)


def is_ignored(path: str) -> bool:
    kept = [line[1:] for line in IGNORE.read_text().splitlines() if line.startswith("!")]
    return not any(path == one or path.startswith(f"{one}/") for one in kept)


def _left_out(folder: str, names: list[str]) -> set[str]:
    if not folder.startswith(str(ROOT)):
        return set()
    lines = [line[3:] for line in IGNORE.read_text().splitlines() if line.startswith("**/")]
    return {name for name in names if any(fnmatch(name, line) for line in lines)}


def _pairs(rest: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r'([\w.]+)=(?:"([^"]*)"|(\S+))', rest):
        yield found[1], found[2] if found[3] is None else found[3]


def _health(_root: Path, image: Image, rest: str, _roots: dict[str, Path]) -> None:
    image.health = json.loads(rest.partition("CMD ")[2])


def _workdir(root: Path, image: Image, rest: str, _roots: dict[str, Path]) -> None:
    image.folder = rest
    (root / rest[1:]).mkdir(parents=True, exist_ok=True)


_STEPS = {
    "RUN": _run,
    "COPY": _copy,
    "WORKDIR": _workdir,
    "HEALTHCHECK": _health,
    "ENV": lambda _root, image, rest, _roots: image.environment.update(_pairs(rest)),
    "LABEL": lambda _root, image, rest, _roots: image.labels.update(_pairs(rest)),
    "USER": lambda _root, image, rest, _roots: setattr(image, "user", rest),
    "VOLUME": lambda _root, image, rest, _roots: image.volumes.append(rest),
    "EXPOSE": lambda _root, image, rest, _roots: image.ports.update(rest.split()),
    "ENTRYPOINT": lambda _root, image, rest, _roots: setattr(image, "entry", json.loads(rest)),
    "CMD": lambda _root, image, rest, _roots: setattr(image, "command", json.loads(rest)),
}


# what came of it


def look_at(root: Path, image: Image) -> list[str]:
    """What was found right; a wrong one is an AssertionError."""
    assert image.ports == PORTS, image.ports
    assert image.volumes == ["/var/lib/goqueue"], image.volumes
    for label in ("title", "description", "licenses", "version", "revision"):
        assert image.labels.get(f"org.opencontainers.image.{label}"), label
    uid = image.user.partition(":")[0]
    assert uid.isdigit() and uid != "0", "a number, so that Kubernetes sees that it is not root"
    for tool in ("gcc", "cc", "g++", "make", "curl", "wget", "pip", "pip3"):
        for folder in ("opt/goqueue/bin", "usr/local/bin", "usr/bin", "bin"):
            assert not (root / folder / tool).exists(), f"{tool} is in the image"
    writable = [
        str(path.relative_to(root))
        for top in ("opt", "usr", "etc")
        for path in (root / top).rglob("*")
        if not path.is_symlink() and (path.stat().st_uid == int(uid) or path.stat().st_mode & 0o002)
    ]
    assert writable == [], writable[:5]
    size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
    libraries = len(list(root.glob("opt/goqueue/lib/python3*/site-packages/*.dist-info")))
    return [
        f"the stages' commands: {libraries} distributions of requirements/image.lock, and ours",
        f"{size >> 20} MiB unpacked; no compiler, pip or curl; the user can change nothing of it",
        f"user {image.user}, ports {', '.join(sorted(image.ports))}, {len(image.labels)} labels",
    ]


def run(root: Path, image: Image, folder: Path) -> list[str]:
    """Start it as process 1, on a read-only root; use it; end it."""
    volume = folder / "volume"
    volume.mkdir()
    uid, gid = map(int, image.user.split(":"))
    os.chown(volume, uid, gid)
    script = (
        "set -e; ip link set lo up; "
        f"mount --rbind {root} {root}; mount -t proc proc {root}/proc; "
        f"mount --rbind /dev {root}/dev; "
        f"mount --bind {volume} {root}{image.volumes[0]}; mount -o remount,bind,ro {root}; "
        f'cd {root}; exec chroot {root} "$@"'
    )
    spaces = ("--mount", "--net", "--pid", "--fork", "--kill-child")
    as_user = [*_as_user(image), "GOQUEUE_AUTH_INSECURE_OPEN=true"]
    command = [*image.entry, *image.command]
    refused = subprocess.run(
        ["unshare", *spaces, "sh", "-c", script, "sh", *_as_user(image), *command]
    )
    assert refused.returncode == 2, "it served whoever reaches it, without being told to"
    began = time.monotonic()
    outer = subprocess.Popen(["unshare", *spaces, "sh", "-c", script, "sh", *as_user, *command])
    try:
        pid = until("process 1", lambda: child_of(outer.pid))
        inside = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--root", "--wd=/"]

        def ask(*command: str) -> str:
            return do(*inside, *as_user, *command)

        def is_up() -> bool:
            tried = subprocess.run([*inside, *as_user, *image.health], capture_output=True)
            return tried.returncode == 0

        until("HEALTHCHECK passes", is_up)
        up_s = time.monotonic() - began
        ask("goqueue-cli", "topic", "create", "orders")
        ask("goqueue-cli", "produce", "orders", "-m", "through the image")
        read = ask("goqueue-cli", "consume", "orders", "--from-beginning", "-n", "1")
        assert "through the image" in read, read
        refused = subprocess.run([*inside, *as_user, "touch", "/etc/x"], capture_output=True)
        assert refused.returncode != 0, "the root is not read-only"
        ask("sh", "-c", "(sleep 0.1 &) ; true")
        names = "cat /proc/[0-9]*/comm"
        until("who was left behind is reaped", lambda: "sleep" not in ask("sh", "-c", names))
        os.kill(pid, signal.SIGTERM)
        code = outer.wait(STOPPED_S)
        assert code == 0, f"ended with {code}"
    finally:
        if outer.poll() is None:
            outer.kill()
            outer.wait(10)
    return [
        "without GOQUEUE_AUTH_INSECURE_OPEN=true it refuses to start, with exit code 2",
        f"{' '.join(command)}: up after {up_s:.1f} s, as process 1,",
        f"  as {image.user}, without capabilities, on a read-only root with one volume",
        "HEALTHCHECK's command; a topic made, a message published and read back by goqueue-cli",
        "an orphan was reaped; SIGTERM ended it with exit code 0",
    ]


def _as_user(image: Image) -> list[str]:
    uid, gid = image.user.split(":")
    told = [f"{name}={value}" for name, value in image.environment.items()]
    return [
        *("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"),
        *("--inh-caps=-all", "--bounding-set=-all", "env", "-i", *told),
    ]


def _inside(root: Path, told: dict[str, str]) -> list[str]:
    script = (
        f'mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev; exec chroot {root} "$@"'
    )
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]
    return [*spaces, "env", "-i", *(f"{name}={value}" for name, value in told.items())]


def child_of(pid: int) -> int | None:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else None


def until(what: str, found: Callable[[], T | None]) -> T:
    """The first thing found. Raises AssertionError after `STARTED_S`."""
    ends = time.monotonic() + STARTED_S
    while not (value := found()):
        if time.monotonic() > ends:
            raise AssertionError(f"not within {STARTED_S:.0f} s: {what}")
        time.sleep(0.1)
    return value


def do(*command: str) -> str:
    """What it printed. Raises CalledProcessError, with what it complained of on standard error."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stdout[-2000:], file=sys.stderr)
        done.check_returncode()
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
