"""What is in the wheels, and that it depends on the sources alone."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

from tests.wheels.installed import ROOT, Installed, build, copy_sources, do

SPARKS = {"pyspark_goqueue.py", "pyspark_goqueue_events.py"}
"""Where Spark looks for formats (docs/adr/0022)."""


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as packed:
        return [name for name in packed.namelist() if ".dist-info/" not in name]


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as packed:
        (found,) = (one for one in packed.namelist() if one.endswith(f".dist-info/{name}"))
        return packed.read(found).decode()


def test_each_wheel_has_one_name_besides_those_that_spark_looks_for(installed: Installed) -> None:
    library, server = ({name.partition("/")[0] for name in names(one)} for one in installed.wheels)

    assert library == {"goqueue"}
    assert server == {"goqueue_server", *SPARKS}
    told = metadata(installed.wheels[1], "top_level.txt").split()
    assert told == ["goqueue_server", "pyspark_goqueue", "pyspark_goqueue_events"]


def test_every_module_and_data_file_of_the_sources_is_in_the_wheel(installed: Installed) -> None:
    found = set(names(installed.wheels[1]))
    packed = {name.split("/")[1] for name in found if name.count("/") > 1}
    sources = {
        f"goqueue_server/{path.relative_to(ROOT)}"
        for package in packed
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".md")
    }

    assert "goqueue_server/pipeline/analytics/sql/views/lag_spans.sql" in sources
    added = {"goqueue_server/__init__.py", "goqueue_server/py.typed"}
    documents = {name for name in found if name.endswith(".md")}
    assert found - SPARKS - documents == sources | added


FOR_PYTEST = "goqueue/testing/plugin.py"
"""Loaded by pytest itself, where it is."""


def test_no_test_code_is_in_a_wheel(installed: Installed) -> None:
    for wheel in installed.wheels:
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                assert not re.search(r"(^|/)(tests?/|test_|conftest)", name), name
                if name == FOR_PYTEST:
                    continue
                text = packed.read(name).decode()
                assert not re.search(r"(?m)^\s*(from|import) (pytest|hypothesis|tests)\b", text)


def test_the_record_has_every_file_with_its_hash(installed: Installed) -> None:
    """Pip does not look at the hashes; who audits an environment does."""
    for wheel in installed.wheels:
        lines = [line.rsplit(",", 2) for line in metadata(wheel, "RECORD").splitlines()]
        with zipfile.ZipFile(wheel) as packed:
            assert [name for name, _, _ in lines] == packed.namelist()
            for name, told, size in lines[:-1]:
                content = packed.read(name)
                code = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (told, int(size)) == (f"sha256={code}", len(content)), name
        assert lines[-1][1:] == ["", ""]


def test_an_sdist_of_another_tree_gives_the_same_bytes(
    installed: Installed, tmp_path: Path
) -> None:
    tree = copy_sources(tmp_path / "other")
    shutil.copy2(ROOT / "MANIFEST.in", tree)
    backend = "import server_wheel; server_wheel.build_sdist('../sdist')"
    settings = [("PYTHONPATH", "scripts")]
    do(sys.executable, "-P", "-c", backend, folder=tree, settings=settings)
    (sdist,) = (tmp_path / "sdist").glob("*.tar.gz")
    again = build(sdist, tmp_path / "again")

    assert again.read_bytes() == installed.wheels[1].read_bytes()


def test_metadata_that_are_asked_for_alone_are_those_of_the_wheel(
    installed: Installed, tmp_path: Path
) -> None:
    tree = copy_sources(tmp_path / "tree")
    (tmp_path / "asked").mkdir()
    backend = "import server_wheel; server_wheel.prepare_metadata_for_build_wheel('../asked')"
    do(sys.executable, "-P", "-c", backend, folder=tree, settings=[("PYTHONPATH", "scripts")])
    (folder,) = (tmp_path / "asked").glob("*.dist-info")

    for name in ("METADATA", "entry_points.txt", "top_level.txt"):
        assert (folder / name).read_text() == metadata(installed.wheels[1], name)
    points = (folder / "entry_points.txt").read_text()
    assert "goqueue = goqueue_server.cli.serve:main\n" in points
    assert "local = goqueue_server.node.embedded.engine:open_engine\n" in points
    opens = "goqueue_server.node.embedded.virtual_engine:open_virtual_engine"
    assert f"testing = {opens}\n" in points


def test_the_librarys_extra_is_the_server_of_the_same_version(installed: Installed) -> None:
    told = metadata(installed.wheels[0], "METADATA")
    version = metadata(installed.wheels[1], "METADATA").partition("\nVersion: ")[2].split()[0]

    assert f'Requires-Dist: goqueue-server=={version}; extra == "local"' in told
