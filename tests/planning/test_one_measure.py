"""Column "expected error" of histograms: the error of the share that is printed first."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import metricshuffle as ms
from metricshuffle.errors import InputError
from metricshuffle.planning.plan_text import plan_text
from metricshuffle.protocols.features import Cells, Ramps, ShiftedBoxes, space_of
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.randomness import Randomness
from metricshuffle.simulation import share_errors
from metricshuffle.simulation.population import clustered_shares

LINE = ms.Histogram(ms.Integers(0, 63))
MAP = ms.Histogram(ms.Grid(16, 16))
LABELS = ms.Histogram(ms.Categories(list("abcdefghij")))
NOISY: dict[str, Any] = {"protocols": ["noisy-vectors"], "floor": False}
KINDS = ("spread evenly", "in a few clusters", "at one point in eight")


def vectors_of(plan: ms.Plan) -> NoisyVectors:
    assert isinstance(plan.protocol, NoisyVectors)
    return plan.protocol


def held_by(query: ms.Histogram, kind: str, users: int, generator: np.random.Generator) -> Any:
    """How many people hold each value, drawn apart from how plans draw them."""
    cells = query.cells
    if kind == "spread evenly":
        return generator.multinomial(users, np.full(cells, 1.0 / cells))
    if kind == "in a few clusters":
        return generator.multinomial(users, clustered_shares(space_of(query), generator))
    points = generator.permutation(cells)[: max(1, cells // 8)]
    return np.bincount(points[generator.integers(len(points), size=users)], minlength=cells)


def true_errors(plan: ms.Plan, kind: str, runs: int) -> Any:
    """Of the first column of real releases."""
    query = plan.query
    generator = np.random.default_rng(2026)
    errors = []
    assert isinstance(query, ms.Histogram)
    for seed in range(runs):
        held = held_by(query, kind, plan.users, generator)
        named = (
            query.domain.labels
            if isinstance(query.domain, ms.Categories)
            else query.domain.all_values()
        )
        values = np.repeat(np.asarray(named), held, axis=0)
        release = plan.run(values, Randomness.seeded(f"{kind} {seed}"))
        shares = np.array([row["share"] for row in release.value])
        errors.append(float(np.abs(shares - held / plan.users).mean()))
    return np.array(errors)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("query", "distance", "users", "choices"),
    [
        (LINE, 8.0, 2_000, {}),
        (LINE, 8.0, 2_000, {"trusted": "curator", **NOISY}),
        (LINE, 8.0, 2_000, {"trusted": "curator", "spread": "smooth", **NOISY}),
        (MAP, 4.0, 10_000, {"trusted": "curator", **NOISY}),
        (MAP, 4.0, 10_000, {"protocols": ["k-ary-randomized-response"]}),
        (LABELS, 1.0, 500, {}),
        (ms.Histogram(ms.Integers(0, 31)), 4.0, 300, {"trusted": "nobody"}),
    ],
    ids=[
        "line, floor",
        "line",
        "smooth line",
        "map",
        "map, one report each",
        "labels",
        "nobody is trusted",
    ],
)
def test_what_is_printed_is_how_far_releases_are_off(
    query: Any, distance: float, users: int, choices: dict[str, Any]
) -> None:
    """Printed errors agree with real releases for each population, and their maximum."""
    plan = ms.plan(query, ms.Target(1.0, 1e-6, distance), users, **choices)
    means = []
    for kind in KINDS:
        errors = true_errors(plan, kind, 12)
        means.append(float(errors.mean()))
        # (the simulation's own chance, about one in a hundred, and three for few people at few
        # points)
        room = (
            4.5 * float(errors.std(ddof=1)) / math.sqrt(len(errors))
            + 0.05 * plan.choice.other_errors[kind]
        )
        assert means[-1] == pytest.approx(plan.choice.other_errors[kind], abs=room), kind
    counted = means if plan.spread == "any" else means[:2]
    assert max(counted) <= 1.15 * plan.choice.expected_error
    assert plan.choice.expected_error == max(
        [plan.choice.other_errors[kind] for kind in KINDS][: len(counted)]
    )


def test_sets_of_features_with_less_error_are_taken() -> None:
    """Single thresholds and cells, where wider ones had up to twice the error.

    Thirty times for people at few points.
    """
    line = ms.plan(LINE, ms.Target(1.0, 1e-6, 8.0), 2_000, **NOISY)
    assert vectors_of(line).features == Ramps(1)
    assert line.choice.expected_error < 0.0065
    cells = ms.plan(MAP, ms.Target(1.0, 1e-6, 6.0), 10_000, **NOISY)
    assert vectors_of(cells).features == Cells()
    assert cells.choice.expected_error < 0.0013
    assert cells.choice.feature_sets[0] == "cells"
    assert len(cells.choice.feature_sets) > 1


def test_flat_targets_on_a_line_have_cells() -> None:
    """A move to any bin changes two cells, but all thresholds between."""
    flat = ms.plan(LINE, ms.Target(1.0, 1e-6, 63.0, "flat"), 2_000, **NOISY)
    assert vectors_of(flat).features == Cells()
    assert flat.choice.expected_error < 0.00106
    labels = ms.plan(
        ms.Histogram(ms.Categories([str(label) for label in range(64)])),
        ms.Target(1.0, 1e-6, 1.0),
        2_000,
        **NOISY,
    )
    assert flat.choice.expected_error == pytest.approx(labels.choice.expected_error, rel=0.05)
    steep = ms.plan(LINE, ms.Target(1.0, 1e-6, 1.0), 2_000, **NOISY)
    assert vectors_of(steep).features == Ramps(1)


@pytest.mark.parametrize(
    ("query", "distance"), [(LABELS, 1.0), (MAP, 2.0), (LINE, 4.0)], ids=["labels", "map", "line"]
)
def test_orders_that_are_known_hold(query: Any, distance: float) -> None:
    """A floor is never more accurate than none, and neither beats a curator."""
    for users, honest in ((500, "80%"), (5_000, None)):
        plan = ms.plan(
            query, ms.Target(1.0, 1e-6, distance), users, honest, protocols=["noisy-vectors"]
        )
        by = {
            (
                str(offer.encoding).replace(", no floor", ""),
                str(offer.encoding).endswith("no floor"),
                offer.trusted,
            ): offer
            for offer in plan.candidates
        }
        for (features, bare, trusted), offer in by.items():
            below = [(features, False, "curator")] if trusted == "shuffler" else []
            below += [(features, True, "shuffler")] if trusted == "shuffler" and not bare else []
            for other in (by[key] for key in below if key in by):
                assert offer.expected_error >= other.expected_error
                assert all(offer.other_errors[kind] >= other.other_errors[kind] for kind in KINDS)
        assert len(by) == len(plan.candidates)


@pytest.mark.parametrize(
    ("query", "distance", "only"),
    [
        (LINE, 8.0, "noisy-vectors"),
        (LABELS, 1.0, "noisy-vectors"),
        (LABELS, 1.0, "k-ary-randomized-response"),
    ],
    ids=["line", "labels", "labels, one report each"],
)
def test_errors_fall_with_epsilon(query: Any, distance: float, only: str) -> None:
    """So that a search for an error does not run after the chance of its simulations."""
    errors = [
        ms.plan(
            query,
            ms.Target(float(epsilon), 1e-6, distance),
            500,
            protocols=[only],
            floor=query is LABELS,
        ).choice.expected_error
        for epsilon in np.geomspace(0.985, 1.015, 4)
    ]
    assert all(after < before for before, after in pairwise(errors)), errors


@pytest.mark.parametrize(
    ("query", "users", "choices"),
    [(ms.Histogram(ms.Grid(8, 8)), 2, {}), (LINE, 50, {"trusted": "nobody"})],
    ids=["map of two people", "line"],
)
def test_no_error_is_larger_than_shares_can_be_off(
    query: Any, users: int, choices: dict[str, Any]
) -> None:
    plan = ms.plan(query, ms.Target(1.0, 1e-6, 2.0), users, **choices)
    assert {"noisy-vectors", "k-ary-randomized-response"} <= {
        offer.protocol for offer in plan.candidates
    }
    assert all(0.0 < offer.expected_error <= 2.0 / query.cells for offer in plan.candidates)


def test_errors_have_the_digits_that_their_simulation_tells() -> None:
    plan = ms.plan(LABELS, ms.Target(1.0, 1e-6, 1.0), 2_000)
    assert all(
        0.0 < (offer.simulation_error or 0.0) < 0.03 * offer.expected_error
        for offer in plan.candidates
    )
    column = [row.split(" %")[0].split()[-1] for row in plan_text(plan).splitlines()[2:9]]
    for written, offer in zip(column, plan.candidates, strict=True):
        assert len(written.replace(".", "").lstrip("0")) <= 2
        assert 100.0 * offer.expected_error <= float(written) <= 110.0 * offer.expected_error


def test_what_is_known_of_people_counts() -> None:
    """Wider boxes for smooth populations; errors are stated for them and for all three."""
    grid = ms.Histogram(ms.Grid(24, 24))
    target = ms.Target(1.0, 1e-6, 6.0)
    smooth = ms.plan(grid, target, 3_000, spread="smooth", **NOISY)
    assert isinstance(vectors_of(smooth).features, ShiftedBoxes)
    assert list(smooth.choice.other_errors) == list(KINDS)
    assert smooth.choice.expected_error == max(
        smooth.choice.other_errors[kind] for kind in KINDS[:2]
    )
    assert smooth.choice.other_errors[KINDS[2]] > smooth.choice.expected_error
    spiky = ms.plan(grid, target, 3_000, spread="spiky", **NOISY)
    assert vectors_of(spiky).features == Cells()
    assert spiky.choice.expected_error == spiky.choice.other_errors[KINDS[2]]
    words = plan_text(smooth)
    assert (
        "the larger one of the first two of three, as people are said to be spread smoothly"
        in words
    )
    assert (
        f"Of the feature sets {', '.join(smooth.choice.feature_sets[:-1])} and "
        f"{smooth.choice.feature_sets[-1]}" in words
    )
    stored = json.loads(smooth.to_json())
    assert stored["spread"] == "smooth"
    assert ms.Plan.from_json(smooth.to_json()).spread == "smooth"
    anybody = ms.plan(grid, target, 3_000, **NOISY)
    assert "spread" not in json.loads(anybody.to_json())
    assert anybody.digest == spiky.digest, (
        "the same features with the same noise: the task does not know what was said of people"
    )
    for refused in ("bumpy", None):
        with pytest.raises(InputError, match="spread must be one of any, smooth, spiky"):
            ms.plan(grid, target, 3_000, spread=refused)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="spread does not apply to a sum"):
        ms.plan(ms.Sum(ms.Integers(0, 9)), ms.Target(1.0, 1e-6, 1.0), 100, spread="smooth")


def test_an_error_that_is_asked_for_is_met_as_it_is_printed() -> None:
    """0.123 % requested: errors have two digits, so 0.12 % is reached.

    Not 0.125 %, printed as 0.13 %.
    """
    plan = ms.plan_for_error(LABELS, 0.00123, 1e-6, 1.0, 5_000, protocols=["noisy-vectors"])
    assert 0.00115 < plan.choice.expected_error <= 0.0012
    assert "0.12 %" in plan_text(plan)


def test_releases_that_are_the_same_are_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A curator's noise is that of all people: the result without a floor is reused."""
    fitted: list[bytes] = []
    off_by = share_errors.mean_error

    def counted(space: ms.Space, shares: Any, truth: Any) -> Any:
        fitted.append(np.asarray(shares).tobytes())
        return off_by(space, shares, truth)

    monkeypatch.setattr(share_errors, "mean_error", counted)
    made = ms.plan(
        ms.Histogram(ms.Integers(0, 31)),
        ms.Target(1, 1e-6, 4),
        3_000,
        protocols=["noisy-vectors"],
    )
    assert any(candidate.trusted == "curator" for candidate in made.candidates)
    assert len(fitted) == len(set(fitted)) > 0
