"""`goqueue-cli trace`: a noun whose verb may be left out."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Shell


@pytest.fixture
def topic(shell: Shell) -> Shell:
    shell.ok("topic", "create", "t", "--partitions", "3")
    return shell


def test_the_verb_may_be_left_out(topic: Shell) -> None:
    topic.ok("produce", "t", "-m", "x", "-p", "2")

    assert topic.ok("trace", "t:2:0") == topic.ok("trace", "show", "t:2:0")
    assert topic.ok("trace", "-o", "json", "t:2:0") == topic.ok("trace", "t:2:0", "-o", "json")


def test_two_dashes_make_an_id_of_what_is_named_like_a_verb(topic: Shell) -> None:
    as_id = topic.run("trace", "--", "show")

    assert as_id.exit_code == 2
    assert "'show'" in as_id.stderr


def test_help_is_of_the_noun_and_names_its_verbs(topic: Shell) -> None:
    told = topic.ok("trace", "--help")

    assert "show" in told
    assert topic.run("trace").exit_code == 2
