"""Estimates from shuffled reports: intervals that cover, guarantees that are the profile's, JSON both ways, and the edges."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from metricshuffle.accounting.blanket.bound import BlanketProfile
from metricshuffle.errors import DomainError, InputError, NotCertified, PlanError
from metricshuffle.queries.histogram import FrequencyEstimate, Histogram, frequency_estimate, shuffled_profile
from metricshuffle.randomizers import BoundedGeometric, Channel, KaryRandomizedResponse, PlanarGeometric, Randomizer
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Grid, Integers, Interval

SOURCE = Randomness.seeded("histograms")


def estimate(kind: Randomizer, people: list[int], source: Randomness = SOURCE, distance: float = 1.0) -> FrequencyEstimate:
    codes = np.repeat(np.arange(len(people)), people)
    return frequency_estimate(kind, kind.reports(kind.values_of(codes), source), delta=1e-6, distance=distance)


@pytest.mark.parametrize(
    ("kind", "people"),
    [
        (KaryRandomizedResponse(4, 1.5), [300, 60, 40, 0]),
        (BoundedGeometric(3, 1.5), [0, 10, 20, 270]),
        (PlanarGeometric(2, 2, 2.0), [100, 50, 0, 150]),
    ],
)
def test_intervals_cover_what_they_say(kind: Randomizer, people: list[int]) -> None:
    source, runs = Randomness.seeded(f"coverage {kind}"), 150
    truth, cells = np.array(people) / sum(people), len(people)
    each, together, bernstein, sample = np.zeros(cells), 0, 0, []
    codes, first = np.repeat(np.arange(cells), people), estimate(KaryRandomizedResponse(2, 1.0), [1, 0])
    for _ in range(runs):
        counts = kind.counts(kind.reports(kind.values_of(codes), source))
        found = FrequencyEstimate.of(kind, counts, first.guarantee, first.if_shuffler_colludes)
        sample.append(found.frequencies)
        for name in ("each", "together", "bernstein"):
            method = "bernstein" if name == "bernstein" else "normal"
            low, high = found.intervals(0.9, simultaneous=name != "each", method=method).T  # type: ignore[arg-type]
            inside = (low <= truth) & (truth <= high)
            each += inside if name == "each" else 0
            together += bool(inside.all()) and name == "together"
            bernstein += bool(inside.all()) and name == "bernstein"
    slack = 4.0 * math.sqrt(0.09 / runs)
    assert np.all(each / runs >= 0.9 - slack)
    assert np.all(each / runs <= 0.999)
    assert together / runs >= 0.9 - slack
    assert bernstein / runs >= 0.9 - slack
    spread = np.std(sample, axis=0)
    assert np.array(found.standard_errors) == pytest.approx(spread, rel=0.3)
    assert np.abs(np.mean(sample, axis=0) - truth).max() <= 5.0 * spread.max() / math.sqrt(runs)


def test_the_guarantee_is_the_profiles_answer() -> None:
    kind = KaryRandomizedResponse(4, 2.0)
    found = estimate(kind, [400, 300, 200, 100])
    profile = BlanketProfile(kind.blankets, 1000)
    assert found.guarantee.epsilon == profile.epsilon(1e-6, 1.0)
    assert profile.delta(found.guarantee.epsilon, 1.0) <= 1e-6
    assert found.guarantee.trust.honest_reports == 1000
    assert found.guarantee.bound == "blanket"
    assert found.if_shuffler_colludes.epsilon == kind.local_epsilon()
    assert found.guarantee.epsilon < 0.5 * found.if_shuffler_colludes.epsilon
    fewer = frequency_estimate(kind, np.zeros(1000, dtype=np.int64), delta=1e-6, honest=500)
    assert fewer.guarantee.epsilon == BlanketProfile(kind.blankets, 500).epsilon(1e-6, 1.0) > found.guarantee.epsilon


def test_lines_and_grids_use_one_law_per_displacement() -> None:
    line = BoundedGeometric(5, 0.4)
    exact = BlanketProfile(line.blankets, 2000).epsilon(1e-6, 2.0)
    found = estimate(line, [500, 500, 300, 300, 200, 200], distance=2.0)
    assert exact * (1 - 1e-6) <= found.guarantee.epsilon <= 1.5 * exact
    grid = PlanarGeometric(3, 2, 0.01, cell=100.0)
    assert shuffled_profile(grid, 10).pure(100.0) == pytest.approx(1.0 / math.sqrt(2.0))


def test_json_both_ways() -> None:
    for kind, people in ((PlanarGeometric(2, 3, 1.0), [5, 6, 7, 8, 9, 10]), (Channel([[0.8, 0.2], [0.3, 0.7]]), [30, 20])):
        found = estimate(kind, people)
        again = FrequencyEstimate.from_json(found.to_json())
        assert again.to_json() == found.to_json()
        assert np.array_equal(again.intervals(), found.intervals())
        assert str(again) == str(found)
    for text in ("{", "[]", json.dumps({**json.loads(found.to_json()), "randomizer": {"kind": "magic"}}), '{"format": "other"}'):
        with pytest.raises((PlanError, InputError), match=r"\.$"):
            FrequencyEstimate.from_json(text)


def test_one_report_of_two_categories() -> None:
    found = frequency_estimate(KaryRandomizedResponse(2, 1.0), np.array([1]), delta=1e-6)
    assert sum(found.frequencies) == pytest.approx(1.0)
    assert found.frequencies[1] > 1.0  # unbiased, and impossible
    assert found.projected == (0.0, 1.0)
    assert found.likeliest[1] == pytest.approx(1.0, abs=0.02)  # within a hundredth of a nat
    assert found.intervals().tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert found.guarantee.epsilon == pytest.approx(1.0, rel=1e-5)  # nobody to hide among
    assert "mostly noise" in found.warning


def test_warnings_are_words_in_a_field() -> None:
    few = estimate(BoundedGeometric(9, 0.1), [10] * 10)
    assert "one report count for up to" in few.warning
    assert few.warning in str(few)
    many = estimate(KaryRandomizedResponse(4, 3.0), [2000, 1000, 500, 500])
    assert many.warning == ""
    assert many.condition == pytest.approx(np.abs(KaryRandomizedResponse(4, 3.0).debiasing()).sum(axis=1).max())


def test_wrong_input_is_told() -> None:
    kind = KaryRandomizedResponse(3, 1.0)
    with pytest.raises(DomainError, match="report 1 "):
        frequency_estimate(kind, np.array([0, 3]), delta=1e-6)
    with pytest.raises(NotCertified, match="condition number"):
        frequency_estimate(Channel([[0.5, 0.5], [0.5, 0.5]]), np.array([0, 1]), delta=1e-6)
    with pytest.raises(InputError, match="honest must be"):
        frequency_estimate(kind, np.array([0, 1]), delta=1e-6, honest=3)
    found = frequency_estimate(kind, np.array([0, 1]), delta=1e-6)
    with pytest.raises(InputError, match="level"):
        found.intervals(1.0)
    with pytest.raises(InputError, match="method"):
        found.intervals(method="exact")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one number for each"):
        FrequencyEstimate.of(kind, np.array([1, 2]), found.guarantee, found.if_shuffler_colludes)


def test_codes_and_labels_of_each_domain() -> None:
    grid = Histogram(Grid(4, 3, 50.0, "m"))
    assert grid.codes([(0, 0), (3, 0), (1, 2)]).tolist() == [0, 3, 9]
    assert [grid.label(9), grid.unit, grid.between, grid.step] == ["(1, 2)", "m", "cells", 50.0]
    kind = PlanarGeometric(4, 3, 1.0)
    assert kind.codes_of(kind.values_of(np.arange(12))).tolist() == list(range(12))  # the same order as the randomizer's
    line = Histogram(Integers(-2, 3))
    assert line.codes([-2, 3]).tolist() == [0, 5]
    assert line.label(5) == "3"
    assert line.codes([9], clamp=True).tolist() == [5]
    assert Histogram(Categories(["a", "b"])).label(1) == "b"


@pytest.mark.parametrize("domain", [Interval(0, 1), Categories(["one"]), Integers(0, 10**6), Grid(1, 9), Grid(999, 999)])
def test_domains_that_make_no_histogram(domain: Interval | Categories | Integers | Grid) -> None:
    with pytest.raises(InputError, match="Histogram needs"):
        Histogram(domain)
