"""Evidence for the checks of a sampler: drawn reports, sets of known probability, inequalities.

Every test rests on an inequality that holds for any number of draws, not only in the limit:

* of n independent events, whose probabilities may differ and have the mean p, at least n q happen
  for q > p (or at most n q for q < p) with probability at most exp(-n kl(q, p)) (Chernoff;
  Hoeffding 1963 for probabilities that differ);
* n KL(frequencies of n draws, law), summed over independent samples whose laws have d more cells
  than there are samples, has the moments of a gamma law of shape d at most (Agrawal 2020,
  "Finite-sample concentration of the multinomial in relative entropy"), so it exceeds s > d with
  probability at most exp(-s) (e s / d)^d;
* a number >= 0 of mean 1 exceeds c with probability at most 1/c (Markov).

False alarms: a family of tests may fail an honest randomizer with probability
FALSE_ALARM_PROBABILITY, shared by its tests; there are thirteen families.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np

from metricshuffle.errors import ConditionError, DomainError
from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.randomizers._checks import NAME, spread_inputs
from metricshuffle.randomizers.randomizer import Codes, Randomizer
from metricshuffle.randomness import Randomness

FALSE_ALARM_PROBABILITY = 7.5e-8
MAX_INPUTS = 4096
BINS = 8
SMALLER_LABEL = "the smaller half of the codes"
REPORTS_PER_CALL = 2**16
MIN_CALLS = 512  # min calls with one input each


def surprise(hits: Any, trials: Any, mean: Any) -> Floats:
    """Return n kl(hits/n, mean).

    This number of hits, or a more extreme one on the same side, has probability at most
    e^-surprise.
    """
    trials = np.asarray(trials, dtype=np.float64)
    share = np.asarray(hits) / np.maximum(trials, 1.0)
    mean = np.clip(mean, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        happened = np.where(share > 0.0, share * np.log(share / mean), 0.0)
        missed = np.where(share < 1.0, (1.0 - share) * np.log((1.0 - share) / (1.0 - mean)), 0.0)
    return np.asarray(trials * np.maximum(0.0, happened + missed))


def gamma_surprise(total: float, shape: int) -> float:
    """Return -log of exp(-s) (e s / d)^d, or 0 if s <= d."""
    return total - shape * (1.0 + math.log(total / shape)) if total > shape > 0 else 0.0


def too_unlikely(surprised: float, tests: int) -> bool:
    """Return whether this surprise in one of a family's `tests` tests may raise an alarm."""
    return not surprised < math.log(max(1, tests) / FALSE_ALARM_PROBABILITY)


def fail(condition: str, got: str) -> NoReturn:
    raise ConditionError(NAME, condition, got)


class UnmarkedRandomness(Randomness):
    """A seeded stream that looks like one of the operating system.

    So a randomizer cannot detect a test and behave honestly only then.
    """

    @property
    def unsafe_seeded(self) -> bool:
        return False


class CountedRandomness(UnmarkedRandomness):
    """A stream that counts the words taken from it and from its children."""

    def __init__(self, key: bytes | None) -> None:
        super().__init__(key)
        self.taken = [0]

    def fill(self, buffer: Any) -> None:
        self.taken[0] += buffer.size
        super().fill(buffer)

    def spawn(self) -> Self:
        child = super().spawn()
        child.taken = self.taken
        return child


@dataclass
class EventTally:
    """Counted events of one name: trials, hits and the sum of their probabilities."""

    hits: float = 0.0
    trials: int = 0
    expected: float = 0.0

    def add(self, hits: Mask, chances: Floats) -> None:
        self.add_sums(float(np.count_nonzero(hits)), int(hits.size), float(chances.sum()))

    def add_sums(self, hits: float, trials: int, expected: float) -> None:
        self.hits += hits
        self.trials += trials
        self.expected += expected

    @property
    def surprise(self) -> float:
        return float(surprise(self.hits, self.trials, self.expected / max(1, self.trials)))

    @property
    def seen(self) -> str:
        return f"{int(self.hits):,} of {self.trials:,} where {self.expected:,.1f} are expected"


