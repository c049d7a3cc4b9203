"""docs/operations does what it says: scripts, values and arithmetic."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.rendering import render
from tests.deploy.stand_ins import ROOT, Machine

PAGES = sorted((ROOT / "docs/operations").glob("*.md"))
FILES = {"tls.crt", "tls.key"}


def shell_lines(page: Path) -> Iterator[str]:
    text = page.read_text()
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.S | re.M):
        yield from (line.strip() for line in block.splitlines())
    yield from re.findall(r"`([^`\n]+)`", text)


def commands(program: str) -> list[str]:
    found = {
        line[line.index(program) :]
        for page in PAGES
        for line in shell_lines(page)
        if re.match(rf'(?:eval "\$\()?{re.escape(program)} \S', line)
    }
    return sorted(found)


def scripts() -> list[str]:
    """Lines of deploy.sh without comments, and with one target where the text names all."""
    lines = {re.sub(r'\)"?\s*(#.*)?$|\s+#.*$', "", line) for line in commands("deploy/deploy.sh")}
    return sorted({line.replace("kind|dev|prod", "dev") for line in lines})


@pytest.mark.parametrize("line", scripts())
def test_every_line_of_the_deploy_script_is_one_that_it_takes(line: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "mine.yaml").write_text("")

    ran = machine.deploy(*shlex.split(line)[1:], "--dry-run")

    assert ran.code == 0, ran.stderr


def test_every_value_of_the_chart_that_a_page_sets_is_taken() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    settings = set(re.findall(r"--set(?:-string)? ([\w.]+)=([\w.-]+|\"[^\"]*\")", text))

    assert len(settings) >= 4
    for path, value in settings:
        values: dict[str, Any] = {}
        inner = values
        *parents, last = path.split(".")
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = yaml.safe_load(value)
        assert render(values), path


def test_every_value_of_the_chart_that_a_page_names_exists() -> None:
    known = yaml.safe_load((ROOT / "deploy/helm/goqueue/values.yaml").read_text())
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`([a-z]\w*(?:\.\w+)+)(?:: [\w ]+)?`", page.read_text())
        if name.split(".")[0] in known
    }
    settings = yaml.safe_load((ROOT / "config.example.yaml").read_text())

    assert named
    assert [
        name
        for name in sorted(named - FILES)
        if not has(known, name.split(".")) and not has(settings, name.split("."))
    ] == []


def has(values: Any, names: list[str]) -> bool:
    for name in names:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def test_the_pages_arithmetic_is_right() -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/operations/capacity.md").read_text(), re.S
    )
    names: dict[str, Any] = {"math": math}

    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "capacity.md", "exec"), names)


def test_figures_are_of_rows_that_the_benchmarks_have() -> None:
    rows = (ROOT / "docs/reference/benchmarks.md").read_text()
    page = (ROOT / "docs/operations/capacity.md").read_text()
    named = re.findall(r"`((?:majority|three nodes|read back)[^`]+)`", page)

    assert len(named) == 8
    assert [name for name in named if f"| {name} |" not in rows] == []
