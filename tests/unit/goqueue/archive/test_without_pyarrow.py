"""Archives need pyarrow; whoever has none is told how to get it, and nothing else asks for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from goqueue.archive.arrow_store import ArrowStore, ExtraMissing


def test_opening_an_archive_without_pyarrow_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'goqueue\[archive\]'"):
        ArrowStore("/nowhere")


def test_importing_the_reader_and_the_command_line_does_not_import_pyarrow() -> None:
    code = (
        "import sys, cli.consume.command, cli.consume.replay;"
        "import goqueue.archive.replay, goqueue.api.client;"
        "sys.exit('pyarrow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
