"""What docs/start.md tells to type works: its commands, in their order, on three real nodes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner, Result

from cli.main import app
from tests.cluster.conftest import Start
from tests.cluster.processes import Cluster, eventually

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "start.md"
PROGRAM = ".venv/bin/goqueue-cli "
KILL = "kill -9 $(.venv/bin/python -c "
RESTART = ".venv/bin/python -c "


def steps() -> Iterator[tuple[str, str]]:
    """Each line of a shell block, and each Python block as a whole, in the page's order."""
    for language, block in re.findall(r"```(sh|python)\n(.*?)```", PAGE.read_text(), re.S):
        if language == "python":
            yield "python", block
        else:
            yield from (("sh", line) for line in block.splitlines())


class Reader:
    """Types what the page shows; its ports are those of the cluster's nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.receipt = ""
        self.printed: dict[str, list[str]] = {}
        """Under each command as it is typed, what it told each time."""

    def ours(self, text: str) -> str:
        urls = [node.url for node in self.cluster.nodes]
        return re.sub(r"http://127\.0\.0\.1:808([012])", lambda found: urls[int(found[1])], text)

    def type(self, line: str) -> None:
        if line == "make run":
            return
        first = self.cluster.nodes[0]
        if line.startswith(KILL):
            first.kill()
        elif line.startswith(RESTART):
            first.start()
            eventually("the node serves again", first.is_up)
        else:
            assert line.startswith(PROGRAM), line
            self._command(line)

    def _command(self, line: str) -> None:
        typed, _, comment = self.ours(line.removeprefix(PROGRAM)).partition("  #")
        words = [self.receipt if word == "RECEIPT" else word for word in shlex.split(typed)]
        words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
        wanted = 1 if "exit code 1" in comment else 0
        told = eventually(line, lambda: self._run(words, wanted))
        self.printed.setdefault(typed.strip(), []).append(told.stdout)
        if "--no-ack" in words:
            self.receipt = json.loads(told.stdout)["receipt"]

    def _run(self, words: list[str], wanted: int) -> Result | None:
        """None where it is to be told as soon as the cluster has noticed."""
        told = CliRunner(env={"GOQUEUE_SERVER": self.cluster.nodes[0].url}).invoke(app, words)
        if words[-2:] == ["cluster", "health"] and told.exit_code != wanted:
            return None
        assert told.exit_code == wanted, f"{words}: {told.output[-300:]} {told.exception!r}"
        assert told.stdout, words
        return told

    def run(self, program: str) -> None:
        exec(compile(self.ours(program), str(PAGE), "exec"), {})


def test_the_start_page_works_from_top_to_bottom(start: Start) -> None:
    reader = Reader(start(3))
    languages = []

    for language, text in steps():
        languages.append(language)
        reader.type(text) if language == "sh" else reader.run(text)

    assert languages.count("sh") > 15
    assert "python" in languages
    [dead] = reader.printed["dlq list orders --group billing"]
    assert json.loads(dead)["reason"] == "no such account"
    before, after = reader.printed["trace orders:0:0"]
    [published] = [line for line in before.splitlines() if "PUBLISHED" in line]
    assert published in after, "the node that died took a timeline along"
