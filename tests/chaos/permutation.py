"""Whether one of two windows of every pair is longer than chance makes it."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

EXACT_MAX = 12
ROUNDS = 10_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """Pairs of (with a change, without one): `p` is how often chance alone makes the first ones
    longer by as much, `median` the median of the differences."""

    pairs: int
    p: float
    median: float


def compare(pairs: Sequence[tuple[float, float]], seed: int = 1) -> Comparison:
    """One-sided: only what makes the first ones longer counts. NaN of no pairs."""
    differences = [first - second for first, second in pairs]
    if not differences:
        return Comparison(0, math.nan, math.nan)
    return Comparison(len(pairs), p_value(differences, seed), statistics.median(differences))


def p_value(differences: Sequence[float], seed: int = 1) -> float:
    """Of the paired permutation test: the share of all ways to swap the two of each pair that have
    a sum of differences as large as this one.

    All ways where they are few, else a sample of them, this one included (Phipson and Smyth 2010),
    so that it is never 0.
    """
    observed = math.fsum(differences)
    slack = 1e-9 * math.fsum(map(abs, differences))
    if len(differences) <= EXACT_MAX:
        sums = [
            math.fsum(sign * one for sign, one in zip(signs, differences, strict=True))
            for signs in product((1, -1), repeat=len(differences))
        ]
        return sum(one >= observed - slack for one in sums) / len(sums)
    rng = random.Random(seed)
    as_large = 1
    for _ in range(ROUNDS):
        signs = rng.getrandbits(len(differences))
        total = math.fsum(one if signs >> at & 1 else -one for at, one in enumerate(differences))
        as_large += total >= observed - slack
    return as_large / (ROUNDS + 1)
