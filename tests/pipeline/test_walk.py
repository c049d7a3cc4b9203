"""The walk-through of docs/pipeline/README.md, as it is written: its blocks, line by line.

Commands run in this process, by their own entry points, and Python in one namespace; addresses and
folders are those of the test. Another terminal's lines and the shell's own are not for here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from cli.main import app as cli
from goqueue import Client
from pipeline.main import commands
from tests.cluster.processes import ROOT
from tests.pipeline.analytics_scene import lines
from tests.pipeline.test_analytics import interpreted, rows_of, same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "pipeline" / "README.md"
LINES = 160
PROGRAMS = {"goqueue-cli": cli, "goqueue-pipeline": commands()}
NOT_HERE = ("make", "export", "cd")
OF_THE_ARCHIVE_ONLY_ELSEWHERE = {"rebalance_pauses", "summary"}


class Walk:
    """One user's way through the page. `shown` is what was printed on it."""

    def __init__(self, servers: str, archive: Path) -> None:
        self._places = {"http://127.0.0.1:8080": servers, "/tmp/goqueue-archive": str(archive)}
        self._names: dict[str, Any] = {"__name__": "walk"}
        self.shown = ""

    def go(self, kind: str, block: str) -> None:
        for ours, theirs in self._places.items():
            block = block.replace(ours, theirs)
        if kind == "python":
            exec(compile(block, str(PAGE), "exec"), self._names)
            return
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] not in NOT_HERE:
                self._type(words)

    def _type(self, words: list[str]) -> None:
        ended = CliRunner().invoke(PROGRAMS[words[0]], words[1:])
        assert ended.exit_code == 0, (words, ended.output)
        self.shown += ended.output


def blocks() -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        yield found[1], found[2]


def test_every_line_of_the_walk_through_does_what_the_page_says(
    spark: SparkSession,
    servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import pyarrow.parquet as pq

    made = lines(tmp_path, LINES)
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in made))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOQUEUE_SERVER", servers)
    monkeypatch.setenv("GOQUEUE_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("GOQUEUE_SAMPLE_DATA", str(tmp_path / "lines.jsonl"))
    walk = Walk(servers, tmp_path / "archive")

    with interpreted(spark):
        for kind, block in blocks():
            walk.go(kind, block)

    with Client(servers) as client:
        found = sorted((m.key_text, m.value.decode()) for m in client.messages("lines"))
    assert found == sorted((one["key"], one["value"]) for one in made)
    errors = sum("error" in one["value"].lower() for one in made)
    printed = capsys.readouterr().out
    assert re.search(rf"\| *PUBLISHED\| *{LINES}\|", printed)
    assert f"{LINES} rows" in walk.shown
    live, old = (
        {path.stem: rows_of(pq.read_table(path)) for path in folder.glob("tables/*.parquet")}
        for folder in (tmp_path / "report", tmp_path / "report-of-the-archive")
    )
    assert live["summary"][0]["messages"] == old["summary"][0]["messages"] == LINES
    assert live["summary"][0]["dead"] == errors
    for name in live.keys() - OF_THE_ARCHIVE_ONLY_ELSEWHERE:
        assert bool(live[name]) == bool(old[name])
        if live[name]:
            same(old[name], live[name])
