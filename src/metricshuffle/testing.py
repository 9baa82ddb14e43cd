"""Checks that your own metric or randomizer must pass before a guarantee for it means anything.

    from metricshuffle.testing import check_metric, check_randomizer
    check_metric(HoursOfDay(), points=range(24))
    check_randomizer(MyResponse(options=8, epsilon=1.0))

Each check raises a ConditionError that names the broken rule and where it broke. A pass is
evidence, not a proof: give check_metric points that are close, far and equal, and print the
report that check_randomizer returns, which says what the checks cannot detect.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metricshuffle.errors import ConditionError, InputError
from metricshuffle.models import format_value
from metricshuffle.spaces.distance_matrix import open_triangle
from metricshuffle.spaces.metrics import Metric

if TYPE_CHECKING:
    from metricshuffle.randomizers._check_report import RandomizerReport
    from metricshuffle.randomizers.randomizer import Randomizer
    from metricshuffle.randomness import Randomness

METRIC = "A metric"


def check_metric(
    metric: Metric | Callable[[Any, Any], float],
    points: Sequence[Any],
    *,
    tolerance: float = 1e-9,
    pseudo: bool = False,
) -> None:
    """Check the axioms of a metric on every pair and triple of `points`.

    Args:
        metric: A Metric, or any function of two points. For a Metric, `pairwise` must agree with
            the call on two points.
        points: The points to check.
        tolerance: Relative tolerance: of the larger distance for symmetry, and of the longest side
            for the triangle inequality.
        pseudo: Whether different points may be at distance 0.
    """
    points = list(points)
    if not points:
        raise InputError("points must hold at least one point, got none.")
    if isinstance(metric, Metric):
        distances = np.asarray(metric.pairwise(points, points), dtype=np.float64)
        if distances.shape != (len(points), len(points)):
            raise ConditionError(
                METRIC,
                f"pairwise to return shape {(len(points), len(points))}",
                f"shape {distances.shape}",
            )
        _check_call(metric, points, distances, tolerance)
    else:
        distances = np.array([[float(metric(x, y)) for y in points] for x in points])

    def fail(axiom: str, violated: Any) -> None:
        if np.any(violated):
            i, j = (int(index) for index in np.argwhere(violated)[0])
            x = format_value(points[i])
            y = format_value(points[j])
            back = "" if i == j else f" and d({y}, {x}) = {distances[j, i]!s}"
            raise ConditionError(METRIC, axiom, f"d({x}, {y}) = {distances[i, j]!s}{back}")

    equal = np.array([[bool(np.array_equal(x, y)) for y in points] for x in points])
    fail("finite distances", ~np.isfinite(distances))
    fail("distances that are not negative", distances < 0)
    fail("distance 0 between a point and itself", equal & (distances != 0))
    if not pseudo:
        fail("a positive distance between different points", ~equal & (distances == 0))
    fail(
        "symmetry, d(x, y) = d(y, x)",
        np.abs(distances - distances.T) > tolerance * np.maximum(distances, distances.T),
    )
    triple = open_triangle((distances + distances.T) / 2, tolerance)
    if triple is not None:
        i, j, k = triple
        x, y, z = (format_value(points[index]) for index in triple)
        raise ConditionError(
            METRIC,
            "the triangle inequality, d(x, z) <= d(x, y) + d(y, z)",
            f"d({x}, {z}) = {distances[i, k]!s} with d({x}, {y}) = {distances[i, j]!s} and "
            f"d({y}, {z}) = {distances[j, k]!s}",
        )


def _check_call(metric: Metric, points: list[Any], distances: Any, tolerance: float) -> None:
    """Check that the call on two points agrees with pairwise (first row, first off-diagonal)."""
    last = len(points) - 1
    for i, j in {(0, j) for j in range(last + 1)} | {(i, i + 1) for i in range(last)}:
        called = metric(points[i], points[j])
        if not abs(called - distances[i, j]) <= tolerance * max(abs(called), abs(distances[i, j])):
            raise ConditionError(
                METRIC,
                "pairwise to agree with the call on two points",
                f"{called!r} and {distances[i, j]!s} for {format_value(points[i])} and "
                f"{format_value(points[j])}",
            )


def check_randomizer(
    randomizer: Randomizer,
    *,
    draws: int | None = None,
    most_pairs: int = 200,
    randomness: Randomness | None = None,
    seed: int | str | None = None,
) -> RandomizerReport:
    """Check a local randomizer against its own law, sampler and claims.

    `randomizer` is any subclass of `metricshuffle.randomizers.Randomizer` whose matrix is small
    enough to be listed. The checks:

    1. Every row is a probability law, and the same one each time it is computed.
    2. `distance` is a metric within `diameter`. No two inputs are more distinguishable than
       `local_epsilon`, `local_delta`, `total_variation` and `local_profile` say.
    3. `pairs`, `pairs_within` and `blankets` represent all pairs, for each bound that relies on
       them: bounds by the part that all laws have in common, and bounds by the whole law of
       another person's input. `blanket` claims no more than what all laws have in common.
    4. Closed forms that are used for its class (`keeps_law`) agree with its rows.
    5. `debiasing` has mean `targets`, `totals` adds it up, and reading the randomizer back from
       JSON gives the same one.
    6. `reports` follow the law of every input, at every position, in batches of many sizes and
       shapes, independently of each other. They depend only on the values and the stream, consume
       enough randomness, and say nothing beyond their codes.
    7. Guessing between the inputs of the worst pair does not beat `local_epsilon`.

    With up to 100 inputs, all pairs are checked; with more, `most_pairs` evenly spread pairs and up
    to as many of the randomizer's `pairs`. Reports are drawn for every input (up to 4,096): `draws`
    each, or 20,000 each and three million in all. A deviation below about six standard deviations
    is not detected, so an honest randomizer fails at most one run in a million: thirteen families
    of tests share 1e-6, by inequalities that hold for any number of draws.

    Batch sizes, positions and values are drawn anew in each run. A failure names the `seed` that
    repeats them (except for one batch drawn from the operating system). Instead of a seed,
    `randomness` can be a stream to draw from. The returned report says what was checked, how small
    a leak would have been detected, and what the checks cannot detect: print it.
    """
    from metricshuffle.randomizers._sampler_evidence import UnmarkedRandomness

    if randomness is not None and seed is not None:
        raise InputError("check_randomizer takes a seed or a stream of randomness, and not both.")
    if randomness is not None:
        return _run_checks(randomizer, draws, most_pairs, randomness, None)
    seed = secrets.randbelow(2**53) if seed is None else seed
    try:
        return _run_checks(randomizer, draws, most_pairs, UnmarkedRandomness.seeded(seed), seed)
    except ConditionError as error:
        error.add_note(f"The same is drawn again by check_randomizer(..., seed={seed!r}).")
        raise


def _run_checks(
    randomizer: Randomizer,
    draws: int | None,
    most_pairs: int,
    stream: Randomness,
    seed: int | str | None,
) -> RandomizerReport:
    from metricshuffle.amplification import _closed_form_checks as closed_forms
    from metricshuffle.randomizers import _batch_checks as batching
    from metricshuffle.randomizers import _checks as checks
    from metricshuffle.randomizers import _coverage_checks as coverage
    from metricshuffle.randomizers import _sampler_checks as sampling
    from metricshuffle.randomizers import _sampler_evidence as evidence
    from metricshuffle.randomizers._check_report import RandomizerReport

    rows = checks.validate_rows(randomizer)
    pairs = checks.some_pairs(randomizer, rows, most_pairs)
    epsilons = checks.true_epsilons(rows, pairs)
    distances = checks.validate_distances(randomizer, rows, pairs)
    checks.check_guarantee(randomizer, rows, pairs, epsilons)
    whole_laws = coverage.check_pairs(randomizer, rows, pairs, epsilons, distances, stream)
    checks.check_profile(randomizer, rows, pairs, epsilons, distances)
    checks.check_blanket(randomizer, rows, pairs)
    closed_forms.check_closed_forms(randomizer, rows, pairs, stream)
    checks.check_estimator(randomizer, rows)
    checks.check_json(randomizer, rows)
    some = 20_000 if draws is None else draws
    sampler, alone, mixed = evidence.draw(randomizer, rows, draws, stream)
    events = evidence.Events(rows)
    leak_of_one = sampling.check_law(rows, events, alone, mixed)
    sampling.check_totals(randomizer, alone, mixed, stream)
    sampling.check_positions(events, mixed)
    calls, again = sampling.check_calls(sampler, events, some, stream)
    sampling.check_neighbours(rows, events, (alone, mixed), (calls, again))
    sampling.check_dispersion(events, alone, stream)
    sampling.check_source(sampler, events, stream)
    batches = batching.draw_batches(sampler, events, some, stream)
    shared = batching.check_lags(events, batches.large)
    batching.check_sizes(batches)
    batching.check_moduli(events, batches.large, stream)
    leak = batching.check_everybody(events, [*alone, *mixed, batches.large])
    if len(pairs):
        sampling.check_attack(randomizer, checks.most_exposed(rows)[1], some, stream)
    checks.check_rows_again(randomizer, rows)
    return RandomizerReport(
        randomizer=type(randomizer).__name__,
        seed=seed,
        inputs=randomizer.inputs,
        outputs=randomizer.outputs,
        pairs=len(pairs),
        every_pair=randomizer.inputs <= checks.FEW_INPUTS,
        whole_laws=whole_laws,
        reports=sampler.reports,
        sizes=(batching.MAX_EACH_SIZE, len(batches.others)),
        largest_batch=len(batches.large.codes),
        leak=leak,
        leak_of_one_input=leak_of_one,
        leak_at_one_size=batches.leak,
        shared=shared,
    )
