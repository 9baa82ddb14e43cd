"""Audit of a collection: an attack on its batches and a lower confidence bound on epsilon.

An audit can refute a guarantee and never prove one. Its result is true with the stated confidence
whatever the score, because the score, the pair of inputs, the other values and the event are all
chosen on some batches and counted on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from metricshuffle.auditing.distinguishing_event import (
    Event,
    Scored,
    WitnessedEpsilon,
    best_event,
    max_witnessed_epsilon,
    validate_scores,
)
from metricshuffle.auditing.neighbours import (
    Neighbours,
    distance_between,
    neighbours_of,
    promised_epsilon,
    words_of,
)
from metricshuffle.auditing.output_scores import learn_scores, row_of
from metricshuffle.auditing.simulated_batches import BatchScore, DrawnReports, drawn
from metricshuffle.display import Brief
from metricshuffle.display import HtmlRepr as ShownInNotebooks
from metricshuffle.errors import InputError, argument
from metricshuffle.models import format_value
from metricshuffle.numerics.rounding import (
    format_delta,
    format_distance,
    format_epsilon,
    format_lower_bound,
)
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import checked_delta, checked_epsilon
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.task import Task

if TYPE_CHECKING:
    from metricshuffle.planning.plan import Plan

Progress = Callable[[str], None]

MIN_BATCHES = 8
MAX_BATCHES = 10**9
"""Range of the number of batches on each input; with fewer batches, an audit shows nothing."""
DEFAULT_BATCHES = 10_000
DEFAULT_REPORTS = 10_000_000
"""Default limit of all reports on each input, with at least a tenth of DEFAULT_BATCHES batches."""
# Outputs of a function between two progress messages, at which it can be interrupted.
OUTPUTS_AT_ONCE = 500
# Relative tolerance for a guaranteed epsilon that is a decimal rounded to binary.
PROMISE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Audit(ShownInNotebooks, Brief):
    """Result: batches on two inputs are not (e, delta)-indistinguishable for any e below `epsilon`.

    This statement is true with the stated `confidence`.
    """

    epsilon: float
    delta: float
    confidence: float
    promised: float | None
    """Guaranteed epsilon for these inputs; None without a guarantee."""
    first: str
    second: str
    others: str
    """Values of the other people, if known."""
    batches: tuple[int, int]
    """Number of held-out batches, with the first input and with the second."""
    hits: tuple[int, int]
    """Number of these batches in which the event happened."""
    most: float
    """Largest epsilon that this number of batches could have shown."""

    @property
    def refuted(self) -> bool:
        """Whether the lower bound exceeds the guaranteed epsilon."""
        return self.promised is not None and self.epsilon > self.promised * (
            1.0 + PROMISE_TOLERANCE
        )

    def __str__(self) -> str:
        confidence = format_distance(float(f"{100 * self.confidence:.12g}"))  # never 100 %
        at = (
            f"epsilon {format_lower_bound(self.epsilon)} at delta {format_delta(self.delta)} "
            f"with confidence {confidence} %"
        )
        if self.refuted:
            verdict = (
                f"REFUTED: the shuffled output shows at least {at}, more than the promised "
                f"{format_epsilon(self.promised or 0.0)}."
            )
        elif self.promised is not None:
            verdict = (
                f"Consistent with the promised epsilon {format_epsilon(self.promised)}: the "
                f"shuffled output shows at least {at}."
            )
        else:
            verdict = f"The output shows at least {at}."
        counted = (
            f"One event happened in {self.hits[0]:,} of {self.batches[0]:,} batches with "
            f"{self.first} and in {self.hits[1]:,} of "
            f"{self.batches[1]:,} with "
            f"{self.second}{f', where {self.others}' if self.others else ''}; it was "
            "chosen by other batches."
        )
        reach = (
            f"So many batches could show up to epsilon {format_lower_bound(self.most)}; more "
            "of them show more."
        )
        return "\n".join([verdict, counted, reach])


def audit(
    source: Plan | Task | Callable[[Any], Any],
    first: object = None,
    second: object = None,
    *,
    batches: int | None = None,
    confidence: float = 0.95,
    others: object = None,
    observed: tuple[Sequence[Shuffled], Sequence[Shuffled]] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    score: Callable[[Any], float] | None = None,
    randomness: Randomness | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Attack a collection from outside and return a lower confidence bound on its epsilon.

    A plan or a task: one person holds `first` or `second` (by default as far apart as the guarantee
    covers) among `others` (by default a few data sets are tried) and as many people as the
    guarantee counts on; `batches` are drawn for each input by the real samplers. `observed`:
    batches of a deployed shuffler instead, those made with the first input and those with the
    second; the other reports in them must not depend on which input was used. The guarantee is the
    task's. A function: it is called with `first` or `second` and returns what the analyst would see
    (a number, an array, words or bytes). `score` turns an output into a number that is larger, or
    smaller, for `first`; without a `score`, several are learned. `epsilon` is the guarantee of the
    function, if any, at `delta` (default 0).
    """
    miss = 1.0 - _validate_confidence(confidence)
    task = source if isinstance(source, Task) else getattr(source, "task", None)
    if isinstance(task, Task):
        if epsilon is not None or delta is not None or score is not None:
            raise InputError(
                "epsilon, delta and score are for a function of your own; a task says what "
                "it promises."
            )
        if observed is not None:
            return _Observed(task, miss, first, second, observed, batches, others).audit()
        return _Drawing(task, miss, randomness, progress).audit(first, second, others, batches)
    if not callable(source):
        raise InputError(
            "audit needs a plan, a task or a function that makes batches, got "
            f"{format_value(source)}."
        )
    if others is not None or observed is not None:
        raise InputError(
            "others and observed batches belong to a task; a function holds whatever it "
            "needs itself."
        )
    claimed = None if epsilon is None else checked_epsilon(epsilon)
    return _own(
        source,
        first,
        second,
        batches,
        miss,
        claimed,
        checked_delta(0.0 if delta is None else delta),
        score,
        randomness,
        progress,
    )


