"""The permutation test tells a longer window from a noisy one."""

from __future__ import annotations

import math
import random

import pytest

from tests.chaos.permutation import compare, p_value


def test_of_few_pairs_all_ways_are_counted() -> None:
    assert p_value([1.0, 1.0, 1.0]) == pytest.approx(1 / 8)
    assert p_value([1.0, 2.0, -4.0]) == pytest.approx(5 / 8)
    assert p_value([-1.0, -1.0]) == 1.0


def test_pairs_without_any_difference_show_nothing() -> None:
    assert p_value([0.0] * 5) == 1.0
    assert p_value([0.0] * 50) == 1.0


def test_noise_of_both_windows_is_no_difference() -> None:
    found = [_p(seed, longer_s=0.0) for seed in range(20)]

    assert sum(p <= 0.01 for p in found) <= 1
    assert sum(p <= 0.5 for p in found) >= 5


def test_windows_that_are_longer_by_their_own_noise_are_found() -> None:
    assert all(_p(seed, longer_s=0.04) < 0.01 for seed in range(10))


def test_windows_that_are_shorter_are_no_objection() -> None:
    assert all(_p(seed, longer_s=-0.04) > 0.5 for seed in range(10))


def test_the_same_pairs_have_the_same_p() -> None:
    assert _p(1, 0.005) == _p(1, 0.005)


def test_the_median_is_of_differences_not_the_difference_of_medians() -> None:
    found = compare([(0.05, 0.01), (0.02, 0.01), (0.01, 0.09)])

    assert (found.pairs, found.median) == (3, pytest.approx(0.01))


def test_nothing_is_known_of_no_pairs() -> None:
    found = compare([])

    assert found.pairs == 0 and math.isnan(found.p) and math.isnan(found.median)


def _p(seed: int, longer_s: float) -> float:
    rng = random.Random(seed)
    pairs = [(rng.expovariate(50) + longer_s, rng.expovariate(50)) for _ in range(40)]
    return compare(pairs).p
