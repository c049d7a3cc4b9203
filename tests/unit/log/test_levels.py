"""What a node may write, and with whom it can belong to one cluster."""

from __future__ import annotations

import pytest

from log.levels import Levels, NotFinished, Spoken


def test_what_came_with_a_level_is_not_written_before_it_is_finished() -> None:
    levels = Levels(1, 2)

    assert not levels.speaks(2)
    with pytest.raises(NotFinished, match="needs level 2, and the cluster has finished level 1"):
        levels.require(2)

    levels.applied(2)

    assert levels.speaks(2)
    levels.require(2)


def test_level_that_only_peers_know_is_kept_and_nothing_of_it_written() -> None:
    kept: list[int] = []
    levels = Levels(1, 2, keep=lambda level: kept.append(level) or True)

    levels.learn(2)

    assert (kept, levels.known, levels.speaks(2)) == ([2], 2, False)


def test_level_is_kept_before_it_is_told_and_once() -> None:
    events: list[str] = []
    levels = Levels(1, 3, keep=lambda level: events.append(f"kept {level}") or True)
    levels.on_known = lambda: events.append(f"told {levels.known}")

    for level in (1, 2, 2, 1):
        levels.applied(level)

    assert events == ["kept 1", "told 1", "kept 2", "told 2"]


def test_level_that_could_not_be_kept_is_tried_again() -> None:
    answers = [False, True]
    levels = Levels(1, 2, keep=lambda _level: answers.pop(0))

    levels.applied(2)
    levels.applied(2)

    assert answers == []
    assert levels.known == 2


def test_node_learns_that_it_is_outdated() -> None:
    levels = Levels(1, 1)

    levels.learn(2)

    assert "speaks level 1, and the cluster has finished level 2" in levels.problem


@pytest.mark.parametrize(
    ("mine", "peer", "refused"),
    [
        (Levels(1, 2), Spoken(1, 1), False),
        (Levels(1, 2, known=1), Spoken(1, 1), False),
        (Levels(1, 2, known=2), Spoken(1, 1), True),
        (Levels(1, 2, known=2), Spoken(2, 5), False),
        (Levels(1, 2, known=2), Spoken(3, 5), True),
        (Levels(1, 1), Spoken(1, 2, 2), True),
        (Levels(1, 1), Spoken(2, 2), True),
    ],
)
def test_both_must_speak_the_finished_level(mine: Levels, peer: Spoken, refused: bool) -> None:
    assert (mine.refusal("node-2", peer) is not None) is refused


def test_version_that_is_too_new_is_told_so() -> None:
    refused = Levels(1, 2, known=2).refusal("node-2", Spoken(3, 5))

    assert refused is not None
    assert "run an older version, and finish a higher level first" in refused
