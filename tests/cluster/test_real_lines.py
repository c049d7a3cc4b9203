"""Real log lines through the command line: published at one node, read back at another.

The lines come from the folder that GOQUEUE_SAMPLE_DATA names (JSON lines with `key` and `value`);
else from `../shared/data`, where that exists; else from this repository's own history.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.cluster.conftest import Start
from tests.cluster.processes import ROOT, Node

LINES_MAX = 8000
Lines = dict[str, list[bytes]]


def sample_files(folder: Path) -> list[Path]:
    """JSON-lines files of real data, at most LINES_MAX lines in all."""
    named = os.environ.get("GOQUEUE_SAMPLE_DATA")
    source = Path(named) if named else ROOT.parent / "shared" / "data"
    found = sorted(source.glob("*.jsonl"))
    if found:
        return found
    assert not named, f"GOQUEUE_SAMPLE_DATA={named} has no .jsonl files"
    history = subprocess.run(
        ["git", "log", "-p", "--format=%h %an %s"], cwd=ROOT, capture_output=True, check=True
    )
    lines = [line for line in history.stdout.decode("utf-8", "replace").split("\n") if line]
    path = folder / "history.jsonl"
    rows = (json.dumps({"key": line[:6], "value": line}) for line in lines[:LINES_MAX])
    path.write_text("".join(f"{row}\n" for row in rows))
    return [path]


def compact(text: str) -> str:
    """JSON without whitespace outside of strings, every other character as it stands."""
    out, inside, escaped = [], False, False
    for character in text:
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character in " \t\r\n":
            continue
        elif character == '"':
            inside = True
        out.append(character)
    return "".join(out)


def expected(files: list[Path]) -> Lines:
    """What each key's messages must be, in order, byte for byte."""
    lines: Lines = defaultdict(list)
    for path in files:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            value = record["value"]
            if not isinstance(value, str):
                _, _, raw = compact(line).partition('"value":')
                value = raw.removesuffix("}")
                assert json.loads(value) == record["value"], "value is not the last field"
            lines[record["key"]].append(value.encode())
    return lines


def goqueue_cli(node: Node, *arguments: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "cli", "-s", node.url, *arguments],
        cwd=ROOT,
        capture_output=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def read_back(node: Node, topic: str) -> Lines:
    lines: Lines = defaultdict(list)
    for line in goqueue_cli(node, "-o", "json", "consume", topic, "--from-beginning").splitlines():
        message = json.loads(line)
        assert "value_encoding" not in message, "these lines are UTF-8"
        lines[message["key"]].append(message["value"].encode())
    return lines


def test_real_lines_survive_kill_9_of_every_node(start: Start, tmp_path: Path) -> None:
    files = sample_files(tmp_path)
    wanted = expected(files)
    cluster = start()

    for path in files:
        goqueue_cli(cluster[0], "produce", "lines", "--file", str(path))

    assert read_back(cluster[1], "lines") == wanted
    cluster.kill_all()
    cluster.start()
    assert read_back(cluster[2], "lines") == wanted
    assert sum(map(len, wanted.values())) > 1000
