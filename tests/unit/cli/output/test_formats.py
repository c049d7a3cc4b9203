"""How answers look in every format."""

from __future__ import annotations

import io
import json

import pytest
import yaml
from rich.cells import cell_len

from cli.output.formats import (
    Column,
    Format,
    Output,
    bytes_text,
    cell_text,
    count_text,
    duration_text,
)

COLUMNS = (Column("NAME", "name"), Column("SIZE", "size"), Column("ZONE", "zone", wide=True))
ROWS = [{"name": "orders", "size": 3, "zone": "a"}, {"name": "o", "size": None, "zone": "b"}]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


def printed(chosen: Format | None, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    Output(chosen, stream).rows(COLUMNS, ROWS)
    return stream.getvalue()


def test_a_table_has_upper_case_headers_and_two_spaces_between_columns() -> None:
    assert printed(Format.table) == "NAME    SIZE\norders  3\no       -\n"


def test_wide_adds_columns() -> None:
    assert printed(Format.wide) == "NAME    SIZE  ZONE\norders  3     a\no       -     b\n"


def test_a_terminal_gets_a_table_and_a_pipe_gets_json_lines() -> None:
    assert printed(None, Terminal()).startswith("NAME")
    assert [json.loads(line) for line in printed(None).splitlines()] == ROWS


def test_yaml_is_one_list() -> None:
    assert yaml.safe_load(printed(Format.yaml)) == ROWS


def test_columns_stand_under_each_other_whatever_the_script() -> None:
    stream = io.StringIO()
    rows = [{"name": "咖啡杯", "size": 1}, {"name": "咖" * 40, "size": 2}]

    Output(Format.table, stream).rows(COLUMNS, rows)

    header, *lines = stream.getvalue().splitlines()
    assert {cell_len(line[:-1]) for line in lines} == {cell_len(header[: header.index("SIZE")])}


def test_an_empty_list_says_so_to_people_only() -> None:
    person, program = Terminal(), io.StringIO()

    Output(None, person).rows(COLUMNS, [], empty="No topics.")
    Output(None, program).rows(COLUMNS, [], empty="No topics.")

    assert person.getvalue() == "No topics.\n"
    assert program.getvalue() == ""


def test_long_cells_are_cut_to_fifty_characters_but_in_wide() -> None:
    row = {"name": "x" * 51, "size": 1}
    cut, whole = io.StringIO(), io.StringIO()

    Output(Format.table, cut).rows(COLUMNS, [row])
    Output(Format.wide, whole).rows(COLUMNS, [row])

    assert "x" * 47 + "...  1" in cut.getvalue()
    assert "x" * 51 in whole.getvalue()


def test_a_streamed_table_has_one_header_and_keeps_its_columns() -> None:
    stream = io.StringIO()
    output = Output(Format.table, stream)

    output.stream_rows(COLUMNS, [ROWS[0]])
    output.stream_rows(COLUMNS, [ROWS[1]])

    assert stream.getvalue() == "NAME    SIZE\norders  3\no       -\n"


def test_markup_in_data_is_printed_as_it_is() -> None:
    stream = io.StringIO()

    Output(Format.table, stream).line("[bold]x[/bold] :smile: http://a/b")

    assert stream.getvalue() == "[bold]x[/bold] :smile: http://a/b\n"


def test_fields_are_aligned() -> None:
    stream = io.StringIO()

    Output(Format.table, stream).fields([("Name", "a"), ("Total Size", None)])

    assert stream.getvalue() == "Name:       a\nTotal Size: -\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (0, "0"),
        ([], "-"),
        (["a", "b"], "a,b"),
        ({"k": "v"}, "k=v"),
    ],
)
def test_cells_read_well(value: object, text: str) -> None:
    assert cell_text(value) == text


def test_sizes_durations_and_counts_read_well() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1024, 1536, 10 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "10.0 GiB",
    ]
    assert [duration_text(n) for n in (20, 1500, 90_000, 604_800_000)] == [
        "20ms",
        "1.5s",
        "90s",
        "168h",
    ]
    assert [count_text(n, "message") for n in (0, 1, 2)] == [
        "0 messages",
        "1 message",
        "2 messages",
    ]
