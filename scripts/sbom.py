"""Writes what an image holds as CycloneDX 1.6: its Python distributions and its Debian packages.

    python scripts/sbom.py ROOT VERSION > goqueue.cdx.json

ROOT is an unpacked image; two kinds of files of it are read, and nothing in it is run: the METADATA
of distributions and dpkg's status.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SITE_PACKAGES = "opt/goqueue/lib/python3*/site-packages"
STATUS = "var/lib/dpkg/status"
ENVIRONMENT = {"extra": ""}


def bill_of(root: Path, version: str) -> str:
    """JSON. Raises ValueError where the root has no distributions, or none of GoQueue's."""
    bom = Bom()
    image = Component(
        name="goqueue", version=version, type=ComponentType.CONTAINER, bom_ref=f"goqueue@{version}"
    )
    bom.metadata.component = image
    libraries = python_components(root)
    if "goqueue-server" not in libraries:
        raise ValueError(f"{root} holds no goqueue-server below {SITE_PACKAGES}")
    packages = list(debian_components(root))
    for component in (*(component for component, _ in libraries.values()), *packages):
        bom.components.add(component)
    for component, needs in libraries.values():
        bom.register_dependency(component, [libraries[name][0] for name in needs])
    bom.register_dependency(image, [libraries["goqueue-server"][0], *packages])
    return JsonV1Dot6(bom).output_as_string(indent=1)


def python_components(root: Path) -> dict[str, tuple[Component, list[str]]]:
    """By canonical name: the component, and the names of those that are here that it needs."""
    folders = [str(folder) for folder in root.glob(SITE_PACKAGES)]
    found = {canonicalize_name(one.name): one for one in distributions(path=folders)}
    return {
        name: (python_component(name, one), [need for need in needs(one) if need in found])
        for name, one in sorted(found.items())
    }


def python_component(name: str, found: Distribution) -> Component:
    licence = found.metadata.get("License-Expression")
    return Component(
        name=name,
        version=found.version,
        type=ComponentType.LIBRARY,
        description=found.metadata.get("Summary"),
        licenses=[LicenseFactory().make_from_string(licence)] if licence else [],
        purl=PackageURL("pypi", None, name, found.version),
        bom_ref=f"pypi:{name}@{found.version}",
    )


def needs(found: Distribution) -> list[str]:
    """Canonical names, without those of extras."""
    wanted = map(Requirement, found.requires or ())
    return sorted(
        {
            canonicalize_name(one.name)
            for one in wanted
            if one.marker is None or one.marker.evaluate(ENVIRONMENT)
        }
    )


def debian_components(root: Path) -> Iterator[Component]:
    release = release_of(root)
    paragraphs = (root / STATUS).read_text().strip().split("\n\n")
    for one in map(HeaderParser().parsestr, paragraphs):
        if one["Status"] != "install ok installed":
            continue
        where = {"arch": one["Architecture"], "distro": release}
        yield Component(
            name=one["Package"],
            version=one["Version"],
            type=ComponentType.LIBRARY,
            description=one["Description"].partition("\n")[0],
            purl=PackageURL("deb", "debian", one["Package"], one["Version"], where),
            bom_ref=f"deb:{one['Package']}@{one['Version']}:{one['Architecture']}",
        )


def release_of(root: Path) -> str:
    found = re.search(r'(?m)^VERSION_ID="?([\d.]+)', (root / "usr/lib/os-release").read_text())
    return f"debian-{found[1]}" if found else "debian"


if __name__ == "__main__":
    print(bill_of(Path(sys.argv[1]), sys.argv[2]))
