"""curl with prior knowledge of HTTP/2: many publishes by one process, and a subscription whose
body comes from a pipe."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tests.protocols.client import ANSWER_S, WAIT_S, Door, Line, Told, Unreachable
from tests.protocols.credit import CREDIT, INIT, Acks
from tests.protocols.h2_answers import note_answer
from tests.protocols.ledger import Ledger

CURL = ("curl", "-sS", "--http2-prior-knowledge")
UNSENT = 7
"""Its code for "failed to connect"."""


class Curl:
    """As anyone would use it in a shell script."""

    stores_once: ClassVar[bool] = False
    sees_values: ClassVar[bool] = True

    def __init__(self, topic: str, group: str, number: int) -> None:
        self._topic, self._group = topic, group

    def publish(self, door: Door, lines: Sequence[Line]) -> Told:
        """All at once, each on a connection: curl 7.88 fails where it uses one that began with
        prior knowledge a second time (its issue 10634)."""
        told = Told()
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            config = folder / "config"
            config.write_text("next\n".join(self._request(door, folder, line) for line in lines))
            command = [*CURL, "--parallel", "--parallel-immediate", "--config", str(config)]
            done = subprocess.run(command, capture_output=True, timeout=2 * ANSWER_S)
            answers = {
                int(number): (int(status), int(code), message_id)
                for number, status, code, message_id in (
                    row.split(" ") for row in done.stdout.decode().splitlines()
                )
            }
            for line in lines:
                status, code, message_id = answers.get(line.number, (0, 0, ""))
                if code == UNSENT:
                    told.refused["no connection"] += 1
                elif code or not status:
                    told.refused[f"curl {code}"] += 1
                    told.unknown[line.number] += 1
                else:
                    body = folder / str(line.number)
                    content = body.read_bytes() if body.exists() else b""
                    note_answer(told, line.number, status, content, message_id)
        return told

    def consume(self, door: Door, ledger: Ledger, is_over: threading.Event) -> None:
        url = f"http://{door.host}:{door.h2}/subscribe/{self._topic}"
        query = f"?group={self._group}&credit={CREDIT}"
        # "." and not "-": that one would not read the answer while nothing comes from the pipe
        command = [*CURL, "-N", "-X", "POST", "-T", ".", url + query]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as curl:
            acks = Acks(ledger)
            try:
                _work(curl, acks, is_over)
            except BrokenPipeError:
                raise Unreachable("curl has ended") from None
            finally:
                acks.lost()
                if curl.poll() is None:
                    curl.kill()

    def _request(self, door: Door, folder: Path, line: Line) -> str:
        told = f"{line.number} %{{http_code}} %{{exitcode}} %header{{x-message-id}}\\n"
        return "".join(
            f"{row}\n"
            for row in (
                "http2-prior-knowledge",
                f"max-time = {ANSWER_S:.0f}",
                f'url = "http://{door.host}:{door.h2}/publish/{self._topic}"',
                f"data-binary = {_quoted(line.value)}",
                f'output = "{folder / str(line.number)}"',
                f'write-out = "{told}"',
            )
        )


def _work(curl: subprocess.Popen[bytes], acks: Acks, is_over: threading.Event) -> None:
    """Until it is over. Raises Unreachable, BrokenPipeError."""
    assert curl.stdin is not None and curl.stdout is not None
    curl.stdin.write(INIT)
    curl.stdin.flush()
    is_told = False
    for line in _lines(curl.stdout.fileno()):
        said = acks.take(line, is_told=is_told) if line else b""
        if said:
            curl.stdin.write(said)
            curl.stdin.flush()
        if is_over.is_set() and not is_told:
            is_told = True
            curl.stdin.close()
    if is_told and curl.wait(ANSWER_S) == 0:
        acks.ended()
        return
    raise Unreachable(f"curl ended with {curl.wait(ANSWER_S)}")


def _lines(stream: int) -> Iterator[bytes]:
    """As they come; an empty one each time that nothing has come for a while."""
    begun = b""
    while True:
        if not select.select([stream], [], [], WAIT_S)[0]:
            yield b""
            continue
        piece = os.read(stream, 1 << 16)
        if not piece:
            return
        *whole, begun = (begun + piece).split(b"\n")
        yield from whole


def _quoted(text: str) -> str:
    """As curl's configuration has it."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"{plain}"'
