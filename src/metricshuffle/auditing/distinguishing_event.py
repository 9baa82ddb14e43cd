"""Choice of the event that distinguishes two inputs best; it is counted on other batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.auditing.confidence_bound import EventCount, epsilon_confidence_bound
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Mask

# Tails of 1, 2, 3, ... batches are tried, each longer than the previous by at least this factor.
TAIL_GROWTH = 1.04
# Events are ranked by limits with `miss` times this: the best of hundreds is often only lucky.
RANKING_MISS_FACTOR = 0.01

Scored = tuple[Floats, Floats]
"""Scores of the batches on the first input, and of those on the second."""


@dataclass(frozen=True)
class Event:
    """The event that a score is at least (or at most) a threshold.

    `exchanged`: the event is likelier on the second input than on the first.
    """

    threshold: float
    above: bool
    exchanged: bool

    def happened(self, scores: Floats) -> Mask:
        return np.asarray(scores >= self.threshold if self.above else scores <= self.threshold)

    def seen(self, scored: Scored) -> tuple[EventCount, EventCount]:
        """Counts of the event: on the input where it is likelier, then on the other."""
        first, second = (
            EventCount(int(np.count_nonzero(self.happened(scores))), len(scores))
            for scores in scored
        )
        return (second, first) if self.exchanged else (first, second)


@dataclass(frozen=True)
class WitnessedEpsilon:
    """Epsilon shown by held-out batches, the event that shows it, and its counts."""

    epsilon: float
    event: Event
    likelier: EventCount
    other: EventCount

    @classmethod
    def by(cls, event: Event, held_out: Scored, delta: float, miss: float) -> WitnessedEpsilon:
        """Evaluate an event that was chosen without looking at these batches."""
        likelier, rarer = event.seen(held_out)
        return cls(epsilon_confidence_bound(likelier, rarer, delta, miss), event, likelier, rarer)


def validate_scores(scores: object) -> Floats:
    """Return scores as floats; raise InputError if any is missing."""
    try:
        numbers = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("a score must be a number; that of some batch is not.") from None
    if numbers.ndim != 1 or np.isnan(numbers).any():
        raise InputError(
            "a score must be one number for each batch; some are NaN, or more than one number."
        )
    return numbers


def best_event(learning: Scored, delta: float, miss: float) -> tuple[Event, float]:
    """Return the event that shows the largest epsilon on these batches, and that epsilon.

    The epsilon is biased upwards, because the event was chosen on the same batches. Thresholds are
    scores of the batches themselves, from either end, and either input may be the likelier one.
    """
    ordered = [np.sort(scores) for scores in learning]
    pooled = np.sort(np.concatenate(ordered))
    ranks = _ranks(len(pooled))
    events: list[tuple[float, Event]] = []
    for above in (True, False):
        thresholds = np.unique(pooled[len(pooled) - ranks] if above else pooled[ranks - 1])
        hits = [
            len(scores) - np.searchsorted(scores, thresholds, "left")
            if above
            else np.searchsorted(scores, thresholds, "right")
            for scores in ordered
        ]
        for exchanged in (False, True):
            (more, many), (less, few) = (
                (hits[side], len(ordered[side])) for side in ((1, 0) if exchanged else (0, 1))
            )
            shown = _roughly_shown(more, many, less, few, delta, RANKING_MISS_FACTOR * miss)
            place = int(np.argmax(shown))
            events.append((float(shown[place]), Event(float(thresholds[place]), above, exchanged)))
    best = max(events, key=lambda ranked_event: ranked_event[0])
    return best[1], best[0]


def max_witnessed_epsilon(trials: int, delta: float, miss: float) -> float:
    """Largest epsilon that `trials` held-out batches on each input can show.

    The event then always happens on one input and never on the other.
    """
    return epsilon_confidence_bound(EventCount(trials, trials), EventCount(0, trials), delta, miss)


def _ranks(count: int) -> np.ndarray:
    steps = np.unique(
        np.floor(TAIL_GROWTH ** np.arange(0, math.log(count) / math.log(TAIL_GROWTH) + 1)).astype(
            np.int64
        )
    )
    return np.append(steps[steps < count], count)


def _roughly_shown(
    more: np.ndarray, many: int, less: np.ndarray, few: int, delta: float, miss: float
) -> Floats:
    """log((L - delta)/U) for many events, with uncertified limits L and U; for ranking only."""
    from scipy.special import betainccinv, betaincinv

    low = np.where(more > 0, betaincinv(np.maximum(more, 1), many - more + 1, 0.5 * miss), 0.0)
    high = np.where(less < few, betainccinv(less + 1, np.maximum(few - less, 1), 0.5 * miss), 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(low - delta, 0.0) / high))
