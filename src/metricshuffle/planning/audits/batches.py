"""Shuffled batches of a task on two neighbouring inputs, drawn by its own samplers, and how much each looks like the first input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats
from metricshuffle.planning.audits.neighbours import Neighbours, law_of
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.sums import Sums
from metricshuffle.protocols.tally import Shuffled
from metricshuffle.protocols.vectors import NoisyVectors
from metricshuffle.queries.base import Inputs
from metricshuffle.randomizers.additive import AdditiveRandomizer
from metricshuffle.randomness import Randomness
from metricshuffle.wire.task import Task

# Rows of messages that are drawn at once.
ROWS_AT_ONCE = 2**18
TINY = 1e-300

Drawn = tuple[list[Shuffled], list[Shuffled]]
"""Batches in which the person holds the first input, and others in which she holds the second."""


def drawn(task: Task, pair: Neighbours, count: int, randomness: Randomness) -> Iterator[Drawn]:
    """`count` batches on each input, some at a time, made as clients and a shuffler make them.

    A batch on the first and one on the second input share the reports of the others. Batches on one input are independent of each other,
    which is all that is asked of them, and everything takes half the time. Every round that the promise covers is a batch of its own.
    """
    query, protocol = task.query, task.protocol
    others = query.inputs(list(pair.others), protocol.step) if pair.others else None
    alone = [query.inputs([value], protocol.step) for value in (pair.first, pair.second)]
    people = 1 if others is None else others.people + 1
    together = max(1, ROWS_AT_ONCE // people)
    for start in range(0, count, together):
        some = min(together, count - start)
        hers = [protocol.messages(_repeated(one, some), randomness) for one in alone]
        rows = np.empty((some, people, protocol.layout.numbers), dtype=hers[0].dtype)
        if others is not None:
            rows[:, 1:] = protocol.messages(_repeated(others, some), randomness).reshape(some, people - 1, -1)
        batches: Drawn = ([], [])
        for side, messages in zip(batches, hers, strict=True):
            rows[:, 0] = messages
            side += [task.publish(task.tally().add(batch, seeded=randomness.unsafe_seeded), randomness) for batch in rows]
        yield batches


def _repeated(inputs: Inputs, times: int) -> Inputs:
    sizes = None if inputs.sizes is None else np.tile(inputs.sizes, times)
    return Inputs(inputs.query, np.tile(inputs.numbers, (times, 1)), sizes)


@dataclass(frozen=True)
class BatchScore:
    """How much batches look like the first of two inputs: the logarithm of the likelihood ratio where the laws are known.

    Sums: the total along one axis, in which the ratio rises; along two, the ratio of the law of the noise. Counts of reports: with K_a,
    K_b, K_x the laws of a report of the first, the second and the others, the log of (sum of K_a/K_x)/(sum of K_b/K_x) over the
    reports, exact if the others are alike and everybody has one report. Vectors: the difference of their distances from both answers in
    the norm of the noise. `learning`: some batches, from which the law of the others is read where nobody knows what they hold.
    """

    task: Task
    pair: Neighbours
    learning: Sequence[Shuffled] = ()

    def __call__(self, batches: Sequence[Shuffled]) -> Floats:
        return self._scores(batches)

    @property
    def _scores(self) -> Callable[[Sequence[Shuffled]], Floats]:
        protocol = self.task.protocol
        if isinstance(protocol, Frequencies):
            return self._of_counts
        if isinstance(protocol, Sums):
            return self._of_totals
        if isinstance(protocol, NoisyVectors):
            return self._of_vectors
        raise InputError(f"no score is known for {protocol.name}; audit a function that makes its batches instead.")

    def _of_counts(self, batches: Sequence[Shuffled]) -> Floats:
        counts = _numbers(batches)
        laws = [np.maximum(law_of(self.task, held), TINY) for held in (self.pair.first, self.pair.second)]
        crowd = self._crowd_law(counts.shape[1])
        if crowd is None:
            return np.asarray(counts @ (np.log(laws[0]) - np.log(laws[1])))
        first, second = (np.log(np.maximum(counts @ (law / crowd), TINY)) for law in laws)
        return np.asarray(first - second)

    def _crowd_law(self, outputs: int) -> Floats | None:
        """The law of one of the others' reports, on average; None if there are no others."""
        if self.pair.others is None:
            seen = _numbers(self.learning).sum(axis=0) + 1.0 / outputs
            return np.asarray(seen / seen.sum())
        if not self.pair.others:
            return None
        inputs = self.task.query.inputs(list(self.pair.others), self.task.protocol.step)
        sizes = np.ones(inputs.people, dtype=np.int64) if inputs.sizes is None else inputs.sizes
        weights = np.bincount(inputs.numbers[:, 0], weights=1.0 / np.repeat(sizes, sizes)) / inputs.people
        randomizer = self.task.protocol.randomizer  # type: ignore[attr-defined]
        held = (int(code) for code in np.flatnonzero(weights))
        return np.asarray(np.maximum(sum(weights[code] * randomizer.law(code) for code in held), TINY))

    def _of_totals(self, batches: Sequence[Shuffled]) -> Floats:
        protocol, pair = self.task.protocol, self.pair
        assert isinstance(protocol, Sums)  # noqa: S101 - for the type checker
        totals = np.column_stack([_axis_totals(protocol, axis, batches) for axis in range(len(protocol.randomizers))])
        ends = [self._cells(value) for value in (pair.first, pair.second)]
        randomizer = protocol.randomizers[0]
        if len(protocol.randomizers) == 1 or pair.others is None or not isinstance(randomizer, AdditiveRandomizer):
            return np.asarray(totals @ (ends[0] - ends[1]))
        base = sum((self._cells(value) for value in pair.others), np.zeros(totals.shape[1]))
        law, scale = randomizer.scaled_error_law(protocol.noise_draws(len(pair.others) + 1))
        away = [np.minimum(np.rint(np.abs(totals - base - end) / scale).astype(np.int64), law.radius) for end in ends]
        return np.asarray((law.log_mass[away[0]] - law.log_mass[away[1]]).sum(axis=1))

    def _cells(self, value: Any) -> Floats:
        """A value in cells of the noise, along each axis."""
        protocol = self.task.protocol
        return np.asarray(self.task.query.inputs([value], protocol.step).numbers[0] / protocol.grain)

    def _of_vectors(self, batches: Sequence[Shuffled]) -> Floats:
        protocol, query, pair = self.task.protocol, self.task.query, self.pair
        assert isinstance(protocol, NoisyVectors)  # noqa: S101 - for the type checker
        people = 1 if pair.others is None else len(pair.others) + 1
        draws = protocol.draws(people)
        released = protocol.noise.middles(_numbers(batches), draws)
        table = protocol.features.coordinates(query).table

        def answer(held: Any) -> Floats:
            return np.asarray(table[query.inputs([held], protocol.step).numbers[:, 0]].mean(axis=0))

        ends = [answer(held) for held in (pair.first, pair.second)]
        if pair.others is None or draws > 1:  # a sum of many draws is nearly normal
            return np.asarray(released @ (ends[0] - ends[1]))
        base = sum((answer(held) for held in pair.others), np.zeros(table.shape[1]))
        order = {"l1": 1, "linf": np.inf}.get(protocol.noise.noise, 2)
        power = 2 if protocol.noise.noise == "gaussian" else 1
        first, second = (np.linalg.norm(released - base - end, ord=order, axis=1) ** power for end in ends)
        return np.asarray(second - first)


def _numbers(batches: Sequence[Shuffled]) -> Floats:
    return np.array([batch.numbers for batch in batches], dtype=np.float64)


def _axis_totals(protocol: Sums, axis: int, batches: Sequence[Shuffled]) -> Floats:
    """The totals of an axis in cells of the noise; counts of ones without their padding, residues as the numbers they stand for."""
    randomizer, encoding = protocol.randomizers[axis], protocol.encodings[axis]
    if protocol.modulus is None:
        padding = randomizer.radius if isinstance(randomizer, AdditiveRandomizer) else 0
        return np.array([batch.numbers[axis] - batch.people * padding for batch in batches], dtype=np.float64)
    centred = encoding.centred  # type: ignore[union-attr]
    return np.array([centred(batch.numbers[axis], 0, batch.people * randomizer.top) for batch in batches], dtype=np.float64)
