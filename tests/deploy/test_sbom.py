"""`make image`: on which base, by which engine, and the bill of materials of what it built."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/image.py"
DIGEST = f"12.12-slim@sha256:{'ab' * 32}"
PACKAGES = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library: Shared libraries
 Contains the standard libraries.

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0
Description: was removed
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What an image holds, of this environment's own distributions."""
    root = tmp_path / "root"
    for folder in ("opt/goqueue/lib/python3.11", "var/lib/dpkg", "usr/lib"):
        (root / folder).mkdir(parents=True)
    (root / "opt/goqueue/lib/python3.11/site-packages").symlink_to(sysconfig.get_path("purelib"))
    (root / "var/lib/dpkg/status").write_text(PACKAGES)
    (root / "usr/lib/os-release").write_text('NAME="Debian GNU/Linux"\nVERSION_ID="12"\n')
    return root


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "scripts/sbom.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def purls(bill: dict[str, Any]) -> set[str]:
    return {component["purl"] for component in bill["components"]}


def test_the_bill_names_what_the_image_holds_and_what_needs_what(
    sbom: ModuleType, root: Path
) -> None:
    told = sbom.bill_of(root, "1.2.3")

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(told) is None
    bill = json.loads(told)
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    assert f"pkg:pypi/aiohttp@{version('aiohttp')}" in purls(bill)
    debian = {one for one in purls(bill) if one.startswith("pkg:deb/")}
    assert debian == {"pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12"}
    needs = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    server = f"pypi:goqueue-server@{version('goqueue-server')}"
    assert server in needs["goqueue@1.2.3"]
    assert f"pypi:pysyncobj@{version('pysyncobj')}" in needs[server]


def test_an_image_without_goqueue_has_no_bill(sbom: ModuleType, root: Path) -> None:
    (root / "opt/goqueue/lib/python3.11/site-packages").unlink()
    with pytest.raises(ValueError, match="holds no goqueue-server"):
        sbom.bill_of(root, "1.2.3")


@pytest.mark.parametrize("engine", ["docker", "podman", "buildah"])
def test_an_engine_builds_on_the_base_and_the_bill_is_of_what_it_built(
    tmp_path: Path, root: Path, engine: str
) -> None:
    with tarfile.open(tmp_path / "image.tar", "w", dereference=True) as packed:
        for name in ("var/lib/dpkg/status", "usr/lib/os-release"):
            packed.add(root / name, name)
        for one in (root / "opt/goqueue/lib/python3.11/site-packages").glob("goqueue_*.dist-info"):
            packed.add(one, one.relative_to(root))
    stand_in = tmp_path / "bin" / engine
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        f"case $1 in run) /bin/cat {tmp_path}/image.tar;; from) echo made-1;; esac\n"
    )
    stand_in.chmod(0o755)
    bill = ROOT / "build" / f"goqueue-{engine}-9.9.cdx.json"

    told = image(tmp_path, "--tag", f"goqueue-{engine}:9.9", "--base", DIGEST, "--release")

    assert told.returncode == 0, told.stderr
    calls = (tmp_path / "calls").read_text()
    assert f"--build-arg DEBIAN={DIGEST}" in calls
    assert ("rm made-1" in calls) is (engine == "buildah")
    found = json.loads(bill.read_text())
    bill.unlink()
    assert found["metadata"]["component"]["version"] == "9.9"
    assert f"pkg:pypi/goqueue-server@{version('goqueue-server')}" in purls(found)


@pytest.mark.parametrize("base", ["12.12-slim", "12.12-slim@sha256:abc", "@sha256:" + "a" * 64])
def test_a_release_is_refused_on_a_base_without_digest(tmp_path: Path, base: str) -> None:
    refused = image(tmp_path, "--release", "--base", base)

    assert refused.returncode == 2
    assert "imagetools inspect debian:" in refused.stderr


def test_without_an_engine_nothing_is_built_and_the_three_are_named(tmp_path: Path) -> None:
    told = image(tmp_path)

    assert (told.returncode, told.stderr) == (3, "none of docker, podman, buildah is here\n")


def image(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With no other programs than the stand-ins of a test."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        env={**os.environ, "PATH": f"{programs}:/nowhere"},
        capture_output=True,
        text=True,
    )