def _validate_confidence(confidence: float) -> float:
    if (
        isinstance(confidence, bool)
        or not isinstance(confidence, int | float)
        or not 1e-12 <= confidence <= 1.0 - 1e-12
    ):
        raise InputError(
            f"{argument('confidence')} must lie strictly between 0 and 1 (0.95 for 95 %), "
            f"got {confidence!r}."
        )
    return float(confidence)


def _validate_batches(batches: int) -> int:
    if (
        isinstance(batches, bool)
        or not isinstance(batches, int)
        or not MIN_BATCHES <= batches <= MAX_BATCHES
    ):
        raise InputError(
            f"{argument('batches')} must be a whole number from {MIN_BATCHES} to 1e9, the batches "
            f"on each input, got {format_value(batches)}."
        )
    return batches


def _claim(task: Task, first: object, second: object) -> float:
    """Epsilon that a task guarantees for two inputs."""
    return promised_epsilon(
        task.guarantee, distance_between(task.query, task.protocol.step, first, second)
    )


def _told(
    shown_by: WitnessedEpsilon,
    miss: float,
    delta: float,
    claimed: float | None,
    words: tuple[str, str, str],
) -> Audit:
    seen = (shown_by.likelier, shown_by.other)
    first, second = reversed(seen) if shown_by.event.exchanged else seen
    return Audit(
        epsilon=shown_by.epsilon,
        delta=delta,
        confidence=1.0 - miss,
        promised=claimed,
        first=words[0],
        second=words[1],
        others=words[2],
        batches=(first.trials, second.trials),
        hits=(first.hits, second.hits),
        most=max_witnessed_epsilon(min(first.trials, second.trials), delta, miss),
    )


