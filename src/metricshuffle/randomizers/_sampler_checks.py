"""The parts of `check_randomizer` that check whether reports follow the law independently.

These are nine of thirteen families of tests (the others: `_batch_checks.py`). Their false alarm
probability is in `_sampler_evidence.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metricshuffle.numerics.types import Floats
from metricshuffle.randomizers._batch_checks import smallest_share
from metricshuffle.randomizers._checks import CLOSE_TOLERANCE, TOLERANCE, spread_inputs
from metricshuffle.randomizers._sampler_evidence import (
    BINS,
    FALSE_ALARM_PROBABILITY,
    MAX_INPUTS,
    REPORTS_PER_CALL,
    CountedRandomness,
    DrawnReports,
    Events,
    EventTally,
    Sampler,
    UnmarkedRandomness,
    check_tallies,
    fail,
    gamma_surprise,
    surprise,
    too_unlikely,
)
from metricshuffle.randomizers.randomizer import Codes, Pair, Randomizer
from metricshuffle.randomness import Randomness

# Spreads of frequencies relative to that of independent reports.
SPREADS = (0.3, 0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5, 2.0, 4.0, 16.0)
SIZES = (1, 2, 3, 5, 17)
REPEATED_CALLS = 40  # calls of each size that are made twice
LAGS = (1, 2, 3, 4, 7, 8, 16, 64, 1024, 8192, 16384, 32768)  # 8192 words are drawn at once
MAX_PAIRED = 2**18
MAX_PLACED = 2**20
MAX_CELLS = 2**22
WORD_BITS = 64


def check_law(
    rows: Floats, events: Events, alone: list[DrawnReports], mixed: list[DrawnReports]
) -> float:
    """Families 1 and 2: frequencies of every input in a few bins, and of every single report.

    Bins replace the reports if there are very many. Returns the smallest share of unrandomized
    reports of an input that would have been detected.
    """
    possible = events.bin_chances > 0.0
    tests = 2 * (len(rows) + 1)
    for batches, how in ((alone, "alone in a batch"), (mixed, "mixed with the others")):
        places = np.concatenate(
            [batch.inputs * BINS + events.bins[batch.inputs, batch.codes] for batch in batches]
        )
        seen = np.bincount(places, minlength=len(rows) * BINS).reshape(-1, BINS).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(
                seen > 0.0,
                seen * np.log(seen / (seen.sum(axis=1, keepdims=True) * events.bin_chances)),
                0.0,
            )
        sums = np.maximum(0.0, terms.sum(axis=1))
        was_drawn = seen.sum(axis=1) > 0.0
        shapes = np.maximum(0, possible.sum(axis=1) - 1)
        worst = max(
            (
                (gamma_surprise(float(sums[x]), int(shapes[x])), x)
                for x in np.flatnonzero(was_drawn).tolist()
            ),
            default=(0.0, 0),
        )
        together = gamma_surprise(float(sums[was_drawn].sum()), int(shapes[was_drawn].sum()))
        if too_unlikely(worst[0], tests):
            fail(
                f"reports of input {worst[1]} that follow its law",
                f"frequencies ({how}) of a chance below {math.exp(-worst[0]):.1g}",
            )
        if too_unlikely(together, tests):
            fail(
                "reports that follow their laws",
                f"frequencies of all inputs ({how}) that together have a chance below "
                f"{math.exp(-together):.1g}",
            )
    every = [*alone, *mixed]
    listed = rows.size <= MAX_CELLS
    chances = rows if listed else events.bin_chances
    seen_as = [batch.codes if listed else events.bins[batch.inputs, batch.codes] for batch in every]
    places = np.concatenate(
        [
            batch.inputs * chances.shape[1] + codes
            for batch, codes in zip(every, seen_as, strict=True)
        ]
    )
    counts = np.bincount(places, minlength=chances.size).reshape(chances.shape)
    trials = counts.sum(axis=1)
    surprises = surprise(counts, trials[:, None], chances)
    x, y = (int(place) for place in np.unravel_index(int(np.argmax(surprises)), chances.shape))
    if too_unlikely(float(surprises[x, y]), 2 * chances.size):
        fail(
            f"reports of input {x} that follow its law",
            f"{'report' if listed else 'bin'} {y} with the frequency "
            f"{counts[x, y] / trials[x]:.6g} where {chances[x, y]:.6g} is expected",
        )
    # A leak is hardest to detect at a report that is likely anyway.
    likeliest = np.minimum(chances.max(axis=1), 1.0 - 1e-12)
    hardest = int(
        np.argmax(np.where(trials > 0, likeliest / (1.0 - likeliest) / np.maximum(trials, 1), 0.0))
    )
    return smallest_share(int(trials[hardest]), float(likeliest[hardest]), 2 * chances.size)


def check_totals(
    randomizer: Randomizer,
    alone: list[DrawnReports],
    mixed: list[DrawnReports],
    randomness: Randomness,
) -> None:
    """Check that counts and totals agree with codes_of and debiasing."""
    debiasing = randomizer.debiasing()
    max_contribution = max(1.0, float(np.abs(debiasing).max()))
    for batch in (alone[0], alone[len(alone) // 2], alone[-1], mixed[0]):
        reports = randomizer.reports(
            randomizer.values_of(batch.inputs[:REPORTS_PER_CALL]), randomness
        )
        counts = np.bincount(
            np.asarray(randomizer.codes_of(reports)).astype(np.int64), minlength=randomizer.outputs
        )
        if not np.array_equal(np.asarray(randomizer.counts(reports)), counts):
            fail("counts(reports) to count codes_of(reports)", "other counts")
        totals, added = np.asarray(randomizer.totals(reports)), counts @ debiasing
        if totals.shape != added.shape or not np.allclose(
            totals,
            added,
            rtol=TOLERANCE,
            atol=CLOSE_TOLERANCE * len(batch.inputs) * max_contribution + TOLERANCE,
        ):
            off = (
                f"a difference of {np.abs(totals - added).max():.3g}"
                if totals.shape == added.shape
                else f"shape {totals.shape}"
            )
            fail("totals(reports) to add up debiasing()", off)


def check_positions(events: Events, mixed: list[DrawnReports]) -> None:
    """Family 3: the law is the same at every place of a batch."""
    tallies: dict[str, EventTally] = {}
    for batch in mixed[: MAX_PLACED // REPORTS_PER_CALL]:
        people = len(batch.codes)
        places = np.arange(people)
        for event, in_set in events.sets.items():
            hits = in_set[batch.inputs, batch.codes]
            chances = events.chances[event][batch.inputs]
            for step in range(2, 9):
                happened, expected, members = (
                    np.bincount(places % step, weights=part)
                    for part in (hits, chances, np.ones(people))
                )
                for residue in range(min(step, people)):
                    name = f"at places {residue} modulo {step}: {event}"
                    tallies.setdefault(name, EventTally()).add_sums(
                        happened[residue], int(members[residue]), expected[residue]
                    )
            for many in (64, 1024, 8192):
                tallies.setdefault(f"at the first {many}: {event}", EventTally()).add(
                    hits[:many], chances[:many]
                )
                tallies.setdefault(f"at the last {many}: {event}", EventTally()).add(
                    hits[-many:], chances[-many:]
                )
    check_tallies(tallies, "reports that do not depend on the place in the batch")


def check_neighbours(
    rows: Floats,
    events: Events,
    large: tuple[list[DrawnReports], list[DrawnReports]],
    small: tuple[list[DrawnReports], list[tuple[DrawnReports, DrawnReports]]],
) -> None:
    """Family 5: two reports agree (in a set, or in their codes) as often as independent ones."""
    matches = rows @ rows.T if len(rows) <= 1024 else None
    tallies: dict[str, EventTally] = {}

    def add(name: str, before: DrawnReports, places: tuple[Any, Any], after: DrawnReports) -> None:
        inputs = (before.inputs[places[0]], after.inputs[places[1]])
        codes = (before.codes[places[0]], after.codes[places[1]])
        for event, members in events.sets.items():
            hits = [members[x, y] for x, y in zip(inputs, codes, strict=True)]
            chances = [events.chances[event][x] for x in inputs]
            alike = chances[0] * chances[1] + (1.0 - chances[0]) * (1.0 - chances[1])
            tallies.setdefault(f"{name} that agree in {event}:", EventTally()).add(
                hits[0] == hits[1], alike
            )
        if matches is not None:
            tallies.setdefault(f"{name} that agree in their codes:", EventTally()).add(
                codes[0] == codes[1], matches[inputs[0], inputs[1]]
            )

    for batches, how in zip(large, ("of one input", "of different inputs"), strict=True):
        left = MAX_PAIRED
        largest = max(len(batch.codes) for batch in batches)
        for batch in batches:
            people = len(batch.codes)
            if people < largest // 2:
                continue
            halves = (slice(0, people // 2), slice(people - 1, people - 1 - people // 2, -1))
            for lag in LAGS:
                first = np.arange(max(0, people - lag))
                first = first[first // lag % 2 == 0]  # every report is in one pair only
                if first.size:
                    add(f"reports {lag} apart {how}", batch, (first, first + lag), batch)
            if people > 1:
                add(f"the first and the last {how}", batch, halves, batch)
            left -= people
            if left <= 0:
                break
    calls, again = small
    everybody = (slice(None), slice(None))
    for before, after in zip(calls[::2], calls[1::2], strict=False):
        if len(before.codes) == len(after.codes):
            add(f"reports of two calls of {len(before.codes)}", before, everybody, after)
    for before, after in again:
        add(
            f"reports of the same {len(before.codes)} people in two calls", before, everybody, after
        )
    check_tallies(tallies, "independent reports of different people")


def check_dispersion(events: Events, alone: list[DrawnReports], randomness: Randomness) -> None:
    """Family 6: frequencies vary between calls exactly as those of independent reports do."""
    from scipy.special import bdtr, ndtri

    def at_most(count: int, people: int, chance: float) -> float:
        return 0.0 if count < 0 else 1.0 if count >= people else float(bdtr(count, people, chance))

    event = "the most telling 50%"
    squares = 0.0
    calls = 0
    for batch in alone:
        x = int(batch.inputs[0])
        people = len(batch.codes)
        chance = float(events.chances[event][x])
        if not 0.0 < chance < 1.0:
            continue
        middle = people * chance
        away = abs(float(np.count_nonzero(events.sets[event][x, batch.codes])) - middle)
        nearer, at_hand = (
            max(
                0.0,
                at_most(math.floor(middle + reach), people, chance)
                - at_most(math.ceil(middle - reach) - 1, people, chance),
            )
            for reach in (away - 1e-6, away + 1e-6)
        )
        # P(closer to the mean) plus a random part of P(as close) is exactly uniform on 0..1, so
        # this is the absolute value of a normal number.
        rank = nearer + (at_hand - nearer) * ((randomness.below(2**53) + 0.5) / 2.0**53)
        squares += float(ndtri(0.5 + 0.5 * min(rank, 1.0 - 1e-15))) ** 2
        calls += 1
    for spread in SPREADS:
        # The ratio of the density of numbers `spread` times as large to the normal density has
        # mean 1 (Markov's inequality).
        if too_unlikely(
            0.5 * squares * (1.0 - 1.0 / spread**2) - calls * math.log(spread), len(SPREADS)
        ):
            where = "closer to" if spread < 1.0 else "farther from"
            fail(
                "calls whose frequencies vary as those of independent reports do",
                f"{calls} calls that are {where} their means",
            )


def check_calls(
    sampler: Sampler, events: Events, draws: int, randomness: Randomness
) -> tuple[list[DrawnReports], list[tuple[DrawnReports, DrawnReports]]]:
    """Family 4: small batches follow the law, and a call depends on values and stream only.

    First and last places are included. Returns the calls, and pairs of calls with the same people
    and different streams.
    """
    tallies: dict[str, EventTally] = {}
    made: list[DrawnReports] = []
    calls = max(REPEATED_CALLS, min(500, draws // 40))
    chosen = spread_inputs(len(sampler.rows), MAX_INPUTS)
    repeated: list[tuple[DrawnReports, int]] = []
    for size in SIZES:
        inputs = chosen[
            randomness.uniform_residues(calls * size, len(chosen)).astype(np.int64)
        ].reshape(calls, size)
        for number, part in enumerate(inputs):
            seed = randomness.below(2**128)
            batch = DrawnReports(part, sampler(part, UnmarkedRandomness.seeded(seed)))
            made.append(batch)
            if number < REPEATED_CALLS:
                repeated.append((batch, seed))
        codes = np.stack([batch.codes for batch in made[-calls:]])
        events.count(tallies, f"in batches of {size}", inputs.ravel(), codes.ravel())
        if size > 1:
            events.count(
                tallies, f"at the first place of batches of {size}", inputs[:, 0], codes[:, 0]
            )
            events.count(
                tallies, f"at the last place of batches of {size}", inputs[:, -1], codes[:, -1]
            )
    for batch, seed in reversed(repeated):
        if not np.array_equal(sampler(batch.inputs, UnmarkedRandomness.seeded(seed)), batch.codes):
            fail(
                "reports that depend on nothing but the values and the stream of randomness",
                f"others for a batch of {len(batch.codes)} when the same stream was given "
                "again, after other calls",
            )
    check_tallies(tallies, "reports that do not depend on the size of the batch")
    return made, [
        (batch, DrawnReports(batch.inputs, sampler(batch.inputs, randomness)))
        for batch, _ in repeated
    ]


def check_source(sampler: Sampler, events: Events, randomness: Randomness) -> None:
    """Families 7 and 8: reports take all their randomness from the stream, seeded or not."""
    rows = sampler.rows
    people = 4096
    chosen = spread_inputs(len(rows), MAX_INPUTS)
    inputs = chosen[randomness.uniform_residues(people, len(chosen)).astype(np.int64)]
    counted = CountedRandomness.seeded(randomness.below(2**128))
    codes = sampler(inputs, counted)
    other_codes = sampler(inputs, UnmarkedRandomness.seeded(randomness.below(2**128)))
    alike = -float(np.log(np.einsum("xy,xy->x", rows, rows))[inputs].sum())
    if np.array_equal(codes, other_codes) and too_unlikely(alike, 1):
        fail(
            "reports that differ when the stream of randomness does",
            f"the same {people:,} reports from two streams",
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(rows > 0.0, rows * np.log2(rows), 0.0).sum(axis=1)
    needed = float(entropy[inputs].sum())
    taken = WORD_BITS * counted.taken[0]
    # b bits make at most 2^b different batches, which cover almost all of the law only if b is
    # about the entropy.
    if needed > 1024.0 and taken < 0.5 * needed:
        fail(
            "reports that take all their randomness from the stream",
            f"{people:,} reports with {needed:,.0f} bits of it from {taken:,} bits",
        )
    tallies: dict[str, EventTally] = {}
    events.count(
        tallies,
        "with a stream keyed by the operating system",
        inputs,
        sampler(inputs, Randomness.system()),
    )
    check_tallies(tallies, "reports that follow their laws, whatever the stream")


def check_attack(randomizer: Randomizer, pair: Pair, draws: int, randomness: Randomness) -> None:
    """Family 9: an attack fitted on half of a sample is no better on the rest than local_epsilon.

    The attack guesses a for the reports that favour a in the first half.
    """
    from scipy.special import betaincinv

    a, b = pair
    claimed = randomizer.local_epsilon(a, b)
    if not claimed < math.inf:
        return

    def counts(x: int) -> Codes:
        return randomizer.counts(
            randomizer.reports(randomizer.values_of(np.full(draws, x, dtype=np.int64)), randomness)
        )

    event = counts(a) > math.exp(claimed) * counts(b)
    hits = [int(counts(x)[event].sum()) for x in pair]
    low = (
        float(betaincinv(hits[0], draws - hits[0] + 1, FALSE_ALARM_PROBABILITY / 2))
        if hits[0]
        else 0.0
    )
    high = (
        float(betaincinv(hits[1] + 1, draws - hits[1], 1.0 - FALSE_ALARM_PROBABILITY / 2))
        if hits[1] < draws
        else 1.0
    )
    if low > 0.0 and not math.log(low / high) <= claimed:
        fail(
            f"inputs {a} and {b} to be {claimed:.6g}-indistinguishable",
            f"an attack that shows {math.log(low / high):.6g}",
        )
