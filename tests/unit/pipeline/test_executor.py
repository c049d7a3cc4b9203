"""A pod that Spark's driver makes becomes the Java process that the driver asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipeline.executor import BACKEND, MEMORY, OPTIONS, command, register

ASKED = {name: f"value of {name}" for name in OPTIONS.values()} | {MEMORY: "2g"}
HOME = Path("/opt/spark")


def test_every_variable_becomes_its_option_and_memory_is_held_from_the_start() -> None:
    words = command(ASKED, HOME)

    assert words[0] == "java"
    assert words[1:3] == ["-Xms2g", "-Xmx2g"]
    assert words[words.index("-cp") + 1 :][:2] == ["/opt/spark/jars/*", BACKEND]
    for option, name in OPTIONS.items():
        assert words[words.index(option) + 1] == ASKED[name]


def test_options_of_java_come_in_their_order_with_blanks_in_them() -> None:
    options = {"SPARK_JAVA_OPT_10": "-Dlast=1", "SPARK_JAVA_OPT_2": "-Da=b c", "SPARK_JAVA": "no"}

    words = command(ASKED | options | {"JAVA_HOME": "/jdk"}, HOME)

    assert words[:3] == ["/jdk/bin/java", "-Da=b c", "-Dlast=1"]


def test_whoever_is_no_driver_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ASKED, "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    app = typer.Typer()
    register(app)

    found = CliRunner().invoke(app, [])

    assert found.exit_code == 2
    assert "Spark's driver starts executors by itself" in found.output
