"""Every line names its node; JSON for machines, text for people."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from node.config.node import LoggingConfig
from node.runtime.logs import configure_logging


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    before = structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.configure(**before)


def test_json_lines_hold_event_fields_level_and_node(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LoggingConfig(format="json"), "node-7")

    structlog.get_logger("parts").info("part_started", part="http")
    logging.getLogger("raft").warning("group %s stopped", "g")

    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["event"], first["part"], first["level"]) == ("part_started", "http", "info")
    assert (second["event"], second["level"]) == ("group g stopped", "warning")
    assert first["node"] == second["node"] == "node-7"
    assert first["timestamp"].endswith("Z")


def test_people_get_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LoggingConfig(format="human"), "node-7")

    structlog.get_logger("parts").error("it_broke", why="disk")

    line = capsys.readouterr().err
    assert "[error" in line and "it_broke" in line and "why=disk" in line


def test_below_the_level_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LoggingConfig(level="warning", format="json"), "node-7")

    structlog.get_logger("parts").info("quiet")

    assert capsys.readouterr().err == ""
