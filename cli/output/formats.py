"""What a command prints: tables for people, JSON lines for pipes, YAML for files.

One format is chosen per run: what `-o` says, else `table` on a terminal and `json` in a pipe.
Tables are plain columns two spaces apart under upper-case headers; `wide` adds columns and cuts
nothing. `json` is one object a line for lists and streams, so that it can be read while it grows;
a lone object is indented on a terminal. Colours come and go with the terminal and `NO_COLOR`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size

from cli.output import terminal
from cli.output.terminal import visible

CELL_CHARS_MAX = 50
BINARY_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
Row = Mapping[str, Any]


class Format(StrEnum):
    """What `-o` takes."""

    table = "table"
    json = "json"
    yaml = "yaml"
    wide = "wide"


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: its header, and the cell as text from a row (a key or a function)."""

    header: str
    cell: str | Callable[[Row], object]
    wide: bool = False
    whole: bool = False
    """Never cut."""

    def text(self, row: Row) -> str:
        value = row.get(self.cell) if isinstance(self.cell, str) else self.cell(row)
        return cell_text(value)


class Output:
    """Prints a command's answer in the chosen format to standard output."""

    def __init__(self, chosen: Format | None = None, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.is_terminal = self.stream.isatty()
        self.format = chosen or (Format.table if self.is_terminal else Format.json)
        self._widths: list[int] | None = None

    @property
    def is_table(self) -> bool:
        return self.format in (Format.table, Format.wide)

    @property
    def is_wide(self) -> bool:
        return self.format is Format.wide

    def rows(self, columns: Sequence[Column], rows: Sequence[Row], empty: str = "") -> None:
        """A whole list; `empty` is what a person reads when there is nothing in it."""
        if self.is_table:
            if rows:
                self._table(columns, rows, header=True)
            elif empty:
                self.line(empty)
        elif self.format is Format.yaml:
            self._write(self._yaml([dict(row) for row in rows]))
        else:
            self._write("".join(self._json_line(row) for row in rows))

    def stream_rows(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """The next rows of a list that comes in pieces; call it as often as needed."""
        if not rows:
            return
        if self.is_table:
            self._table(columns, rows, header=self._widths is None)
        elif self.format is Format.yaml:
            self._write("".join("---\n" + self._yaml(dict(row)) for row in rows))
        else:
            self._write("".join(self._json_line(row) for row in rows))

    def detail(self, record: Row, show: Callable[[], None]) -> None:
        """One object: `show` prints it for people, other formats print `record` whole."""
        if self.is_table:
            show()
        else:
            self.record(record)

    def record(self, record: Row) -> None:
        if self.format is Format.yaml:
            self._write(self._yaml(dict(record)))
        elif self.is_terminal:
            text = json.dumps(record, ensure_ascii=False, indent=2)
            self._write(terminal.visible_json(text) + "\n")
        else:
            self._write(self._json_line(record))

    def record_line(self, record: Row) -> None:
        """One of a stream of objects."""
        if self.format is Format.yaml:
            self._write("---\n" + self._yaml(dict(record)))
        else:
            self._write(self._json_line(record))

    def success(self, text: str, record: Row) -> None:
        """`✓ text` for people; the record for programs."""
        if self.is_table:
            terminal.write_marked(self.stream, ("✓ ", "green"), text)
        else:
            self.record(record)

    def line(self, text: str = "", style: str = "") -> None:
        if style:
            terminal.write_marked(self.stream, (text, style), "")
        else:
            self._write(text + "\n")

    def fields(self, pairs: Sequence[tuple[str, object]]) -> None:
        """`Name:   value` lines, values aligned."""
        width = max(len(name) for name, _ in pairs) + 2
        for name, value in pairs:
            self.line(f"{name + ':':<{width}}{visible(cell_text(value))}".rstrip())

    def clear(self) -> None:
        """An empty screen; only of a terminal."""
        terminal.clear(self.stream)

    def table(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """A table inside an answer for people, whatever the format."""
        self._table(columns, rows, header=True)
        self._widths = None

    def _table(self, columns: Sequence[Column], rows: Sequence[Row], *, header: bool) -> None:
        shown = [column for column in columns if self.is_wide or not column.wide]
        cells = [[self._cut(column.text(row), column.whole) for column in shown] for row in rows]
        widths = self._widths if self._widths and not header else [len(c.header) for c in shown]
        for line in cells:
            widths = [max(width, cell_len(cell)) for width, cell in zip(widths, line, strict=True)]
        self._widths = widths
        if header:
            self.line(_columns([column.header for column in shown], widths), style="bold")
        self._write("".join(_columns(line, widths) + "\n" for line in cells))

    def _cut(self, cell: str, whole: bool) -> str:
        text = visible(" ".join(cell.split("\n")))
        if whole or self.is_wide or cell_len(text) <= CELL_CHARS_MAX:
            return text
        return set_cell_size(text, CELL_CHARS_MAX - 3) + "..."

    def _json_line(self, row: Row) -> str:
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        return (terminal.visible_json(text) if self.is_terminal else text) + "\n"

    def _yaml(self, value: object) -> str:
        import yaml  # only who asks for it waits for the import

        text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
        if self.is_terminal and terminal.hides(text):
            text = yaml.safe_dump(value, sort_keys=False)  # quotes what it escapes
        return text

    def _write(self, text: str) -> None:
        terminal.write(self.stream, text)


def cell_text(value: object) -> str:
    """A value as people read it: `-` for nothing, yes/no for truth, commas for lists."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value) or "-"
    return str(value)


def bytes_text(count: int) -> str:
    """`512 B`, `1.5 MiB`."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(BINARY_UNITS))
    return f"{count / 1024**power:.1f} {BINARY_UNITS[power - 1]}"


def duration_text(milliseconds: float) -> str:
    """`168h`, `90m`, `1.5s`, `20ms`: the largest unit that divides evenly, else seconds."""
    whole = int(milliseconds)
    if whole == milliseconds and whole > 0:
        for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
            if whole % size == 0:
                return f"{whole // size}{unit}"
    return f"{milliseconds / 1000:g}s" if milliseconds >= 1000 else f"{milliseconds:g}ms"


def age_text(milliseconds: float) -> str:
    """`0s`, `20ms`, `1.5s`, `1h2m3s`: how long something takes, or has waited."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f}ms" if milliseconds else "0s"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f}".removesuffix(".0") + "s"
    minutes, seconds = divmod(int(milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s"


def time_of(time_ms: int) -> str:
    """`2025-01-15T10:30:00.000Z`, as the servers write times."""
    stamp = datetime.fromtimestamp(time_ms / 1000, UTC)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def now_text() -> str:
    """The present, on this machine's clock."""
    return time_of(time.time_ns() // 1_000_000)


def count_text(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()