def check_tallies(tallies: dict[str, EventTally], condition: str) -> None:
    """Check a family of tests: each tally may be too small or too large."""
    for name, tally in tallies.items():
        if too_unlikely(tally.surprise, 2 * len(tallies)):
            fail(
                condition,
                f"{name} {tally.seen} (a chance below {math.exp(-min(tally.surprise, 700.0)):.1g})",
            )


@dataclass
class Events:
    """Sets of reports with known probabilities for every input; checks count their hits."""

    rows: Floats

    @cached_property
    def _by_lift(self) -> tuple[Codes, Floats]:
        """(rank of every report, probability of the reports up to it).

        Reports that an input has more often than the others come first.
        """
        mean = self.rows.mean(axis=0)
        order = np.argsort(-self.rows / np.where(mean > 0.0, mean, 1.0), axis=1, kind="stable")
        rank = np.argsort(order, axis=1, kind="stable")
        return rank, np.cumsum(np.take_along_axis(self.rows, order, axis=1), axis=1)

    def _first(self, rank: Codes, sums: Floats, share: float) -> Mask:
        """Return the first reports whose total probability comes closest to `share`."""
        return np.asarray(rank <= np.argmin(np.abs(sums - share), axis=1)[:, None])

    @cached_property
    def sets(self) -> dict[str, Mask]:
        rank, sums = self._by_lift
        places = np.broadcast_to(np.arange(self.rows.shape[1]), self.rows.shape)
        preferred = {
            f"the most telling {share:.0%}": self._first(rank, sums, share)
            for share in (0.25, 0.5, 0.75)
        }
        return {**preferred, SMALLER_LABEL: self._first(places, np.cumsum(self.rows, axis=1), 0.5)}

    @cached_property
    def chances(self) -> dict[str, Floats]:
        return {
            name: np.where(members, self.rows, 0.0).sum(axis=1)
            for name, members in self.sets.items()
        }

    @cached_property
    def bins(self) -> Codes:
        """The bin of every report, per input; the reports themselves if there are few."""
        outputs = self.rows.shape[1]
        if outputs <= BINS:
            return np.broadcast_to(np.arange(outputs), self.rows.shape)
        rank, sums = self._by_lift
        middle = sums - 0.5 * np.diff(sums, axis=1, prepend=0.0)
        return np.take_along_axis(
            np.clip(np.floor(BINS * middle), 0, BINS - 1).astype(np.int64), rank, axis=1
        )

    @cached_property
    def bin_chances(self) -> Floats:
        inputs = np.arange(len(self.rows))[:, None]
        flat = np.bincount(
            (inputs * BINS + self.bins).ravel(),
            weights=self.rows.ravel(),
            minlength=len(self.rows) * BINS,
        )
        return np.asarray(flat.reshape(-1, BINS), dtype=np.float64)

    def count(self, tallies: dict[str, EventTally], name: str, inputs: Codes, codes: Codes) -> None:
        """Add reports to the tallies called `name`, of which there is one for each set."""
        for event, members in self.sets.items():
            tallies.setdefault(f"{name}: {event}", EventTally()).add(
                members[inputs, codes], self.chances[event][inputs]
            )


