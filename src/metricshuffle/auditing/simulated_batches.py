"""Shuffled batches of a task on two neighbouring inputs, and their likelihood-ratio scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from metricshuffle.auditing.neighbours import Neighbours, law_of
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_answers import NoisyAnswers
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.queries.exact_features import ExactAnswers
from metricshuffle.queries.query import Inputs
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomness import Randomness
from metricshuffle.tasks.task import Task

# Rows of messages that are drawn at once.
ROWS_AT_ONCE = 2**18
MIN_PROBABILITY = 1e-300

DrawnReports = tuple[list[Shuffled], list[Shuffled]]
"""Batches in which the person holds the first input, and batches with the second."""


def drawn(
    task: Task, pair: Neighbours, count: int, randomness: Randomness
) -> Iterator[DrawnReports]:
    """Yield `count` batches on each input, in parts, made as clients and a shuffler make them.

    A batch on the first and one on the second input share the reports of the others. Batches on one
    input are independent of each other; no other independence is needed, and sharing halves the
    time of drawing. Every round that the guarantee covers is a separate batch.
    """
    query = task.query
    protocol = task.protocol
    others = query.inputs(list(pair.others), protocol.step) if pair.others else None
    alone = [query.inputs([value], protocol.step) for value in (pair.first, pair.second)]
    people = 1 if others is None else others.people + 1
    together = max(1, ROWS_AT_ONCE // people)
    for start in range(0, count, together):
        some = min(together, count - start)
        hers = [protocol.messages(_repeated(own_value, some), randomness) for own_value in alone]
        rows = np.empty((some, people, protocol.layout.numbers), dtype=hers[0].dtype)
        if others is not None:
            rows[:, 1:] = protocol.messages(_repeated(others, some), randomness).reshape(
                some, people - 1, -1
            )
        batches: DrawnReports = ([], [])
        for side, messages in zip(batches, hers, strict=True):
            rows[:, 0] = messages
            side += [
                task.publish(task.tally().add(batch, seeded=randomness.unsafe_seeded), randomness)
                for batch in rows
            ]
        yield batches


def _repeated(inputs: Inputs, times: int) -> Inputs:
    sizes = None if inputs.sizes is None else np.tile(inputs.sizes, times)
    return Inputs(inputs.query, np.tile(inputs.numbers, (times, 1)), sizes)


@dataclass(frozen=True)
class BatchScore:
    """Score of a batch: the log likelihood ratio of the first to the second input, if known.

    Sums along one axis: the score is the total, because the ratio rises with it; along two axes,
    the ratio for the law of the noise. Counts of reports: let K_a, K_b and K_x be the laws of a
    report of the first input, the second and the others. The score is the log of (sum of
    K_a/K_x)/(sum of K_b/K_x) over the reports, exact if the others are alike and everyone has one
    report. Vectors: the score is the difference of the vector's distances from both answers in the
    norm of the noise. `learning`: some batches, from which the law of the others is estimated where
    their values are unknown.
    """

    task: Task
    pair: Neighbours
    learning: Sequence[Shuffled] = ()

    def __call__(self, batches: Sequence[Shuffled]) -> Floats:
        protocol = self.task.protocol
        if isinstance(protocol, Frequencies):
            return self._of_counts(protocol, batches)
        if isinstance(protocol, Sums):
            return self._of_totals(protocol, batches)
        if isinstance(protocol, NoisyAnswers):
            return self._of_vectors(protocol, batches)
        raise InputError(
            f"no score is known for {protocol.name}; audit a function that makes its "
            "batches instead."
        )

    def _inputs(self, values: Sequence[Any]) -> Inputs:
        return self.task.query.inputs(list(values), self.task.protocol.step)

    # Counts of reports

    def _of_counts(self, protocol: Frequencies, batches: Sequence[Shuffled]) -> Floats:
        counts, (first, second) = _numbers(batches), self._laws
        if self.pair.others is not None and not self.pair.others:
            return np.asarray(counts @ (np.log(first) - np.log(second)))
        logs = [
            np.log(np.maximum(counts @ (law / self._crowd_law), MIN_PROBABILITY))
            for law in (first, second)
        ]
        return np.asarray(logs[0] - logs[1])

    @cached_property
    def _laws(self) -> tuple[Floats, Floats]:
        first, second = (
            np.maximum(law_of(self.task, value), MIN_PROBABILITY)
            for value in (self.pair.first, self.pair.second)
        )
        return first, second

    @cached_property
    def _crowd_law(self) -> Floats:
        """Average law of the others' reports."""
        outputs = len(self._laws[0])
        if self.pair.others is None:
            seen = _numbers(self.learning).sum(axis=0) + 1.0 / outputs
            return np.asarray(seen / seen.sum())
        inputs = self._inputs(self.pair.others)
        sizes = np.ones(inputs.people, dtype=np.int64) if inputs.sizes is None else inputs.sizes
        weights = (
            np.bincount(inputs.numbers[:, 0], weights=1.0 / np.repeat(sizes, sizes)) / inputs.people
        )
        law = np.zeros(outputs)
        randomizer = self.task.protocol.randomizer  # type: ignore[attr-defined]
        for code in np.flatnonzero(weights):
            law += weights[code] * randomizer.law(int(code))
        return np.maximum(law, MIN_PROBABILITY)

    # Sums

    def _of_totals(self, protocol: Sums, batches: Sequence[Shuffled]) -> Floats:
        totals = np.column_stack(
            [_axis_totals(protocol, axis, batches) for axis in range(len(protocol.randomizers))]
        )
        first, second = self._inputs([self.pair.first, self.pair.second]).numbers / protocol.grains
        randomizer = protocol.randomizers[0]
        if (
            len(protocol.randomizers) == 1
            or self.pair.others is None
            or not isinstance(randomizer, AdditiveRandomizer)
        ):
            return np.asarray(totals @ (first - second))
        law, scale = randomizer.scaled_error_law(protocol.noise_draws(len(self.pair.others) + 1))
        away = [
            np.rint(np.abs(totals - self._total_of_others - end) / scale).astype(np.int64)
            for end in (first, second)
        ]
        first_score, second_score = (
            law.log_mass[np.minimum(cells, law.radius)].sum(axis=1) for cells in away
        )
        return np.asarray(first_score - second_score)

    @cached_property
    def _total_of_others(self) -> Any:
        """Total of the others along each axis, in cells of the noise."""
        others = self.pair.others
        return (
            self._inputs(others).numbers.sum(axis=0) / self.task.protocol.grains if others else 0.0  # type: ignore[attr-defined]
        )

    # Vectors

    def _of_vectors(self, protocol: NoisyAnswers, batches: Sequence[Shuffled]) -> Floats:
        others = self.pair.others
        draws = protocol.draws(1 if others is None else len(others) + 1)
        released = protocol.noise.middles(_numbers(batches), draws)
        first, second = self._answers([self.pair.first, self.pair.second], protocol)
        if others is None or draws > 1:  # a sum of many draws is nearly normal
            return np.asarray(released @ (first - second))
        if others:
            released = released - self._answers(others, protocol).sum(axis=0)
        order = {"l1": 1, "linf": np.inf}.get(protocol.noise.noise, 2)
        power = 2 if protocol.noise.noise == "gaussian" else 1
        first_score, second_score = (
            np.linalg.norm(released - end, ord=order, axis=1) ** power for end in (first, second)
        )
        return np.asarray(second_score - first_score)

    def _answers(self, values: Sequence[Any], protocol: NoisyAnswers) -> Floats:
        """Exact answers of users who hold these items, one row each."""
        inputs = self._inputs(values)
        assert inputs.sizes is not None  # noqa: S101 - for the type checker
        return ExactAnswers.of(
            protocol.features.coordinates(self.task.query), inputs.numbers[:, 0], inputs.sizes
        ).floats()


def _numbers(batches: Sequence[Shuffled]) -> Floats:
    return np.array([batch.numbers for batch in batches], dtype=np.float64)


def _axis_totals(protocol: Sums, axis: int, batches: Sequence[Shuffled]) -> Floats:
    """Totals of an axis in cells of the noise.

    Counts of ones without their padding; residues as the totals they encode.
    """
    randomizer = protocol.randomizers[axis]
    encoding = protocol.encodings[axis]
    if protocol.modulus is None:
        padding = randomizer.radius if isinstance(randomizer, AdditiveRandomizer) else 0
        return np.array(
            [batch.numbers[axis] - batch.people * padding for batch in batches], dtype=np.float64
        )
    centred = encoding.centred  # type: ignore[union-attr]
    return np.array(
        [centred(batch.numbers[axis], 0, batch.people * randomizer.top) for batch in batches],
        dtype=np.float64,
    )