@dataclass(frozen=True)
class _Drawing:
    """Audit of batches that are simulated here."""

    task: Task
    miss: float
    randomness: Randomness | None
    progress: Progress | None

    def audit(self, first: object, second: object, others: Any, batches: int | None) -> Audit:
        """Choose the candidate and the event on half of the batches, count on the other half."""
        task = self.task
        delta = self.task.guarantee.delta
        people = task.minimum if others is None else len(others) + 1
        task.check_batch(people)
        tried = neighbours_of(task, people, first, second, others)
        claims = [_claim(task, trial.first, trial.second) for trial in tried]
        total = _usual_batches(task, people) if batches is None else _validate_batches(batches)
        each = max(2, total // 2 // len(tried))
        source = Randomness.system() if self.randomness is None else self.randomness
        trials: list[tuple[float, Neighbours, float, Event]] = []
        for number, (pair, claim) in enumerate(zip(tried, claims, strict=True)):
            words = f"choosing, {number + 1} of {len(tried)}"
            event, apparent = best_event(self._scored(pair, each, source, words), delta, self.miss)
            trials.append((apparent / claim, pair, claim, event))
        _, pair, claim, event = max(trials, key=lambda trial: trial[0])
        held_out = self._scored(pair, total - total // 2, source, "counting")
        names = tuple(words_of(task.query, value) for value in (pair.first, pair.second))
        return _told(
            WitnessedEpsilon.by(event, held_out, delta, self.miss),
            self.miss,
            delta,
            claim,
            (*names, pair.about_others),  # type: ignore[arg-type]
        )

    def _scored(self, pair: Neighbours, count: int, source: Randomness, words: str) -> Scored:
        """Scores of `count` batches on each input, summed over jointly guaranteed rounds."""
        score = BatchScore(self.task, pair)
        rounds = self.task.rounds
        sides: tuple[list[Floats], list[Floats]] = ([], [])
        done = 0
        for part in drawn(self.task, pair, count * rounds, source):
            for side, some in zip(sides, part, strict=True):
                side.append(score(some))
            done += len(part[0])
            if self.progress is not None:
                self.progress(f"{words}: {done // rounds:,} of {count:,} batches on each input")
        first, second = (
            validate_scores(np.concatenate(side).reshape(count, rounds).sum(axis=1))
            for side in sides
        )
        return first, second


def _usual_batches(task: Task, people: int) -> int:
    reports = people * max(1, task.protocol.layout.numbers) * task.rounds
    return max(DEFAULT_BATCHES // 10, min(DEFAULT_BATCHES, DEFAULT_REPORTS // reports))


@dataclass(frozen=True)
class _Observed:
    """Audit of batches released by a deployed shuffler."""

    task: Task
    miss: float
    first: Any
    second: Any
    observed: tuple[Sequence[Shuffled], Sequence[Shuffled]]
    batches: int | None
    others: Any

    def audit(self) -> Audit:
        """Choose the event on every other batch and count on the rest.

        If the files are in order of time, both halves then drift alike.
        """
        task = self.task
        if self.batches is not None or self.others is not None:
            raise InputError("observed batches are what they are; leave batches and others out.")
        if self.first is None or self.second is None:
            raise InputError(
                "say which two inputs were injected into the observed batches, the first "
                "and the second."
            )
        claim = _claim(task, self.first, self.second)
        sides = tuple(self._checked(side) for side in self.observed)
        if len(sides) != 2:
            raise InputError(
                "observed must be two lists, the batches with the first input and those "
                f"with the second, got {len(sides)}."
            )
        pair = Neighbours(self.first, self.second, None, "")
        learning: DrawnReports = (sides[0][::2], sides[1][::2])
        score = BatchScore(task, pair, [*learning[0], *learning[1]])
        delta = task.guarantee.delta
        event, _ = best_event(
            (validate_scores(score(learning[0])), validate_scores(score(learning[1]))),
            delta,
            self.miss,
        )
        held_out = validate_scores(score(sides[0][1::2])), validate_scores(score(sides[1][1::2]))
        words = (words_of(task.query, self.first), words_of(task.query, self.second), "")
        return _told(
            WitnessedEpsilon.by(event, held_out, delta, self.miss), self.miss, delta, claim, words
        )

    def _checked(self, side: Sequence[Shuffled]) -> list[Shuffled]:
        batches = list(side)
        if len(batches) < MIN_BATCHES or not all(isinstance(batch, Shuffled) for batch in batches):
            raise InputError(
                f"an audit needs at least {MIN_BATCHES} shuffled batches with each of the "
                f"two inputs, got {len(batches)}."
            )
        for batch in batches:
            self.task.check_batch(batch.people)
        return [self.task.read_shuffled(batch.to_bytes()) for batch in batches]


def _own(
    collect: Callable[[Any], Any],
    first: object,
    second: object,
    batches: int | None,
    miss: float,
    claimed: float | None,
    delta: float,
    score: Callable[[Any], float] | None,
    randomness: Randomness | None,
    progress: Progress | None,
) -> Audit:
    """Audit a user's function: learn scores on a quarter of the outputs, choose on a quarter."""
    total = DEFAULT_BATCHES if batches is None else _validate_batches(batches)
    source = Randomness.system() if randomness is None else randomness
    quarter = total // 4
    half = total // 2

    def outputs(count: int, words: str) -> tuple[list[Any], list[Any]]:
        """Outputs on both inputs, made in random order so that drift is not taken for the input."""
        sides: tuple[list[Any], list[Any]] = ([], [])
        for start in range(0, count, OUTPUTS_AT_ONCE):
            some = min(OUTPUTS_AT_ONCE, count - start)
            for which in source.shuffled(np.repeat(np.arange(2, dtype=np.int64), some)).tolist():
                output = collect((first, second)[which])
                sides[which].append(output if score is not None else row_of(output))
            if progress is not None:
                progress(f"{words}: {start + some:,} of {count:,} batches on each input")
        return sides

    def scored(outputs: Callable[[Any], Floats], sides: tuple[list[Any], list[Any]]) -> Scored:
        return validate_scores(outputs(sides[0])), validate_scores(outputs(sides[1]))

    if score is not None:
        fixed = score
        known: list[Callable[[Any], Floats]] = [
            lambda made: validate_scores([fixed(output) for output in made])
        ]
        choosing = outputs(half, "choosing")
    else:
        known = list(learn_scores(*outputs(quarter, "learning")))
        choosing = outputs(half - quarter, "choosing")
    events = [
        (best_event(scored(scored_event, choosing), delta, miss), scored_event)
        for scored_event in known
    ]
    (event, _), best = max(events, key=lambda scored_event: scored_event[0][1])
    held_out = scored(best, outputs(total - half, "counting"))
    return _told(
        WitnessedEpsilon.by(event, held_out, delta, miss),
        miss,
        delta,
        claimed,
        (format_value(first), format_value(second), ""),
    )
