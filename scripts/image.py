"""Builds deploy/docker/Dockerfile by docker, podman or buildah, and writes its bill of materials.

    python scripts/image.py --tag goqueue:0.3.0 [--base 12.12-slim@sha256:...] [--release]

The bill is CycloneDX 1.6, in build/, of what the image that was built holds. With `--release` the
base must be named by digest: a tag can be moved to other bytes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sbom import bill_of

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
ENGINES = ("docker", "podman", "buildah")
DIGEST = re.compile(r"[\w.-]+@sha256:[0-9a-f]{64}")
PACKED = ["-cf", "-", "-C", "/", "opt/goqueue/lib", "var/lib/dpkg/status", "usr/lib/os-release"]
READ = re.compile(r"opt/.*\.dist-info/METADATA|var/lib/dpkg/status|usr/lib/os-release")
"""Of what the image packs: these files are unpacked here, no link and nothing else."""


def main(words: list[str]) -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tag", default=f"goqueue:{stated('VERSION')}")
    arguments.add_argument("--base", default=stated("DEBIAN"), help="tag of debian, and digest")
    arguments.add_argument("--release", action="store_true", help="refuse a base without digest")
    asked = arguments.parse_args(words)
    if refused := refuse(asked.base, release=asked.release):
        print(refused, file=sys.stderr)
        return 2
    engine = next(filter(shutil.which, ENGINES), None)
    if engine is None:
        print(f"none of {', '.join(ENGINES)} is here", file=sys.stderr)
        return 3
    build(engine, asked.tag, asked.base)
    bill = ROOT / "build" / f"{re.sub('[/:]', '-', asked.tag)}.cdx.json"
    bill.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        unpack(engine, asked.tag, Path(folder))
        bill.write_text(bill_of(Path(folder), asked.tag.rpartition(":")[2]))
    print(f"built {asked.tag}; {bill.relative_to(ROOT)} says what it holds")
    return 0


def stated(name: str) -> str:
    """The Dockerfile's own value of an ARG."""
    found = re.search(rf"(?m)^ARG {name}=(\S+)$", DOCKERFILE.read_text())
    assert found is not None, name
    return found[1]


def refuse(base: str, *, release: bool) -> str:
    """Why an image is not built on that base; empty if it is."""
    if not release or DIGEST.fullmatch(base):
        return ""
    tag = base.partition("@")[0]
    return (
        f"a release is not built on debian:{base}: a tag can be moved to other bytes.\n"
        f"Name it with its digest: make image RELEASE=1 BASE={tag}@sha256:...\n"
        f"which is told by: docker buildx imagetools inspect debian:{tag}"
    )


def build(engine: str, tag: str, base: str) -> None:
    """Raises CalledProcessError."""
    told = {"DEBIAN": base, "REVISION": revision()}
    options = [word for name in told for word in ("--build-arg", f"{name}={told[name]}")]
    command = [engine, "build", *options, "--file", str(DOCKERFILE), "--tag", tag, str(ROOT)]
    subprocess.run(command, check=True)


def revision() -> str:
    if not shutil.which("git"):
        return "source"
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip() or "source"


def unpack(engine: str, tag: str, folder: Path) -> None:
    """Raises CalledProcessError. The files are packed by the image's own tar, without a network."""
    made = ""
    if engine == "buildah":
        told = subprocess.run([engine, "from", tag], check=True, stdout=subprocess.PIPE, text=True)
        made = told.stdout.strip()
        command = [engine, "run", made, "--", "tar", *PACKED]
    else:
        command = [engine, "run", "--rm", "--network=none", "--entrypoint=tar", tag, *PACKED]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as packing:
            assert packing.stdout is not None
            with tarfile.open(fileobj=packing.stdout, mode="r|") as packed:
                for member in packed:
                    held = packed.extractfile(member) if READ.fullmatch(member.name) else None
                    if held is not None and ".." not in member.name.split("/"):
                        path = folder / member.name
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(held.read())
        if packing.returncode:
            raise subprocess.CalledProcessError(packing.returncode, command)
    finally:
        if made:
            subprocess.run([engine, "rm", made], stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
