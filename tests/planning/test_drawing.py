"""Simulated reports follow their laws, however they are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.goodness_of_fit import TOO_UNLIKELY, p_value

from metricshuffle.simulation import fast_draws
from metricshuffle.simulation.fast_draws import ReportLaws

LAW = np.random.default_rng(3).dirichlet(np.full(12, 0.5), size=6)
HELD = np.array([40, 0, 3, 150, 1, 6])


def test_reports_drawn_one_by_one_follow_the_law() -> None:
    generator = np.random.default_rng(0)
    laws = ReportLaws.of((LAW,))
    counts = np.sum([laws._one_by_one(HELD, generator) for _ in range(500)], axis=0)
    assert counts.sum() == 500 * HELD.sum()
    assert (
        p_value(
            np.repeat(np.arange(12), counts.astype(np.int64)), (HELD @ LAW / HELD.sum()).tolist()
        )
        > TOO_UNLIKELY
    )


@pytest.mark.parametrize("way", ["one by one", "multinomial", "normal"])
def test_each_way_of_drawing_has_the_means_and_covariances_of_multinomial_laws(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way != "multinomial":
        monkeypatch.setattr(fast_draws, "MAX_EXACT_ENTRIES", 0)
        monkeypatch.setattr(fast_draws, "ENTRIES_PER_DRAW", 0 if way == "one by one" else 10**9)
    generator = np.random.default_rng(1)
    laws = ReportLaws.of((LAW,))
    drawn = np.array([laws.counts(HELD, generator) for _ in range(4000)])
    means = HELD @ LAW
    covariances = np.diag(HELD @ LAW) - LAW.T @ (HELD[:, None] * LAW)
    assert (np.abs(drawn - np.rint(drawn)).max() > 1e-6) == (way == "normal")
    deviations = np.sqrt(np.diag(covariances))
    assert np.abs((drawn.mean(axis=0) - means) / deviations).max() < 5.0 / np.sqrt(4000)
    assert np.abs(
        (np.cov(drawn.T) - covariances) / np.outer(deviations, deviations)
    ).max() < 8.0 / np.sqrt(4000)
