"""A history: what clients asked for and were told, one JSON object a line, as it happened.

    invoke   a publish of `values` under one `key` to one `partition` begins
    ok       it was acked; `offsets` are those of its values; `sent` is when the acked request left
    fail     it was refused, and definitely did not happen
    info     nobody knows: it may have happened, and may still
    read     a node showed `values` (with `keys`) at `offsets`; `final` in a read of a whole log
    kill     a node was killed while it led `partitions`
    fault    `fault` was done to `nodes` from `at` to `until`; they led `partitions`; `effect` is
             what shows that it happened, `healthy_s` how long after `until` all was well,
             `beside` which faults there were at the same time
    note     anything else worth a line: restart, healthy

`time` is monotonic seconds of the one process that writes, `wall` seconds since the epoch. An
operation that never got an answer counts as `info`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

Event = dict[str, Any]


class History:
    """Events in order, kept in memory and, if a path is given, written to a file as they come."""

    def __init__(self, path: Path | None = None) -> None:
        self.events: list[Event] = []
        self._file: IO[str] | None = path.open("w") if path else None
        self.acked = 0
        self._next = 0
        self._partition_of: dict[int, int] = {}

    def __enter__(self) -> History:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def invoke(self, publisher: str, partition: int, key: str | None, values: list[str]) -> int:
        """The number of the operation that begins now."""
        self._next += 1
        self._partition_of[self._next] = partition
        self.add(
            "invoke",
            op=self._next,
            publisher=publisher,
            partition=partition,
            key=key,
            values=values,
        )
        return self._next

    def ok(self, op: int, offsets: Sequence[int], *, sent: float, duplicate: bool = False) -> None:
        self.acked += len(offsets)
        self.add(
            "ok",
            op=op,
            partition=self._partition_of.pop(op),
            offsets=list(offsets),
            sent=sent,
            duplicate=duplicate,
        )

    def fail(self, op: int, error: str) -> None:
        self.add("fail", op=op, error=error)

    def info(self, op: int, error: str) -> None:
        self.add("info", op=op, error=error)

    def read(
        self,
        node: str,
        partition: int,
        offsets: list[int],
        keys: list[str | None],
        values: list[str],
        *,
        final: bool = False,
    ) -> None:
        self.add(
            "read",
            node=node,
            partition=partition,
            offsets=offsets,
            keys=keys,
            values=values,
            final=final,
        )

    def kill(self, node: str, partitions: Sequence[int], at: float) -> None:
        self.add("kill", node=node, partitions=list(partitions), at=at)

    def fault(
        self,
        kind: str,
        nodes: Sequence[str],
        partitions: Sequence[int],
        *,
        at: float,
        until: float,
        effect: str,
        healthy_s: float,
        beside: Sequence[str] = (),
    ) -> None:
        self.add(
            "fault",
            fault=kind,
            nodes=list(nodes),
            partitions=list(partitions),
            at=at,
            until=until,
            effect=effect,
            healthy_s=healthy_s,
            beside=list(beside),
        )

    def note(self, text: str, **fields: Any) -> None:
        self.add("note", text=text, **fields)

    def add(self, kind: str, **fields: Any) -> None:
        """One event; `time` and `wall` are now."""
        event = {"type": kind, "time": time.monotonic(), "wall": time.time(), **fields}
        self.events.append(event)
        if self._file is not None:
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")


def load(path: Path) -> list[Event]:
    """The events of a file; a last line cut short is left out."""
    return list(parse(path.read_text().splitlines()))


def parse(lines: Iterable[str]) -> Iterator[Event]:
    for line in lines:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
