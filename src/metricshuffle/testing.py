"""Checks that a metric or a randomizer of your own must pass before a guarantee stated in it means anything.

    from metricshuffle.testing import check_metric, check_randomizer
    check_metric(HoursOfDay(), points=range(24))
    check_randomizer(MyResponse(options=8, epsilon=1.0))

Each check raises a ConditionError that names the broken rule and where it broke. A pass is evidence and not a proof: give check_metric
points that are close, far and equal, and print what check_randomizer returns, which says what it cannot see.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metricshuffle.errors import ConditionError, InputError
from metricshuffle.models import format_value
from metricshuffle.spaces.matrix import open_triangle
from metricshuffle.spaces.metrics import Metric

if TYPE_CHECKING:
    from metricshuffle.randomizers._check_report import RandomizerReport
    from metricshuffle.randomizers.randomizer import Randomizer
    from metricshuffle.randomness import Randomness

METRIC = "A metric"


def check_metric(
    metric: Metric | Callable[[Any, Any], float], points: Sequence[Any], *, tolerance: float = 1e-9, pseudo: bool = False
) -> None:
    """Check the axioms of a metric on every pair and triple of `points`.

    `metric` is a Metric, or any function of two points. `tolerance` is relative: to the larger
    distance for symmetry, to the longest side for the triangle inequality. `pseudo` allows
    different points at distance 0. For a Metric, `pairwise` must agree with the call on two points.
    """
    points = list(points)
    if not points:
        raise InputError("points must hold at least one point, got none.")
    if isinstance(metric, Metric):
        distances = np.asarray(metric.pairwise(points, points), dtype=np.float64)
        if distances.shape != (len(points), len(points)):
            raise ConditionError(METRIC, f"pairwise to return shape {(len(points), len(points))}", f"shape {distances.shape}")
        _check_call(metric, points, distances, tolerance)
    else:
        distances = np.array([[float(metric(x, y)) for y in points] for x in points])

    def fail(axiom: str, wrong: Any) -> None:
        if np.any(wrong):
            i, j = (int(index) for index in np.argwhere(wrong)[0])
            x, y = format_value(points[i]), format_value(points[j])
            back = "" if i == j else f" and d({y}, {x}) = {distances[j, i]!s}"
            raise ConditionError(METRIC, axiom, f"d({x}, {y}) = {distances[i, j]!s}{back}")

    equal = np.array([[bool(np.array_equal(x, y)) for y in points] for x in points])
    fail("finite distances", ~np.isfinite(distances))
    fail("distances that are not negative", distances < 0)
    fail("distance 0 between a point and itself", equal & (distances != 0))
    if not pseudo:
        fail("a positive distance between different points", ~equal & (distances == 0))
    fail("symmetry, d(x, y) = d(y, x)", np.abs(distances - distances.T) > tolerance * np.maximum(distances, distances.T))
    triple = open_triangle((distances + distances.T) / 2, tolerance)
    if triple is not None:
        i, j, k = triple
        x, y, z = (format_value(points[index]) for index in triple)
        raise ConditionError(
            METRIC,
            "the triangle inequality, d(x, z) <= d(x, y) + d(y, z)",
            f"d({x}, {z}) = {distances[i, k]!s} with d({x}, {y}) = {distances[i, j]!s} and d({y}, {z}) = {distances[j, k]!s}",
        )


def _check_call(metric: Metric, points: list[Any], distances: Any, tolerance: float) -> None:
    """The call on two points and pairwise agree along the first row and on the diagonal's neighbours."""
    last = len(points) - 1
    for i, j in {(0, j) for j in range(last + 1)} | {(i, i + 1) for i in range(last)}:
        called = metric(points[i], points[j])
        if not abs(called - distances[i, j]) <= tolerance * max(abs(called), abs(distances[i, j])):
            raise ConditionError(
                METRIC, "pairwise to agree with the call on two points",
                f"{called!r} and {distances[i, j]!s} for {format_value(points[i])} and {format_value(points[j])}",
            )  # fmt: skip


def check_randomizer(
    randomizer: Randomizer,
    *,
    draws: int | None = None,
    most_pairs: int = 200,
    randomness: Randomness | None = None,
    seed: int | str | None = None,
) -> RandomizerReport:
    """Check a local randomizer against its own law: probabilities, guarantee, pairs, blanket, estimator, JSON, sampler, and an attack.

    `randomizer` is any subclass of `metricshuffle.randomizers.Randomizer`, small enough for its matrix to be listed:

    1. every row is a law, the same one whenever it is asked for;
    2. `distance` is a metric within `diameter`; no two inputs are more distinguishable than `local_epsilon`, `local_delta`,
       `total_variation` and `local_profile` say;
    3. `pairs`, `pairs_within` and `blankets` stand for all pairs, for each bound that relies on them: over what all inputs have in
       common, and over the whole law of what any other person holds; and `blanket` claims no more than what all inputs have in common;
    4. closed forms that are used for its class (`keeps_law`) say what its rows say;
    5. `debiasing` has mean `targets`, `totals` adds it up, and what is read back from JSON is the same randomizer;
    6. `reports` follow the law of every input, at every place, in batches of many sizes and shapes, independently of each other, and depend
       on nothing but the values and the stream, of which they take as much randomness as they have; their codes are all they say;
    7. guessing between the worst pair's inputs does not beat `local_epsilon`.

    All pairs of up to 100 inputs are looked at; of more, `most_pairs` and as many of the randomizer's own. Reports are
    drawn of every input (of up to 4,096): `draws` each, or 20,000 each and three million in all. What deviates by less than about six
    standard deviations is not seen, so that an honest randomizer fails one run in a million at most: thirteen families of tests share
    1e-6, by inequalities that hold for any number of draws.

    Sizes of batches, places and values are drawn anew in each run. A failure carries the `seed` that draws the same again (one batch comes
    from the operating system all the same). `randomness` is a stream to draw from instead. The returned report says what was
    looked at, how small a leak would have been seen, and what it cannot see: print it.
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


def _run_checks(randomizer: Randomizer, draws: int | None, most_pairs: int, stream: Randomness, seed: int | str | None) -> RandomizerReport:
    from metricshuffle.amplification import _closed_form_checks as closed_forms
    from metricshuffle.randomizers import _batch_checks as batching
    from metricshuffle.randomizers import _checks as checks
    from metricshuffle.randomizers import _coverage_checks as coverage
    from metricshuffle.randomizers import _sampler_checks as sampling
    from metricshuffle.randomizers import _sampler_evidence as evidence
    from metricshuffle.randomizers._check_report import RandomizerReport

    rows = checks.validate_rows(randomizer)
    pairs = checks.some_pairs(randomizer, rows, most_pairs)
    epsilons, distances = checks.true_epsilons(rows, pairs), checks.validate_distances(randomizer, rows, pairs)
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
