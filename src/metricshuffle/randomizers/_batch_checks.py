"""The parts of `check_randomizer` that look for leaks in batches of some size, shape or place.

Sizes, shapes, places and distances are drawn at random, so that no randomizer can know them. The
inequalities are those of `_sampler_evidence.py` and, for sums of products of two people's reports,
Hoeffding's: given all earlier reports, the later report's factor has mean 0 and a known range, so
the sum exceeds s with probability at most exp(-2 s^2 / sum of squared ranges).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.randomizers._checks import spread_inputs
from metricshuffle.randomizers._sampler_evidence import (
    FALSE_ALARM_PROBABILITY,
    MAX_INPUTS,
    SMALLER_LABEL,
    DrawnReports,
    Events,
    EventTally,
    Sampler,
    check_tallies,
    fail,
    surprise,
    too_unlikely,
)
from metricshuffle.randomizers.randomizer import Codes
from metricshuffle.randomness import Randomness

MAX_EACH_SIZE = 128
MIN_REPORTS_PER_SIZE = 400
OTHER_SIZES = 48
LARGEST_OTHER = 2**16
MAX_BATCH = 2**19
MIN_LARGE = 0.75
LARGEST_BATCH_DRAWS = 20_000  # from here on, the largest batch no longer grows
SHAPES = ("mixed", "sorted", "uniform", "uniform but for one person")
"""Inputs in random order, sorted inputs, all inputs equal, and all equal but one."""
MODULI = 128
OTHER_MODULI = 32
LARGEST_MODULUS = 8192
PLACED_PEOPLE = 2**18  # people whose places are tested
TELLING_LABEL = "the most telling 50%"
DETECTION_PROBABILITY = 0.999
"""Probability with which the smallest leak named in a report would have been detected."""


@dataclass(frozen=True)
class Batches:
    """The drawn batches: sizes beyond MAX_EACH_SIZE, the largest batch, and all tallies.

    Tallies are by size and shape.
    """

    others: tuple[int, ...]
    large: DrawnReports
    tallies: dict[str, EventTally]

    leak: float
    """Smallest detectable share of unrandomized reports in batches of one of the sizes."""


def draw_size(randomness: Randomness, low: int, high: int) -> int:
    """Draw a size in low..high, uniform in its logarithm."""
    share = (randomness.below(2**53) + 0.5) / 2.0**53
    return int(min(high, max(low, round(low * (high / low) ** share))))


def _inputs(chosen: Codes, size: int, shape: str, randomness: Randomness) -> Codes:
    inputs = chosen[randomness.uniform_residues(size, len(chosen)).astype(np.int64)]
    if shape == "sorted":
        return np.sort(inputs)
    if shape != "mixed":
        place = randomness.below(size)
        last_input = inputs[-1]
        inputs[:] = inputs[0]
        if shape == SHAPES[3]:
            inputs[place] = last_input
    return np.asarray(inputs, dtype=np.int64)


def draw_batches(sampler: Sampler, events: Events, draws: int, randomness: Randomness) -> Batches:
    """Draw batches of every size up to MAX_EACH_SIZE, other sizes and shapes, and a large one."""
    chosen = spread_inputs(len(sampler.rows), MAX_INPUTS)
    tallies: dict[str, EventTally] = {}
    few = draws < LARGEST_BATCH_DRAWS
    others = [
        draw_size(randomness, MAX_EACH_SIZE + 1, LARGEST_OTHER // (4 if few else 1))
        for _ in range(OTHER_SIZES // (3 if few else 1))
    ]
    looks = [(size, SHAPES[0]) for size in range(1, MAX_EACH_SIZE + 1)]
    looks += [(size, SHAPES[randomness.below(len(SHAPES))]) for size in others]
    looks += [(draw_size(randomness, 8, MAX_EACH_SIZE), shape) for shape in SHAPES[1:]]
    for size, shape in looks:
        batches = [
            _inputs(chosen, size, shape, randomness)
            for _ in range(-(-MIN_REPORTS_PER_SIZE // size))
        ]
        codes = np.concatenate([sampler(inputs, randomness) for inputs in batches])
        events.count(tallies, f"in {shape} batches of {size:,}", np.concatenate(batches), codes)
    max_size = max(MAX_EACH_SIZE, min(MAX_BATCH, MAX_BATCH * draws // LARGEST_BATCH_DRAWS))
    inputs = _inputs(
        chosen,
        draw_size(randomness, math.ceil(MIN_LARGE * max_size), max_size),
        SHAPES[0],
        randomness,
    )
    large = DrawnReports(inputs, sampler(inputs, randomness))
    events.count(tallies, f"in a batch of {len(inputs):,}", large.inputs, large.codes)
    likeliest = float(events.chances[TELLING_LABEL][chosen].mean())
    return Batches(
        tuple(sorted(others)),
        large,
        tallies,
        smallest_share(MIN_REPORTS_PER_SIZE, likeliest, 2 * len(tallies)),
    )


def check_sizes(batches: Batches) -> None:
    """Family 10: the law is the same in batches of all these sizes and shapes."""
    check_tallies(
        batches.tallies, "reports that do not depend on the size or the shape of the batch"
    )


def check_moduli(events: Events, large: DrawnReports, randomness: Randomness) -> None:
    """Family 11: the law is the same at all places r modulo m, independent of the report before.

    All m up to MODULI are tested, and some larger ones at random.
    """
    people = min(PLACED_PEOPLE, len(large.codes))
    large = DrawnReports(large.inputs[:people], large.codes[:people])
    steps = [m for m in range(2, MODULI + 1) if 8 * m <= people]
    steps += [
        m
        for m in (draw_size(randomness, MODULI + 1, LARGEST_MODULUS) for _ in range(OTHER_MODULI))
        if 8 * m <= people
    ]
    bins = events.bins[large.inputs, large.codes]
    chances = events.bin_chances[large.inputs]
    alike = np.zeros(people)
    alike[1:] = np.einsum("ij,ij->i", chances[1:], chances[:-1])
    same = np.append([0.0], bins[1:] == bins[:-1])
    in_set = events.sets[TELLING_LABEL][large.inputs, large.codes].astype(np.float64)
    looks = {
        f"at places {{}} modulo {{}}: {TELLING_LABEL}": (
            in_set,
            events.chances[TELLING_LABEL][large.inputs],
        ),
        "at places {} modulo {}: reports like the one before": (same, alike),
    }
    tests = 2 * len(looks) * sum(steps)
    for step in steps:
        whole = people // step * step
        for name, (hits, expected) in looks.items():
            seen, mean = (
                column[:whole].reshape(-1, step).sum(axis=0) for column in (hits, expected)
            )
            surprises = surprise(seen, whole // step, mean / (whole // step))
            worst = int(np.argmax(surprises))
            if too_unlikely(float(surprises[worst]), tests):
                fail(
                    "reports that do not depend on the place in the batch",
                    f"{name.format(worst, step)}, {int(seen[worst]):,} of "
                    f"{whole // step:,} where {mean[worst]:,.1f} are expected",
                )


def check_lags(events: Events, large: DrawnReports) -> float:
    """Family 12: reports any number of places apart are independent.

    Returns the smallest share of reports with shared randomness that would be detected.

    Statement: with r_i = 1[report i in a set] - its probability, sum of r_i r_(i+lag) over i is a
    sum of martingale differences of range max(p_i, 1 - p_i) at most. If r_i is instead the unit
    vector of the report's bin less its mean, the range is 1 + max p_i. A Fourier transform computes
    the sums of all lags at once.
    """
    from scipy.fft import irfft, next_fast_len, rfft

    people = len(large.codes)
    length = next_fast_len(2 * people, real=True)
    telling = events.chances[TELLING_LABEL][large.inputs]
    bins = events.bins[large.inputs, large.codes]
    chances = events.bin_chances[large.inputs]
    columns = np.flatnonzero(chances.max(axis=0) > 0.0).tolist()
    together = "their reports"
    power = {
        TELLING_LABEL: np.abs(
            rfft(events.sets[TELLING_LABEL][large.inputs, large.codes] - telling, length)
        )
        ** 2,
        together: np.sum(
            [np.abs(rfft((bins == place) - chances[:, place], length)) ** 2 for place in columns],
            axis=0,
        ),
    }
    ranges = {
        TELLING_LABEL: np.maximum(telling, 1.0 - telling),
        together: 1.0 + chances.max(axis=1),
    }
    limit = math.log(2 * len(power) * max(1, people - 1) / FALSE_ALARM_PROBABILITY)
    for name, spectrum in power.items():
        if people < 2:
            break
        sums: Floats = irfft(spectrum, length)[1:people]
        # Sums over the first (people - lag) reports, for lag = 1, 2, ...
        squares = np.cumsum(ranges[name] ** 2)[: people - 1][::-1]
        excess = 2.0 * np.maximum(0.0, np.abs(sums) - 1e-7 * people) ** 2 / squares
        worst = int(np.argmax(excess))
        # If most lags exceed the limit, the law itself is wrong, which `check_sizes` reports.
        if not excess[worst] < limit and np.median(excess) < limit:
            fail(
                "independent reports of different people",
                f"reports {worst + 1:,} apart that go together in {name}, chance below "
                f"{math.exp(-min(float(excess[worst]), 700.0)):.1g}",
            )
    spread = float((1.0 - (chances**2).sum(axis=1)).mean())
    total = float((ranges[together] ** 2).sum())
    return (
        math.sqrt(0.5 * total)
        * (math.sqrt(limit) + math.sqrt(-math.log(1.0 - DETECTION_PROBABILITY)))
        / (spread * people)
        if spread > 0.0
        else math.inf
    )


def check_everybody(events: Events, batches: Sequence[DrawnReports]) -> float:
    """Family 13: unrandomized reports are not slightly too frequent over all reports together.

    Returns the smallest share that would be detected.
    """
    tallies: dict[str, EventTally] = {}
    for batch in batches:
        events.count(tallies, "in all batches", batch.inputs, batch.codes)
    check_tallies(tallies, "reports that follow their laws")
    telling = [
        tally for name, tally in tallies.items() if SMALLER_LABEL not in name and tally.trials
    ]
    return min(
        smallest_share(tally.trials, tally.expected / tally.trials, 2 * len(tallies))
        for tally in telling
    )


def smallest_share(trials: int, chance: float, tests: int) -> float:
    """Return the smallest share of unrandomized reports that a count of one event would detect.

    The share is detected with probability DETECTION_PROBABILITY; it is inf if no share is detected.
    An unrandomized report is certainly in the event, every other report with probability `chance`.
    """
    from scipy.stats import binom

    counts: Integers64 = np.arange(math.ceil(trials * chance), trials + 1)
    alarms = counts[
        surprise(counts, trials, chance) >= math.log(max(1, tests) / FALSE_ALARM_PROBABILITY)
    ]
    if not alarms.size:
        return math.inf

    def seen(share: float) -> bool:
        return bool(
            binom.ppf(1.0 - DETECTION_PROBABILITY, trials, chance + share * (1.0 - chance))
            >= alarms[0]
        )

    low = 0.0
    high = 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high
