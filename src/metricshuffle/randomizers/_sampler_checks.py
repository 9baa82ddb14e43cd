"""The parts of `metricshuffle.testing.check_randomizer` that draw reports: do they follow the law, independently, whatever is asked for?

Every test rests on one of two inequalities that hold for any number of draws, and not only in the limit:

* of n independent events of mean probability p (each may have its own), n q happen or more, q > p (or fewer, q < p), with probability at
  most exp(-n kl(q, p)) (Chernoff; Hoeffding 1963 for probabilities that differ);
* n KL(frequencies of n draws, law), summed over independent samples whose laws have d more cells than there are samples, has the moments
  of a gamma law of shape d at most (Agrawal 2020, "Finite-sample concentration of the multinomial in relative entropy"), so it exceeds
  s > d with probability at most exp(-s) (e s / d)^d. The same holds for sums of -log of d independent p-values.

False alarms: a family of tests may fail an honest randomizer with probability FAMILY, shared evenly by its tests; there are nine families.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np

from metricshuffle.errors import ConditionError, DomainError
from metricshuffle.numerics.types import Floats, Mask
from metricshuffle.randomizers._checks import CLOSE, NAME, TOLERANCE, spread_inputs
from metricshuffle.randomizers.randomizer import Codes, Pair, Randomizer
from metricshuffle.randomness import Randomness

FAMILY = 1e-7
MOST_INPUTS = 4096
BINS = 8
TOGETHER = 2**16  # reports a call
CALLS = 512  # with one input each, at least
SIZES = (1, 2, 3, 5, 17)
REPEATED = 40  # calls of each size that are made twice
LAGS = (1, 2, 3, 4, 7, 8, 16, 64, 1024, 8192, 16384, 32768)  # 8192 words are drawn at once
MOST_PAIRED, MOST_PLACED = 2**18, 2**20
MOST_CELLS = 2**22
WORD_BITS = 64


def surprise(hits: Any, trials: Any, mean: Any) -> Floats:
    """n kl(hits/n, mean): that many hits, or more extreme on their side, have a probability of at most e^-surprise."""
    trials = np.asarray(trials, dtype=np.float64)
    share, mean = np.asarray(hits) / np.maximum(trials, 1.0), np.clip(mean, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        happened = np.where(share > 0.0, share * np.log(share / mean), 0.0)
        missed = np.where(share < 1.0, (1.0 - share) * np.log((1.0 - share) / (1.0 - mean)), 0.0)
    return np.asarray(trials * np.maximum(0.0, happened + missed))


def gamma_surprise(total: float, shape: int) -> float:
    """-log of exp(-s) (e s / d)^d, or 0 if s <= d."""
    return total - shape * (1.0 + math.log(total / shape)) if total > shape > 0 else 0.0


def too_unlikely(surprised: float, tests: int) -> bool:
    """Whether one of `tests` tests of a family may raise an alarm."""
    return not surprised < math.log(max(1, tests) / FAMILY)


def fail(condition: str, got: str) -> NoReturn:
    raise ConditionError(NAME, condition, got)


class CountedRandomness(Randomness):
    """Tells how many words were taken from it and from its children."""

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
class Tally:
    """Events that were counted on, under one name: how many there were, how many happened, and the sum of their probabilities."""

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


def check_tallies(tallies: dict[str, Tally], condition: str) -> None:
    """A family: each of the tallies may be too small or too large."""
    for name, tally in tallies.items():
        if too_unlikely(tally.surprise, 2 * len(tallies)):
            fail(condition, f"{name} {tally.seen} (a chance below {math.exp(-min(tally.surprise, 700.0)):.1g})")


@dataclass
class Events:
    """For every input some sets of reports with known probabilities; what is counted in reports are hits of these."""

    rows: Floats

    @cached_property
    def _by_lift(self) -> tuple[Codes, Floats]:
        """(rank of every report, probability of the reports up to it), those first that an input has more often than the others."""
        mean = self.rows.mean(axis=0)
        order = np.argsort(-self.rows / np.where(mean > 0.0, mean, 1.0), axis=1, kind="stable")
        rank = np.argsort(order, axis=1, kind="stable")
        return rank, np.cumsum(np.take_along_axis(self.rows, order, axis=1), axis=1)

    def _first(self, rank: Codes, sums: Floats, share: float) -> Mask:
        """The first reports, as many as come closest to this probability."""
        return np.asarray(rank <= np.argmin(np.abs(sums - share), axis=1)[:, None])

    @cached_property
    def sets(self) -> dict[str, Mask]:
        rank, sums = self._by_lift
        places = np.broadcast_to(np.arange(self.rows.shape[1]), self.rows.shape)
        preferred = {f"the most telling {share:.0%}": self._first(rank, sums, share) for share in (0.25, 0.5, 0.75)}
        return {**preferred, "the smaller half of the codes": self._first(places, np.cumsum(self.rows, axis=1), 0.5)}

    @cached_property
    def chances(self) -> dict[str, Floats]:
        return {name: np.where(held, self.rows, 0.0).sum(axis=1) for name, held in self.sets.items()}

    @cached_property
    def bins(self) -> Codes:
        """Every report in one of a few bins per input: the reports themselves if they are few."""
        outputs = self.rows.shape[1]
        if outputs <= BINS:
            return np.broadcast_to(np.arange(outputs), self.rows.shape)
        rank, sums = self._by_lift
        middle = sums - 0.5 * np.diff(sums, axis=1, prepend=0.0)
        return np.take_along_axis(np.clip(np.floor(BINS * middle), 0, BINS - 1).astype(np.int64), rank, axis=1)

    @cached_property
    def bin_chances(self) -> Floats:
        inputs = np.arange(len(self.rows))[:, None]
        flat = np.bincount((inputs * BINS + self.bins).ravel(), weights=self.rows.ravel(), minlength=len(self.rows) * BINS)
        return np.asarray(flat.reshape(-1, BINS), dtype=np.float64)

    def count(self, tallies: dict[str, Tally], name: str, inputs: Codes, codes: Codes) -> None:
        """Add reports to the tallies of their group, one per set."""
        for event, held in self.sets.items():
            tallies.setdefault(f"{name}: {event}", Tally()).add(held[inputs, codes], self.chances[event][inputs])


@dataclass
class Sampler:
    """Draws reports as codes; what can be wrong with a single one is seen here."""

    randomizer: Randomizer
    rows: Floats
    forms: dict[int, bytes] = field(default_factory=dict)
    kinds: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def __call__(self, inputs: Codes, randomness: Randomness) -> Codes:
        values = self.randomizer.values_of(inputs.copy())
        before = values.copy() if isinstance(values, np.ndarray) else values
        reports = np.asarray(self.randomizer.reports(values, randomness))
        if isinstance(values, np.ndarray) and before.tobytes() != values.tobytes():
            fail("reports(values) to leave the values alone", "values that were overwritten")
        if reports.ndim < 1 or len(reports) != len(inputs):
            fail("one report per value", f"reports of shape {reports.shape} for {len(inputs)} values")
        try:
            codes = np.asarray(self.randomizer.codes_of(reports))
        except DomainError as wrong:
            raise ConditionError(NAME, "reports that codes_of knows", f"this: {wrong}") from wrong
        if codes.shape != (len(inputs),) or codes.dtype.kind not in "iu":
            fail("codes_of to give a whole number per report", f"{codes.dtype} of shape {codes.shape}")
        codes = codes.astype(np.int64)
        outside = (codes < 0) | (codes >= self.rows.shape[1])
        if outside.any():
            row = int(np.argmax(outside))
            fail(f"reports with codes 0..{self.rows.shape[1] - 1}", f"the code {codes[row]} for input {inputs[row]}")
        ruled_out = self.rows[inputs, codes] == 0.0
        if ruled_out.any():
            row = int(np.argmax(ruled_out))
            fail(f"no report of input {inputs[row]} that its law rules out", f"report {codes[row]}")
        self._check_forms(reports, codes)
        return codes

    def _check_forms(self, reports: Any, codes: Codes) -> None:
        """A report says nothing but its code: all reports with one code are the same bytes, and all batches of the same type."""
        self.kinds.add((str(reports.dtype), reports.shape[1:]))
        if len(self.kinds) > 1:
            fail("reports of one type and shape, whatever the values are", f"{' and '.join(str(kind) for kind in sorted(self.kinds))}")
        if not len(codes) or reports.dtype.hasobject:
            return
        flat = np.ascontiguousarray(reports).reshape(len(codes), -1).view(np.uint8).reshape(len(codes), -1)
        different, first, place = np.unique(codes, return_index=True, return_inverse=True)
        same = np.all(flat == flat[first][place], axis=1)
        for code, row in zip(different.tolist(), first.tolist(), strict=True):
            if self.forms.setdefault(code, flat[row].tobytes()) != flat[row].tobytes():
                same[row] = False
        if not same.all():
            row = int(np.argmin(same))
            fail(
                "reports that tell no more than their codes",
                f"reports with the code {codes[row]} that look different, such as {reports[row]!s}",
            )


@dataclass(frozen=True)
class Drawn:
    """One call: what people held and what they reported."""

    inputs: Codes
    codes: Codes


def draw(randomizer: Randomizer, rows: Floats, draws: int | None, randomness: Randomness) -> tuple[Sampler, list[Drawn], list[Drawn]]:
    """Reports of every input (of up to MOST_INPUTS): half of them in calls with one input each, half in calls with all of them mixed."""
    sampler, chosen = Sampler(randomizer, rows), spread_inputs(len(rows), MOST_INPUTS)
    each = max(20_000, 3_000_000 // len(rows)) if draws is None else max(1, draws)
    if len(chosen) > 100:
        each = max(64, min(each, 4_000_000 // len(chosen)))
    calls = -(-CALLS // len(chosen))
    sizes = [-(-each // 4), *[-(-each // (4 * calls))] * calls]  # one large call, and many small ones
    alone = []
    for x in chosen.tolist():
        for size in sizes:
            inputs = np.full(size, x, dtype=np.int64)
            alone.append(Drawn(inputs, sampler(inputs, randomness)))
    everybody, mixed = randomness.shuffled(np.repeat(chosen, -(-each // 2))), []
    for start in range(0, len(everybody), TOGETHER):
        part = everybody[start : start + TOGETHER]
        mixed.append(Drawn(part, sampler(part, randomness)))
    return sampler, alone, mixed


def check_law(rows: Floats, events: Events, alone: list[Drawn], mixed: list[Drawn]) -> None:
    """Families 1 and 2: frequencies of every input in a few bins, and of every single report."""
    held = events.bin_chances > 0.0
    tests = 2 * (len(rows) + 1)
    for batches, how in ((alone, "alone in a batch"), (mixed, "mixed with the others")):
        places = np.concatenate([batch.inputs * BINS + events.bins[batch.inputs, batch.codes] for batch in batches])
        seen = np.bincount(places, minlength=len(rows) * BINS).reshape(-1, BINS).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(seen > 0.0, seen * np.log(seen / (seen.sum(axis=1, keepdims=True) * events.bin_chances)), 0.0)
        sums, drawn = np.maximum(0.0, terms.sum(axis=1)), seen.sum(axis=1) > 0.0
        shapes = np.maximum(0, held.sum(axis=1) - 1)
        worst = max(((gamma_surprise(float(sums[x]), int(shapes[x])), x) for x in np.flatnonzero(drawn).tolist()), default=(0.0, 0))
        together = gamma_surprise(float(sums[drawn].sum()), int(shapes[drawn].sum()))
        if too_unlikely(worst[0], tests):
            fail(f"reports of input {worst[1]} that follow its law", f"frequencies ({how}) of a chance below {math.exp(-worst[0]):.1g}")
        if too_unlikely(together, tests):
            fail(
                "reports that follow their laws",
                f"frequencies of all inputs ({how}) that together have a chance below {math.exp(-together):.1g}",
            )
    if rows.size > MOST_CELLS:
        return
    every = [*alone, *mixed]
    places = np.concatenate([batch.inputs * rows.shape[1] + batch.codes for batch in every])
    counts = np.bincount(places, minlength=rows.size).reshape(rows.shape)
    surprises = surprise(counts, counts.sum(axis=1, keepdims=True), rows)
    x, y = (int(place) for place in np.unravel_index(int(np.argmax(surprises)), rows.shape))
    if too_unlikely(float(surprises[x, y]), 2 * rows.size):
        fail(
            f"reports of input {x} that follow its law",
            f"report {y} with the frequency {counts[x, y] / counts[x].sum():.6g} where {rows[x, y]:.6g} is expected",
        )


def check_totals(randomizer: Randomizer, alone: list[Drawn], mixed: list[Drawn], randomness: Randomness) -> None:
    """counts and totals are what codes_of and debiasing say."""
    debiasing = randomizer.debiasing()
    most = max(1.0, float(np.abs(debiasing).max()))
    for batch in (alone[0], alone[len(alone) // 2], alone[-1], mixed[0]):
        reports = randomizer.reports(randomizer.values_of(batch.inputs[:TOGETHER]), randomness)
        counts = np.bincount(np.asarray(randomizer.codes_of(reports)).astype(np.int64), minlength=randomizer.outputs)
        if not np.array_equal(np.asarray(randomizer.counts(reports)), counts):
            fail("counts(reports) to count codes_of(reports)", "other counts")
        totals, added = np.asarray(randomizer.totals(reports)), counts @ debiasing
        if totals.shape != added.shape or not np.allclose(totals, added, rtol=TOLERANCE, atol=CLOSE * len(batch.inputs) * most + TOLERANCE):
            off = f"a difference of {np.abs(totals - added).max():.3g}" if totals.shape == added.shape else f"shape {totals.shape}"
            fail("totals(reports) to add up debiasing()", off)


def check_positions(events: Events, mixed: list[Drawn]) -> None:
    """Family 3: the law is the same at every place of a batch."""
    tallies: dict[str, Tally] = {}
    for batch in mixed[: MOST_PLACED // TOGETHER]:
        people = len(batch.codes)
        places = np.arange(people)
        for event, held in events.sets.items():
            hits, chances = held[batch.inputs, batch.codes], events.chances[event][batch.inputs]
            for step in range(2, 9):
                happened, expected, members = (np.bincount(places % step, weights=part) for part in (hits, chances, np.ones(people)))
                for residue in range(min(step, people)):
                    name = f"at places {residue} modulo {step}: {event}"
                    tallies.setdefault(name, Tally()).add_sums(happened[residue], int(members[residue]), expected[residue])
            for many in (64, 1024, 8192):
                tallies.setdefault(f"at the first {many}: {event}", Tally()).add(hits[:many], chances[:many])
                tallies.setdefault(f"at the last {many}: {event}", Tally()).add(hits[-many:], chances[-many:])
    check_tallies(tallies, "reports that do not depend on the place in the batch")


def check_neighbours(
    rows: Floats, events: Events, large: tuple[list[Drawn], list[Drawn]], small: tuple[list[Drawn], list[tuple[Drawn, Drawn]]]
) -> None:
    """Family 5: two reports agree (in being in a set, or in their codes) as often as independent ones do."""
    matches = rows @ rows.T if len(rows) <= 1024 else None
    tallies: dict[str, Tally] = {}

    def add(name: str, before: Drawn, places: tuple[Any, Any], after: Drawn) -> None:
        inputs = (before.inputs[places[0]], after.inputs[places[1]])
        codes = (before.codes[places[0]], after.codes[places[1]])
        for event, held in events.sets.items():
            hits, chances = [held[x, y] for x, y in zip(inputs, codes, strict=True)], [events.chances[event][x] for x in inputs]
            alike = chances[0] * chances[1] + (1.0 - chances[0]) * (1.0 - chances[1])
            tallies.setdefault(f"{name} that agree in {event}:", Tally()).add(hits[0] == hits[1], alike)
        if matches is not None:
            tallies.setdefault(f"{name} that agree in their codes:", Tally()).add(codes[0] == codes[1], matches[inputs[0], inputs[1]])

    for batches, how in zip(large, ("of one input", "of different inputs"), strict=True):
        left = MOST_PAIRED
        for batch in batches:
            people = len(batch.codes)
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
        add(f"reports of the same {len(before.codes)} people in two calls", before, everybody, after)
    check_tallies(tallies, "independent reports of different people")


def check_dispersion(events: Events, alone: list[Drawn], randomness: Randomness) -> None:
    """Family 6: from call to call frequencies vary as those of independent reports do, no more and no less."""
    from scipy.special import bdtr

    def at_most(count: int, people: int, chance: float) -> float:
        return 0.0 if count < 0 else 1.0 if count >= people else float(bdtr(count, people, chance))

    event, inside, outside, calls = "the most telling 50%", 0.0, 0.0, 0
    for batch in alone:
        x, people = int(batch.inputs[0]), len(batch.codes)
        chance = float(events.chances[event][x])
        if not 0.0 < chance < 1.0:
            continue
        middle = people * chance
        away = abs(float(np.count_nonzero(events.sets[event][x, batch.codes])) - middle)
        nearer, near = (
            max(0.0, at_most(math.floor(middle + reach), people, chance) - at_most(math.ceil(middle - reach) - 1, people, chance))
            for reach in (away - 1e-6, away + 1e-6)
        )
        # P(closer to the mean), and a random part of P(as close): exactly uniform on 0..1.
        rank = nearer + (near - nearer) * ((randomness.below(2**53) + 0.5) / 2.0**53)
        inside -= math.log(min(1.0, max(rank, 1e-300)))
        outside -= math.log(min(1.0, max(1.0 - rank, 1e-300)))
        calls += 1
    condition = "calls whose frequencies vary as those of independent reports do"
    if too_unlikely(gamma_surprise(inside, calls), 2):
        fail(condition, f"{calls} calls that are closer to their means than chance allows")
    if too_unlikely(gamma_surprise(outside, calls), 2):
        fail(condition, f"{calls} calls that are farther from their means than chance allows")


def check_calls(sampler: Sampler, events: Events, draws: int, randomness: Randomness) -> tuple[list[Drawn], list[tuple[Drawn, Drawn]]]:
    """Family 4: small batches follow the law, first and last places included; and a call depends on nothing but values and stream.

    Returned are the calls, and pairs of calls with the same people and different streams.
    """
    tallies: dict[str, Tally] = {}
    made: list[Drawn] = []
    calls, chosen = max(REPEATED, min(500, draws // 40)), spread_inputs(len(sampler.rows), MOST_INPUTS)
    repeated: list[tuple[Drawn, int]] = []
    for size in SIZES:
        inputs = chosen[randomness.uniform_residues(calls * size, len(chosen)).astype(np.int64)].reshape(calls, size)
        for number, part in enumerate(inputs):
            seed = randomness.below(2**128)
            batch = Drawn(part, sampler(part, Randomness.seeded(seed)))
            made.append(batch)
            if number < REPEATED:
                repeated.append((batch, seed))
        codes = np.stack([batch.codes for batch in made[-calls:]])
        events.count(tallies, f"in batches of {size}", inputs.ravel(), codes.ravel())
        if size > 1:
            events.count(tallies, f"at the first place of batches of {size}", inputs[:, 0], codes[:, 0])
            events.count(tallies, f"at the last place of batches of {size}", inputs[:, -1], codes[:, -1])
    for batch, seed in reversed(repeated):
        if not np.array_equal(sampler(batch.inputs, Randomness.seeded(seed)), batch.codes):
            fail(
                "reports that depend on nothing but the values and the stream of randomness",
                f"others for a batch of {len(batch.codes)} when the same stream was given again, after other calls",
            )
    check_tallies(tallies, "reports that do not depend on the size of the batch")
    return made, [(batch, Drawn(batch.inputs, sampler(batch.inputs, randomness))) for batch, _ in repeated]


def check_source(sampler: Sampler, events: Events, randomness: Randomness) -> None:
    """Families 7 and 8: the randomness of reports is that of the stream, as much as they have; and a stream without a seed does as well."""
    rows, people = sampler.rows, 4096
    chosen = spread_inputs(len(rows), MOST_INPUTS)
    inputs = chosen[randomness.uniform_residues(people, len(chosen)).astype(np.int64)]
    counted = CountedRandomness.seeded(randomness.below(2**128))
    codes, other = sampler(inputs, counted), sampler(inputs, Randomness.seeded(randomness.below(2**128)))
    alike = -float(np.log(np.einsum("xy,xy->x", rows, rows))[inputs].sum())
    if np.array_equal(codes, other) and too_unlikely(alike, 1):
        fail("reports that differ when the stream of randomness does", f"the same {people:,} reports from two streams")
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(rows > 0.0, rows * np.log2(rows), 0.0).sum(axis=1)
    needed, taken = float(entropy[inputs].sum()), WORD_BITS * counted.taken[0]
    # b bits make at most 2^b different batches, which have all but a vanishing part of the law only if b is about the entropy.
    if needed > 1024.0 and taken < 0.5 * needed:
        fail(
            "reports that take all their randomness from the stream",
            f"{people:,} reports with {needed:,.0f} bits of it from {taken:,} bits",
        )
    tallies: dict[str, Tally] = {}
    events.count(tallies, "with a stream keyed by the operating system", inputs, sampler(inputs, Randomness.system()))
    check_tallies(tallies, "reports that follow their laws, whatever the stream")


def check_attack(randomizer: Randomizer, pair: Pair, draws: int, randomness: Randomness) -> None:
    """Family 9: reports that favour a in one half of a sample do not tell a from b better in the other half than local_epsilon says."""
    from scipy.special import betaincinv

    a, b = pair
    claimed = randomizer.local_epsilon(a, b)
    if not claimed < math.inf:
        return

    def counts(x: int) -> Codes:
        return randomizer.counts(randomizer.reports(randomizer.values_of(np.full(draws, x, dtype=np.int64)), randomness))

    event = counts(a) > math.exp(claimed) * counts(b)
    hits = [int(counts(x)[event].sum()) for x in pair]
    low = float(betaincinv(hits[0], draws - hits[0] + 1, FAMILY / 2)) if hits[0] else 0.0
    high = float(betaincinv(hits[1] + 1, draws - hits[1], 1.0 - FAMILY / 2)) if hits[1] < draws else 1.0
    if low > 0.0 and not math.log(low / high) <= claimed:
        fail(f"inputs {a} and {b} to be {claimed:.6g}-indistinguishable", f"an attack that shows {math.log(low / high):.6g}")
