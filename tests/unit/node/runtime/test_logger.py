"""A node's words in a process that did not set structlog up for them."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from node.runtime.logger import get_logger


@pytest.fixture
def not_configured() -> Iterator[None]:
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("not_configured")
def test_a_programs_standard_output_is_left_alone(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log = get_logger("disks")
    with caplog.at_level(logging.INFO, "goqueue"):
        log.info("disk_filled", free=12, share="7 %")
        log.debug("not_wanted")

    (record,) = caplog.records
    assert (record.name, record.levelname) == ("goqueue.disks", "INFO")
    assert record.getMessage() == "disk_filled free=12 share=7 %"
    assert capsys.readouterr().out == ""
    assert not structlog.is_configured()


@pytest.mark.usefixtures("not_configured")
def test_a_program_that_has_no_logging_sees_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    get_logger("disks").warning("disk_slow")

    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("not_configured")
def test_an_exception_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("the reason")
    except ValueError:
        get_logger("parts").exception("it_broke", part="http")

    (record,) = caplog.records
    assert record.getMessage() == "it_broke part=http"
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError


def test_where_structlog_is_set_up_it_has_the_words() -> None:
    with capture_logs() as told:
        get_logger("parts").warning("part_slow", part="http")

    assert told == [{"event": "part_slow", "part": "http", "log_level": "warning"}]
