"""The examples of docs/reference/cli.md, tried from top to bottom."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from typer.main import get_command

from cli.main import app
from tests.unit.cli.conftest import Shell

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/reference/cli.md"
PROGRAM = ".venv/bin/goqueue-cli "
NOT_OF_A_QUEUE = {"config", "generate", "dev", "serve", "cluster", "version", "trace"} | {
    "key",
    "audit",
    "local",
    "worker",
}


def examples() -> list[list[str]]:
    """The words of every command in the section about queues."""
    section = re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)[2]
    assert section.startswith("Working a queue")
    blocks = re.findall(r"^```sh\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith(PROGRAM) for line in lines)
    return [shlex.split(line.removeprefix(PROGRAM)) for line in lines]


def test_the_examples_work_in_their_order(shell: Shell) -> None:
    shell.ok("cluster", "upgrade", "--finish")
    held = ""
    for words in examples():
        if "RECEIPT" in words:
            if not held:
                taken = shell.ok("consume", "invoices", "-g", "accounting", "--no-ack", "-n", "1")
                held = json.loads(taken)["receipt"]
            words = [held if word == "RECEIPT" else word for word in words]
        if "DELAYED" in words:
            first = json.loads(shell.ok("delayed", "list", "invoices").splitlines()[0])
            words = [first["id"] if word == "DELAYED" else word for word in words]
        if "JOB" in words:
            job = json.loads(shell.ok("dlq", "jobs", "-g", "accounting").splitlines()[0])["job"]
            words = [str(job) if word == "JOB" else word for word in words]
        out = shell.ok(*words, "-o", "table")
        if words[0] == "consume" and "--no-ack" in words:
            held = out.splitlines()[-1].split()[-1]
        elif words[0] in ("ack", "nack", "reject"):
            held = ""
        assert out != ""


def test_every_command_of_a_queue_has_an_example() -> None:
    tried = {tuple(words[:1]) for words in examples()} | {tuple(words[:2]) for words in examples()}
    group = get_command(app)
    names: list[tuple[str, ...]] = []
    for name, one in group.commands.items():  # type: ignore[attr-defined]
        if name in NOT_OF_A_QUEUE or name == "topic":
            continue
        verbs = getattr(one, "commands", None)
        names += [(name,)] if verbs is None else [(name, verb) for verb in verbs]

    assert [name for name in names if name not in tried] == []