@dataclass
class Sampler:
    """Draws reports as codes, and checks everything that can be wrong with a single one."""

    randomizer: Randomizer
    rows: Floats
    forms: dict[int, bytes] = field(default_factory=dict)
    kinds: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    reports: int = 0

    def __call__(self, inputs: Codes, randomness: Randomness) -> Codes:
        values = self.randomizer.values_of(inputs.copy())
        before = values.copy() if isinstance(values, np.ndarray) else values
        reports = np.asarray(self.randomizer.reports(values, randomness))
        self.reports += len(inputs)
        if isinstance(values, np.ndarray) and before.tobytes() != values.tobytes():
            fail("reports(values) to leave the values alone", "values that were overwritten")
        if reports.ndim < 1 or len(reports) != len(inputs):
            fail(
                "one report per value", f"reports of shape {reports.shape} for {len(inputs)} values"
            )
        try:
            codes = np.asarray(self.randomizer.codes_of(reports))
        except DomainError as error:
            raise ConditionError(NAME, "reports that codes_of knows", f"this: {error}") from error
        if codes.shape != (len(inputs),) or codes.dtype.kind not in "iu":
            fail(
                "codes_of to give a whole number per report",
                f"{codes.dtype} of shape {codes.shape}",
            )
        codes = codes.astype(np.int64)
        outside = (codes < 0) | (codes >= self.rows.shape[1])
        if outside.any():
            row = int(np.argmax(outside))
            fail(
                f"reports with codes 0..{self.rows.shape[1] - 1}",
                f"the code {codes[row]} for input {inputs[row]}",
            )
        ruled_out = self.rows[inputs, codes] == 0.0
        if ruled_out.any():
            row = int(np.argmax(ruled_out))
            fail(f"no report of input {inputs[row]} that its law rules out", f"report {codes[row]}")
        self._check_forms(reports, codes)
        return codes

    def _check_forms(self, reports: Any, codes: Codes) -> None:
        """Check that a report reveals nothing but its code.

        All reports with one code are the same bytes, and all batches have the same type.
        """
        self.kinds.add((str(reports.dtype), reports.shape[1:]))
        if len(self.kinds) > 1:
            fail(
                "reports of one type and shape, whatever the values are",
                f"{' and '.join(str(kind) for kind in sorted(self.kinds))}",
            )
        if not len(codes) or reports.dtype.hasobject:
            return
        flat = (
            np.ascontiguousarray(reports)
            .reshape(len(codes), -1)
            .view(np.uint8)
            .reshape(len(codes), -1)
        )
        different, first, place = np.unique(codes, return_index=True, return_inverse=True)
        same = np.all(flat == flat[first][place], axis=1)
        for code, row in zip(different.tolist(), first.tolist(), strict=True):
            if self.forms.setdefault(code, flat[row].tobytes()) != flat[row].tobytes():
                same[row] = False
        if not same.all():
            row = int(np.argmin(same))
            fail(
                "reports that contain no more than their codes",
                f"reports with the code {codes[row]} that look different, such as {reports[row]!s}",
            )


@dataclass(frozen=True)
class DrawnReports:
    """The inputs and reports of one call."""

    inputs: Codes
    codes: Codes


def draw(
    randomizer: Randomizer, rows: Floats, draws: int | None, randomness: Randomness
) -> tuple[Sampler, list[DrawnReports], list[DrawnReports]]:
    """Draw reports of every input (of up to MAX_INPUTS).

    Half of them are drawn in calls with one input each, half in calls with all of them mixed.
    """
    sampler = Sampler(randomizer, rows)
    chosen = spread_inputs(len(rows), MAX_INPUTS)
    each = max(20_000, 3_000_000 // len(rows)) if draws is None else max(1, draws)
    if len(chosen) > 100:
        each = max(64, min(each, 4_000_000 // len(chosen)))
    calls = -(-MIN_CALLS // len(chosen))
    # One large call, and many small ones.
    sizes = [-(-each // 4), *[-(-each // (4 * calls))] * calls]
    alone = []
    for x in chosen.tolist():
        for size in sizes:
            inputs = np.full(size, x, dtype=np.int64)
            alone.append(DrawnReports(inputs, sampler(inputs, randomness)))
    everybody = randomness.shuffled(np.repeat(chosen, -(-each // 2)))
    mixed = []
    for start in range(0, len(everybody), REPORTS_PER_CALL):
        part = everybody[start : start + REPORTS_PER_CALL]
        mixed.append(DrawnReports(part, sampler(part, randomness)))
    return sampler, alone, mixed
