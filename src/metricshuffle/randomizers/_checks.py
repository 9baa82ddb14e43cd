"""The parts of `metricshuffle.testing.check_randomizer`. Each raises a ConditionError that names what is wrong, and where."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from metricshuffle.accounting.blanket.law import BlanketLaw
from metricshuffle.errors import ConditionError
from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers.randomizer import Pair, Randomizer
from metricshuffle.randomness import Randomness

NAME = "A randomizer"
TOLERANCE = 1e-9
TOO_UNLIKELY = 1e-6
LEAST_EXPECTED = 25.0


def checked_rows(randomizer: Randomizer) -> Floats:
    """The matrix, every row of it a law, and `law` its rows."""
    rows = np.asarray(randomizer.rows(), dtype=np.float64)
    if rows.shape != (randomizer.inputs, randomizer.outputs):
        raise ConditionError(NAME, f"rows of shape {(randomizer.inputs, randomizer.outputs)}", f"shape {rows.shape}")
    for x, row in enumerate(rows):
        if not (np.all(row >= 0.0) and abs(math.fsum(row) - 1.0) <= TOLERANCE):
            raise ConditionError(
                NAME, "rows of probabilities that sum to one", f"{math.fsum(row)!r} (smallest entry {row.min()!r}) in row {x}"
            )
        if not np.allclose(randomizer.law(x), row, rtol=1e-12, atol=1e-300):
            raise ConditionError(NAME, "law(x) to be row x of rows()", f"a different law for x = {x}")
    return rows


def some_pairs(randomizer: Randomizer, most: int) -> list[Pair]:
    """All ordered pairs, or evenly spread ones; the randomizer's own pairs among them."""
    everything = list(itertools.islice(itertools.permutations(range(randomizer.inputs), 2), 10**6))
    return [*itertools.islice(randomizer.pairs(), most), *everything[:: max(1, len(everything) // most)]]


def hockey_stick(first: Any, second: Any, factor: float, third: Any = 0.0) -> float:
    """sum (first - factor second - third)_+."""
    return math.fsum(np.maximum(0.0, first - factor * second - third))


def check_guarantee(randomizer: Randomizer, rows: Floats, pairs: list[Pair]) -> Pair:
    """local_epsilon and local_profile cover every pair; the worst pair is returned."""
    profile, overall, worst = randomizer.local_profile(), randomizer.local_epsilon(), (-1.0, pairs[0])
    for a, b in pairs:
        held = (rows[a] > 0.0) | (rows[b] > 0.0)
        with np.errstate(divide="ignore"):
            true = float(np.max(np.abs(np.log(rows[a, held]) - np.log(rows[b, held]))))
        worst = max(worst, (true, (a, b)))
        told = randomizer.local_epsilon(a, b)
        if not true <= told * (1.0 + TOLERANCE) + TOLERANCE:
            raise ConditionError(NAME, f"local_epsilon of inputs {a} and {b} to be at least {true:.12g}", f"{told!r}")
        if not told <= overall * (1.0 + TOLERANCE) + TOLERANCE:
            raise ConditionError(NAME, f"local_epsilon() to cover inputs {a} and {b}, which have {told!r}", f"{overall!r}")
    for a, b in {pairs[0], worst[1]}:
        distance, true = randomizer.distance(a, b), randomizer.local_epsilon(a, b)
        for epsilon in (0.0, 0.5 * true) if true < math.inf else (0.0, 1.0):
            leaked, told = hockey_stick(rows[a], rows[b], math.exp(epsilon)), profile.delta(epsilon, distance)
            if not leaked <= told + TOLERANCE:
                raise ConditionError(
                    NAME, f"local_profile to give delta >= {leaked:.12g} at epsilon {epsilon:.6g} for {a} and {b}", f"{told!r}"
                )
    return worst[1]


def blanket_excess(given: BlanketLaw, rows: Floats, a: int, b: int) -> float:
    """How far the blanket law falls below the one read off the rows (> 0: it claims too much), over sums of (a - e b - t w)_+.

    These sums determine the law of (K_a, K_b)/w under w, and grow with every valid weakening of it.
    """
    common, worst = rows.min(axis=0), -math.inf
    for factor, share in itertools.product((0.5, 1.0, 1.3, 2.5), (0.0, -0.3, 0.3, 1.0, 3.0)):
        truth = hockey_stick(rows[a], rows[b], factor, share * common)
        told = hockey_stick(given.a, given.b, factor, share * given.mass)
        # With a negative share the blanket's own total counts: only what exceeds it depends on the law.
        slack = share * (float(common.sum()) - float(given.mass.sum())) if share < 0.0 else 0.0
        worst = max(worst, truth - told + slack)
    return worst


def check_blanket(randomizer: Randomizer, rows: Floats, pairs: list[Pair]) -> None:
    for a, b in pairs:
        given = randomizer.blanket(a, b)
        if not float(given.mass.sum()) <= float(rows.min(axis=0).sum()) + TOLERANCE:
            raise ConditionError(NAME, f"a blanket of mass <= {rows.min(axis=0).sum():.12g} for {a} and {b}", f"{given.mass.sum()!r}")
        excess = blanket_excess(given, rows, a, b)
        if not excess <= TOLERANCE:
            raise ConditionError(
                NAME, f"a blanket of inputs {a} and {b} that all inputs have in common", f"one that claims {excess:.3g} too much"
            )


def check_estimator(randomizer: Randomizer, rows: Floats) -> None:
    debiasing, targets = randomizer.debiasing(), randomizer.targets()
    off = np.abs(rows @ debiasing - targets)
    if not off.max() <= TOLERANCE * max(1.0, float(np.abs(debiasing).max())):
        x, column = (int(index) for index in np.argwhere(off == off.max())[0])
        raise ConditionError(
            NAME, f"debiasing with the mean {targets[x, column]!r} for input {x}, target {column}", f"an error of {off.max():.3g}"
        )


def check_sampler(randomizer: Randomizer, rows: Floats, draws: int, randomness: Randomness) -> None:
    """Pearson's chi-squared on three inputs, rare reports pooled; and totals are what debiasing adds up to."""
    from scipy.special import gammaincc

    for x in sorted({0, randomizer.inputs // 2, randomizer.inputs - 1}):
        reports = randomizer.reports(randomizer.values_of(np.full(draws, x, dtype=np.int64)), randomness)
        counts = randomizer.counts(reports)
        expected = rows[x] * draws
        if counts[rows[x] == 0.0].any():
            raise ConditionError(
                NAME, f"no report of input {x} that its law rules out", f"report {int(np.argmax(counts * (rows[x] == 0.0)))}"
            )
        large = expected >= LEAST_EXPECTED
        seen, hoped = (np.append(part[large], part[~large].sum()) for part in (counts.astype(np.float64), expected))
        while len(hoped) > 1 and hoped[-1] < LEAST_EXPECTED:  # what is still rare joins a neighbour
            seen, hoped = np.append(seen[:-2], seen[-2:].sum()), np.append(hoped[:-2], hoped[-2:].sum())
        if len(hoped) > 1:
            chance = float(gammaincc((len(hoped) - 1) / 2, np.sum((seen - hoped) ** 2 / hoped) / 2))
            if not chance >= TOO_UNLIKELY:
                raise ConditionError(
                    NAME, f"reports of input {x} that follow its law", f"a chi-squared statistic of probability {chance:.2g}"
                )
        totals, added = randomizer.totals(reports), counts @ randomizer.debiasing()
        if not np.allclose(totals, added, rtol=1e-9, atol=1e-9 * draws * max(1.0, float(np.abs(randomizer.debiasing()).max()))):
            raise ConditionError(NAME, "totals(reports) to add up debiasing()", f"a difference of {np.abs(totals - added).max():.3g}")


def check_attack(randomizer: Randomizer, rows: Floats, pair: Pair, draws: int, randomness: Randomness) -> None:
    """A certified lower bound on epsilon from samples, by guessing on the reports that favour a, stays below local_epsilon."""
    from scipy.special import betaincinv

    a, b = pair
    claimed = randomizer.local_epsilon(a, b)
    if not claimed < math.inf:
        return
    event = rows[a] > math.exp(0.5 * claimed) * rows[b]
    hits = [
        int(randomizer.counts(randomizer.reports(randomizer.values_of(np.full(draws, x, dtype=np.int64)), randomness))[event].sum())
        for x in pair
    ]
    low = float(betaincinv(hits[0], draws - hits[0] + 1, TOO_UNLIKELY)) if hits[0] else 0.0
    high = float(betaincinv(hits[1] + 1, draws - hits[1], 1.0 - TOO_UNLIKELY)) if hits[1] < draws else 1.0
    if low > 0.0 and not math.log(low / high) <= claimed:
        raise ConditionError(
            NAME, f"inputs {a} and {b} to be {claimed:.6g}-indistinguishable", f"an attack that shows {math.log(low / high):.6g}"
        )
