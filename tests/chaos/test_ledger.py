"""Several storms counted together, and what runs add up to."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.storm import fleet, ledger
from tests.chaos.storm.kinds import COMBINED, SINGLE
from tests.chaos.storm.round import Judgement, Load
from tests.chaos.storm.score import Row, Score
from tests.chaos.storm.tally import ACKED, Tally, begun
from tests.check import logcheck, queuecheck
from tests.check.history import Event

ALL = (*SINGLE, *COMBINED)


# -- several at once


def test_rows_of_a_tally_add_up_and_none_writes_anothers(tmp_path: Path) -> None:
    path = tmp_path / "tally"
    Tally.make(path, ["kill", "pause"], 3)
    first, last = (Tally(["kill", "pause"], path, row) for row in (0, 2))

    first.put("kill", 4)
    last.put("kill", 1 << 40)
    last.put(begun("kill"), 1)
    last.put(ACKED, 7)
    first.put("kill", 5)

    for tally in (first, last, Tally(["kill", "pause"], path)):
        assert tally.total("kill") == 5 + (1 << 40)
        assert tally.done("kill") == 6 + (1 << 40)
        assert (tally.total("pause"), tally.total(ACKED)) == (0, 7)


def test_each_storm_of_a_fleet_has_a_seed_of_its_own_that_follows_from_the_runs() -> None:
    options = argparse.Namespace(
        nemesis="all", each=200, acked=10, minutes=None, nodes=3, rate=150.0, elastic=0,
        clusters=4, round_seconds=60.0, loopback=True, protocols="",
    )  # fmt: skip

    told = [fleet.arguments(options, 7001, part) for part in (1, 2, 1)]

    assert told[0] == told[2]
    assert told[0][told[0].index("--seed") + 1] != told[1][told[1].index("--seed") + 1]
    assert told[0][-1] == "--loopback" and "--elastic" not in told[0] and "--minutes" not in told[0]
    assert told[1][told[1].index("--each") + 1] == "200"


def test_scores_of_storms_are_told_and_merged_without_loss() -> None:
    def score(acked: int, gap_s: float) -> Score:
        made = Score(skipped={"loss": "no nft"}, acked=acked, violations=[f"L1: {acked}"])
        made.rows["kill"] = Row(2, 1, [gap_s], [0.5], [3.0])
        made.settles["acked"] = made.errors["no answer"] = acked
        made.restarts.append("node-1")
        return made

    merged = Score()
    for one in (score(3, 0.25), score(4, math.inf)):
        merged.merge(Score.load(json.loads(json.dumps(one.dump()))))

    assert (merged.acked, merged.settles["acked"], merged.errors["no answer"]) == (7, 7, 7)
    assert merged.rows["kill"] == Row(4, 2, [0.25, math.inf], [0.5, 0.5], [3.0, 3.0])
    assert merged.violations == ["L1: 3", "L1: 4"]
    assert merged.restarts == ["node-1"] * 2
    assert merged.skipped == {"loss": "no nft"}
    assert merged.rows["pause"].shown == 0


def test_faults_of_a_round_that_was_not_judged_to_the_end_do_not_count() -> None:
    struck: Event = {
        "type": "fault", "fault": "kill", "nodes": ["n"], "partitions": [], "at": 10.0,
        "until": 11.0, "effect": "killed", "healthy_s": 1.0,
    }  # fmt: skip
    verdict = logcheck.Verdict([], acked=5, two_values=1)
    judged = Judgement(verdict, queuecheck.Verdict([]), Counter(), [struck])
    score = Score()
    for _ in range(2):
        score.add_fault(struck)
    score.add_round(judged)

    score.add_round(judged, is_whole=False)

    assert (score.rows["kill"].shown, score.rows["kill"].asked, score.unjudged) == (1, 2, 1)
    assert (score.acked, score.two_values) == (5, 2)


def test_a_rate_slows_all_clients_in_one_proportion() -> None:
    usual, slower = Load(), Load.of_rate(120)

    assert Load.of_rate(1200) == usual
    assert slower.pace_s / usual.pace_s == pytest.approx(10)
    assert slower.queue_pace_s / usual.queue_pace_s == pytest.approx(10)
    assert usual.sample_pause_s < slower.sample_pause_s <= 1


# -- the ledger


def options(path: Path) -> argparse.Namespace:
    return argparse.Namespace(ledger=path, clusters=2)


def enough(each: int = 100, acked: int = 500_000) -> Score:
    score = Score(acked=acked)
    for kind in ALL:
        score.rows[kind] = Row(each + 1, each, [0.1, math.inf], [1.0], [2.0])
    return score


def test_runs_add_up_to_the_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger.write(options(path), 1, enough(), [], 40.0, 4)

    assert ledger.print_sum(path, 0, 0) == 4
    assert "lacking: 100 kill, 100 transfer" in capsys.readouterr().out
    assert ledger.print_sum(path, 100, 500_000) == 0
    ledger.write(options(path), 2, enough(), [], 41.0, 4)
    assert ledger.print_sum(path, 0, 0) == 0

    told = capsys.readouterr().out
    assert "enough of everything" in told
    assert told.count("nothing lost") == 3
    one = json.loads(path.read_text().splitlines()[0])
    assert one["gaps_s"]["kill"] == {"count": 2, "p50": 0.1, "p99": None, "max": None}
    assert len(one["commit"]) == 40


def test_a_run_that_was_not_clean_stays_in_the_sum(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for seed in (1, 2, 3):
        ledger.write(options(path), seed, enough(), [], 40.0, 0)

    ledger.write(options(path), 4, enough(), ["not healthy within 120 s"], 40.0, 2)
    assert ledger.print_sum(path, 0, 0) == 2
    broken = enough()
    broken.two_values = 1
    ledger.write(options(path), 5, broken, [], 40.0, 1)
    assert ledger.print_sum(path, 0, 0) == 1


def test_faults_of_a_lesser_form_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    lesser = enough(200, 1_000_000)
    lesser.skipped["partition in full"] = "not root"

    ledger.write(options(path), 1, lesser, [], 40.0, 0)

    entries = [json.loads(path.read_text())]
    assert list(ledger.lacking(entries, 200, 1_000_000)) == ["200 partition"]
