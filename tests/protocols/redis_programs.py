"""redis-cli and redis-benchmark, the programs of Debian's redis-tools."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from tests.protocols.client import ANSWER_S, WAIT_S, Door, Line, Told, Unreachable
from tests.protocols.ledger import Ledger
from tests.protocols.redis_words import note_failure

COUNT = 100
COPIES, CONNECTIONS = 5, 2
"""redis-benchmark sends one command again and again: so often, over so many connections."""
_MARK = "mark-"


class RedisCli:
    """Commands come to it from a file, as a shell script has them."""

    stores_once: ClassVar[bool] = False
    sees_values: ClassVar[bool] = True

    def __init__(self, topic: str, group: str, number: int) -> None:
        self._topic, self._group, self._name = topic, group, f"cli-{number}"

    def publish(self, door: Door, lines: Sequence[Line]) -> Told:
        told = Told()
        commands = [["XADD", self._topic, "*", "value", line.value] for line in lines]
        answers = _script(door, commands)
        if not answers:  # it could not connect
            told.refused["no connection"] += 1
            return told
        for line, answer in zip(lines, answers, strict=True):
            if answer is None:
                told.unknown[line.number] += 1
            elif isinstance(answer, _Failed):
                note_failure(told, answer.text, [line.number])
            else:
                told.stored[line.number] += 1
                told.places[line.number] = (0, int(str(answer).partition("-")[2]))
        return told

    def consume(self, door: Door, ledger: Ledger, is_over: threading.Event) -> None:
        made = _script(door, [["XGROUP", "CREATE", self._topic, self._group, "0"]])
        if not made or made[0] is None:
            raise Unreachable("redis-cli had no answer")
        if isinstance(made[0], _Failed) and "BUSYGROUP" not in made[0].text:
            raise Unreachable(made[0].text)
        while not is_over.is_set():
            for start in ("0", ">"):
                block = ["BLOCK", str(int(WAIT_S * 1000))] if start == ">" else []
                command = ["XREADGROUP", "GROUP", self._group, self._name, "COUNT", str(COUNT)]
                (found,) = _script(door, [[*command, *block, "STREAMS", self._topic, start]]) or [
                    None
                ]
                if isinstance(found, _Failed):
                    raise Unreachable(found.text)
                if found is None:
                    raise Unreachable("redis-cli had no answer")
                if found is not _NOTHING:
                    self._ack(door, ledger, found[self._topic])

    def _ack(self, door: Door, ledger: Ledger, entries: list[Any]) -> None:
        numbers = [ledger.give(fields[1].encode()) for _, fields in entries]
        commands = [["XACK", self._topic, self._group, id] for id, _ in entries]
        answers = _script(door, commands) or [None] * len(commands)
        for number, answer in zip(numbers, answers, strict=True):
            if answer == 1:
                ledger.ack(number)
            elif answer != 0:
                ledger.ack_unanswered([number])
        if None in answers:
            raise Unreachable("redis-cli had no answer to an ack")


class RedisBenchmark:
    """Each line is sent `COPIES` times. What it reads it does not show, so its consumer settles as
    it reads (NOACK), and what is left of the group tells whether all was taken."""

    stores_once: ClassVar[bool] = False
    sees_values: ClassVar[bool] = False
    copies: ClassVar[int] = COPIES

    def __init__(self, topic: str, group: str, number: int) -> None:
        self._topic, self._group, self._name = topic, group, f"bench-{number}"

    def publish(self, door: Door, lines: Sequence[Line]) -> Told:
        told = Told()
        for line in lines:
            code, problem = self._run(door, COPIES, "XADD", self._topic, "*", "value", line.value)
            if code == 0:
                told.stored[line.number] += COPIES
                continue
            if problem.count("Could not connect") > 1:  # it asks for CONFIG first, by itself
                told.refused["no connection"] += 1
                return told
            # it ends at the first error: what it had sent by then it does not say
            told.unknown[line.number] += COPIES
            told.refused["redis-benchmark ended"] += 1
            if "Error from server: " in problem:
                text = problem.partition("Error from server: ")[2].splitlines()[0]
                note_failure(told, text, [])
            return told
        return told

    def consume(self, door: Door, ledger: Ledger, is_over: threading.Event) -> None:
        code, problem = self._run(door, 1, "XGROUP", "CREATE", self._topic, self._group, "0")
        if code and "BUSYGROUP" not in problem:
            raise Unreachable(problem)
        command = ["XREADGROUP", "GROUP", self._group, self._name, "COUNT", "20", "NOACK"]
        while not is_over.is_set():
            code, problem = self._run(door, 10, *command, "STREAMS", self._topic, ">")
            if code:
                raise Unreachable(problem)
            time.sleep(0.05)  # it does not say whether anything came

    def _run(self, door: Door, count: int, *command: str) -> tuple[int, str]:
        """Its exit code, and what it complained of."""
        program = ["redis-benchmark", "-h", door.host, "-p", str(door.redis)]
        counts = ["-n", str(count), "-c", str(min(count, CONNECTIONS)), "-q"]
        try:
            done = subprocess.run(
                [*program, *counts, *command], capture_output=True, timeout=ANSWER_S
            )
        except subprocess.TimeoutExpired:
            return 1, "no answer in time"
        return done.returncode, done.stderr.decode(errors="replace")


class _Failed:
    """An error's text."""

    def __init__(self, text: str) -> None:
        self.text = text


_NOTHING = object()
"""The answer that there is nothing."""


def _script(door: Door, commands: list[list[str]]) -> list[Any]:
    """The answer to each command, None where none is known; an empty list where it was not
    connected at all. After each command comes a mark, so that it is certain which answer is
    whose: redis-cli connects again by itself, and goes on with the next command."""
    text = "".join(
        f"{' '.join(_quoted(word) for word in command)}\nECHO {_MARK}{number}\n"
        for number, command in enumerate(commands)
    )
    program = ["redis-cli", "-h", door.host, "-p", str(door.redis), "--json"]
    try:
        done = subprocess.run(program, input=text.encode(), capture_output=True, timeout=ANSWER_S)
        out, problem = done.stdout, done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        out, problem = error.stdout or b"", "no answer in time"
    if not out.strip() and "Could not connect" in problem and "Error" not in problem:
        return []
    return answers_of([line for line in out.decode().splitlines() if line], len(commands))


def answers_of(lines: list[str], count: int) -> list[Any]:
    """Of so many commands, from what redis-cli has printed: what stands between two marks that
    follow each other."""
    told: list[Any] = [None] * count
    known = [_read(line) for line in lines]
    before = -1
    for at, one in enumerate(known):
        if not (isinstance(one, str) and one.startswith(_MARK)):
            continue
        number = int(one.removeprefix(_MARK))
        if number == before + 1 and at and not _is_mark(known[at - 1]):
            told[number] = known[at - 1]
        before = number
    return told


def _is_mark(one: Any) -> bool:
    return isinstance(one, str) and one.startswith(_MARK)


def _read(line: str) -> Any:
    if line.startswith("error:"):
        return _Failed(json.loads(line.removeprefix("error:")))
    try:
        found = json.loads(line)
    except json.JSONDecodeError:  # cut off
        return None
    return _NOTHING if found is None else found


def _quoted(word: str) -> str:
    """As redis-cli reads it."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'
