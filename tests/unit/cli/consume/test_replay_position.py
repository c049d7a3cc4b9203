"""A group's place in a replay is kept in a file, and only its own counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.consume.replay import snapshot_ms
from cli.consume.replay_position import ReplayPosition
from cli.output.errors import CliError
from tests.unit.cli.conftest import Shell


def test_what_was_printed_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where.json"
    first = ReplayPosition(path, "audit", "orders", "ab-1")
    first.first, first.from_ms = 5, 1000
    first.passed(1, 41)
    first.save()

    again = ReplayPosition(path, "audit", "orders", "ab-1")
    assert again.load()
    assert (again.offset(1), again.offset(0), again.from_ms) == (42, 5, 1000)
    assert [one.name for one in path.parent.iterdir()] == ["where.json"]


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    assert not ReplayPosition(tmp_path / "none", "audit", "orders", "ab-1").load()


@pytest.mark.parametrize("content", [b"{", b'{"group": 1}', b'{"group":"g","topic":"t"}'])
def test_a_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(CliError, match=r"broken\.json"):
        ReplayPosition(path, "audit", "orders", "ab-1").load()


def test_another_groups_or_topics_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    ReplayPosition(path, "audit", "orders", "ab-1").save()
    for group, topic, topic_id in (
        ("other", "orders", "ab-1"),
        ("audit", "bills", "ab-1"),
        ("audit", "orders", "ab-2"),
    ):
        with pytest.raises(CliError, match=r"is of group audit in orders \(ab-1\)"):
            ReplayPosition(path, group, topic, topic_id).load()


def test_a_snapshot_is_a_day_in_utc_or_a_time() -> None:
    assert snapshot_ms("2025-01-01") == snapshot_ms("2025-01-01T00:00:00Z") == 1_735_689_600_000
    assert snapshot_ms("1735689600000") == 1_735_689_600_000
    with pytest.raises(CliError, match="--from-snapshot"):
        snapshot_ms("last year")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--include-deleted", "--group", "g", "--no-ack"), "can only be read"),
        (("--include-deleted", "--from-latest"), "can only be read"),
        (("--topic-id", "ab-1"), "--topic-id needs --include-deleted"),
        (("--include-deleted", "--position", "here"), "--position needs --group"),
        (("--from-snapshot", "2025-01-01", "--from-beginning"), "exclude each other"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    shell: Shell, words: tuple[str, ...], told: str
) -> None:
    result = shell.run("consume", "t", *words)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_context_says_where_the_archive_is(shell: Shell) -> None:
    shell.ok("config", "set-context", "prod", "--archive", "s3://lake/goqueue")
    assert "s3://lake/goqueue" in shell.ok("config", "view", "-o", "json")
    shell.ok("config", "set-context", "prod", "--timeout", "5")
    assert "s3://lake/goqueue" in shell.ok("config", "view", "-o", "json")
