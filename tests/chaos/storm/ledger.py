"""The ledger of storms: one JSON line a run, whatever became of it, and what the lines add up to.

`python -m tests.chaos --sum FILE` tells every run, and whether all of them together reach the bar
of a release. A run with a violation, a finding or a failure stays in the sum: it is not clean then.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos.cluster import ROOT
from tests.chaos.report import quantile
from tests.chaos.storm.kinds import COMBINED, SINGLE
from tests.chaos.storm.score import Score

EACH = 200
ACKED = 1_000_000
MUST_BE_ZERO = ("lost", "twice", "two_values", "violations", "findings")

Entry = dict[str, Any]


def write(
    options: argparse.Namespace,
    seed: int,
    score: Score,
    failures: Sequence[str],
    minutes: float,
    code: int,
) -> None:
    """Adds this run's line, where one is asked for."""
    if options.ledger is None:
        return
    path: Path = options.ledger
    found = entry(score, failures)
    found |= {"seed": seed, "clusters": options.clusters, "minutes": round(minutes, 1)}
    found |= {"exit": code, "command": " ".join(["python -m tests.chaos", *sys.argv[1:]])}
    found |= {"ended": datetime.now(UTC).isoformat(timespec="seconds"), **_commit()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(found, sort_keys=True) + "\n")


def entry(score: Score, failures: Sequence[str]) -> Entry:
    """What is told of a score."""
    rows = sorted(score.rows.items())
    return {
        "shown": {kind: row.shown for kind, row in rows},
        "asked": {kind: row.asked for kind, row in rows},
        "skipped": score.skipped,
        "unjudged": score.unjudged,
        "acked": score.acked,
        "lost": score.lost,
        "twice": score.twice,
        "two_values": score.two_values,
        "violations": len(score.violations),
        "findings": len(score.findings),
        "failures": list(failures),
        "gaps_s": {kind: _spread(row.gaps_s) for kind, row in rows},
        "held_s": {kind: _spread(row.held_s) for kind, row in rows},
        "healed_s": {kind: _spread(row.healed_s) for kind, row in rows},
    }


def _spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """Percentiles; null where one never came."""
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {name: quantile(values, share) for name, share in shares.items()}
    told = {name: round(one, 3) if math.isfinite(one) else None for name, one in found.items()}
    return {"count": len(values), **told}


def _commit() -> dict[str, Any]:
    """Of the code that is run; `dirty` where files differ from it."""
    told = [
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        for words in (("rev-parse", "HEAD"), ("status", "--porcelain"))
    ]
    if any(one.returncode for one in told):
        return {"commit": "unknown", "dirty": True}
    return {"commit": told[0].stdout.strip(), "dirty": bool(told[1].stdout.strip())}


def print_sum(path: Path, each: int, acked: int) -> int:
    """Tells every run and the sum. Exit status: 0 the bar is reached, 1 a promise was broken in
    some run, 2 a cluster failed, 4 there is not enough yet."""
    entries = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    for line in lines(entries, each or EACH, acked or ACKED):
        print(line)
    if any(one[name] for one in entries for name in MUST_BE_ZERO):
        return 1
    if any(one["failures"] for one in entries):
        return 2
    return 4 if list(lacking(entries, each or EACH, acked or ACKED)) else 0


def lines(entries: Sequence[Entry], each: int, acked: int) -> Iterator[str]:
    for one in entries:
        yield _line(one)
    shown = counts(entries)
    yield f"{'fault':15} {'shown':>6}   of {each}"
    for kind, count in sorted(shown.items()):
        yield f"{kind:15} {count:6}"
    yield f"acked                 {sum(one['acked'] for one in entries)}   of {acked}"
    for name in MUST_BE_ZERO:
        yield f"{name:21} {sum(one[name] for one in entries)}   (must be 0)"
    yield f"clusters that failed  {sum(len(one['failures']) for one in entries)}   (must be 0)"
    lacks = list(lacking(entries, each, acked))
    yield f"lacking: {', '.join(lacks)}" if lacks else "enough of everything"


def counts(entries: Sequence[Entry]) -> Counter[str]:
    """Faults shown, by kind. Those of a lesser form, for want of what it takes, do not count."""
    found: Counter[str] = Counter(dict.fromkeys([*SINGLE, *COMBINED], 0))
    for one in entries:
        for kind, count in one["shown"].items():
            found[kind] += 0 if f"{kind} in full" in one["skipped"] else count
    return found


def lacking(entries: Sequence[Entry], each: int, acked: int) -> Iterator[str]:
    shown = counts(entries)
    for kind in (*SINGLE, *COMBINED):
        if shown[kind] < each:
            yield f"{each - shown[kind]} {kind}"
    missing = acked - sum(one["acked"] for one in entries)
    if missing > 0:
        yield f"{missing} acked sends"


def _line(one: Entry) -> str:
    commit = one["commit"][:7] + (" with changes" if one["dirty"] else "")
    bad = {name: one[name] for name in MUST_BE_ZERO if one[name]}
    said = f"NOT CLEAN: {bad}" if bad else "nothing lost"
    return (
        f"{one['ended']} at {commit}, seed {one['seed']}, clusters {one['clusters']}, "
        f"{one['minutes']} min: {sum(one['shown'].values())} faults shown, {one['acked']} acked, "
        f"{said}, {len(one['failures'])} failed, exit {one['exit']}: {one['command']}"
    )
