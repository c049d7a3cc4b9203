"""The console's files: vendored ones are what they say, all are in the wheel, kept by browsers."""

from __future__ import annotations

import hashlib
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from node.http.console.assets import FOLDER
from tests.unit.node.http.conftest import Client

ROOT = Path(__file__).resolve().parents[5]
LISTS = (FOLDER / "VENDORED.md", ROOT / "tests/console/vendor/VENDORED.md")
OURS = {"console.css", "console.js", "icon.svg"}


def listed(document: Path) -> dict[str, str]:
    rows = re.findall(r"^\| (\S+) \| .* \| `([0-9a-f]{64})` \|$", document.read_text(), re.M)
    return dict(rows)


@pytest.mark.parametrize("document", LISTS, ids=lambda path: str(path.parent.name))
def test_vendored_files_have_the_hashes_and_licences_that_are_listed(document: Path) -> None:
    found = listed(document)
    files = {
        path.name
        for path in document.parent.iterdir()
        if path.suffix in (".js", ".css") and path.name not in OURS
    }

    assert set(found) == files and files
    for name, sha256 in found.items():
        assert hashlib.sha256((document.parent / name).read_bytes()).hexdigest() == sha256, name
    for name in re.findall(r"\((\S+\.LICENSE\.txt)\)", document.read_text()):
        assert (document.parent / name).stat().st_size > 300


def test_every_file_of_the_console_is_in_the_wheel() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = config["tool"]["setuptools"]["package-data"]["node.http.console"]
    files = [
        path.relative_to(FOLDER.parent).as_posix()
        for path in FOLDER.parent.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]

    assert len(files) > 15
    assert [name for name in files if not any(fnmatch(name, one) for one in patterns)] == []


def test_our_files_name_no_other_origin() -> None:
    for name in OURS:
        text = (FOLDER / name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|eval\(|innerHTML", text), name


async def test_a_file_under_its_hash_is_kept_for_ever_and_any_other_is_asked_for_again(
    client: Client,
) -> None:
    page = (await client.get("/ui")).body.decode()
    urls = re.findall(r'(?:href|src)="(/ui/static/[^"]+)"', page)

    assert len(urls) == 6
    for url in urls:
        kept = await client.get(url)
        assert kept.status == 200
        assert kept.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        old = await client.get(re.sub("v=.*", "v=000000000000", url))
        assert old.headers["Cache-Control"] == "no-cache"
        same = await client.get(url, headers={"If-None-Match": kept.headers["Etag"]})
        assert (same.status, same.body) == (304, b"")


async def test_what_is_not_for_browsers_is_not_served(client: Client) -> None:
    for name in ("VENDORED.md", "..", ".", "%2e%2e%2fassets.py", "console.css%00"):
        assert (await client.get(f"/ui/static/{name}")).status == 404, name


def test_dark_is_the_same_whether_the_system_or_the_reader_has_chosen_it() -> None:
    """The colours stand twice: a script reads them by name, so no function may choose them."""
    style = (FOLDER / "console.css").read_text()
    by_system = re.search(r":root:not\(\[data-theme=\"light\"\]\) \{(.*?)\}", style, re.S)
    by_reader = re.search(r":root\[data-theme=\"dark\"\] \{(.*?)\}", style, re.S)

    assert by_system and by_reader
    colours = [re.findall(r"--[\w-]+: [^;]+", block[1]) for block in (by_system, by_reader)]
    assert colours[0] == colours[1] != []
