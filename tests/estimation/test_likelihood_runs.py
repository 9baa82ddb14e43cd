"""Maximum likelihood of many releases at once agrees with each of them alone."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.estimation.inversion import Inversion
from metricshuffle.estimation.likelihood import fit_likelihood
from metricshuffle.estimation.likelihood_batches import MAX_TABLE_POINTS, ReportLaw, fit_likelihoods
from metricshuffle.noise.polya import Polya
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.hadamard_response import HadamardResponse
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import KaryRandomizedResponse
from metricshuffle.simulation.fast_draws import ReportLaws, noise_quantiles, report_laws

RANDOMIZERS = {
    "labels": KaryRandomizedResponse(12, 2.0),
    "hadamard": HadamardResponse(6, 2.0),
    "short line": BoundedGeometric(15, 0.7),
    "long line": BoundedGeometric(MAX_TABLE_POINTS + 8, 0.9),
    "map": PlanarGeometric(5, 4, 1.0),
    "long map": PlanarGeometric(MAX_TABLE_POINTS + 4, 3, 1.5),
}


@check_all("name", RANDOMIZERS)
def test_each_release_gets_what_it_would_alone(name: str) -> None:
    randomizer: Any = RANDOMIZERS[name]
    generator = np.random.default_rng(5)
    rows = Inversion.of(randomizer).rows
    held = generator.multinomial(400, generator.dirichlet(np.full(randomizer.inputs, 0.5)), 6)
    counts = np.stack([report_laws(randomizer).counts(row, generator) for row in held])
    shares = fit_likelihoods(randomizer, counts).shares
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert shares.min() >= 0.0
    for row, reported in zip(shares, counts, strict=True):
        alone = fit_likelihood(
            rows, reported.astype(np.int64), shortfall=1e-9 if name == "labels" else 0.01
        ).frequencies
        # (which of two equally likely steps is taken hangs on the last digit; labels have a
        # formula)
        assert np.abs(row - alone).max() < (1e-4 if name == "labels" else 2e-3)


@check_all("name", ["short line", "long line", "map", "long map"])
def test_laws_without_a_table_are_those_of_the_table(name: str) -> None:
    randomizer: Any = RANDOMIZERS[name]
    table = randomizer.rows()
    law = ReportLaw.of(randomizer)
    values = np.random.default_rng(1).random((3, randomizer.inputs))
    assert np.allclose(law.reports(values), values @ table, rtol=1e-7)
    assert np.allclose(law.back(values), values @ table.T, rtol=1e-7)


@check_all("name", ["labels", "short line", "map"])
def test_reports_by_person_follow_the_same_law(name: str) -> None:
    randomizer: Any = RANDOMIZERS[name]
    laws = report_laws(randomizer)
    generator = np.random.default_rng(3)
    held = np.zeros(randomizer.inputs, dtype=np.int64)
    held[[0, 3]] = 30_000, 10_000
    expected = held @ randomizer.rows()
    for draw in (laws.counts, laws.counts_by_person):
        counts = draw(held, generator)
        assert counts.sum() == 40_000
        assert np.all(np.abs(counts - expected) <= 5.0 * np.sqrt(expected) + 5.0)
    assert not isinstance(report_laws(RANDOMIZERS["labels"]), ReportLaws), (
        "a table of all laws is not needed"
    )


@check_all(("shape", "rate"), [(1, 0.3), (Fraction(5, 4), 0.3), (Fraction(5, 4), 1e-7), (1, 800.0)])
def test_noise_by_its_place_in_the_law(shape: Fraction | int, rate: float) -> None:
    """Evenly spread numbers make the law; at a smaller rate none makes less noise."""
    places = (np.arange(20_000) + 0.5) / 20_000
    noise = noise_quantiles(Fraction(shape), rate, places)
    assert np.all(np.diff(noise) >= 0.0)
    assert noise.mean() == pytest.approx(0.0, abs=1e-9 * max(1.0, np.abs(noise).max()))
    if rate > 700.0:
        assert not noise.any()
        return
    assert np.mean(noise**2) == pytest.approx(Polya(Fraction(shape), rate).variance(), rel=0.01)
    assert np.all(np.abs(noise_quantiles(Fraction(shape), 0.9 * rate, places)) >= np.abs(noise))
