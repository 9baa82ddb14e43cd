"""Guarantees of sums and item-wise reports against laws by brute force."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.composition.composed_profile import ComposedProfile
from metricshuffle.accounting.composition.loss_distribution import dominating_losses, grid_step
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, delta_upper
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.accounting.sums.axis_losses import AxisLosses
from metricshuffle.accounting.sums.flipped_bit_count import RandomizedResponseProfile
from metricshuffle.accounting.sums.planar_noise import PlanarNoise
from metricshuffle.accounting.user_items.item_reports import ItemShuffle, ItemWiseProfile
from metricshuffle.accounting.user_items.single_item import every_distance
from metricshuffle.accounting.user_items.single_move_bounds import moves_of
from metricshuffle.accounting.user_items.subsampled_items import SubsampledProfile, report_loss
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.noise.bounded_sum import BoundedSum, shared_table
from metricshuffle.noise.polya import Polya
from metricshuffle.noise.random_rounding import rounded_half_width
from metricshuffle.numerics.types import Floats
from metricshuffle.privacy.profile import PrivacyProfile, PureProfile
from metricshuffle.protocols.item_accounts import OneItemProfile
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.exponential_mechanism import PaddedExponential
from metricshuffle.spaces.distance_matrix import Matrix
from metricshuffle.spaces.tree_detection import tree_below

ROOM = 1.0 + 1e-9  # for what this file itself rounds


def divergence(p: Floats, q: Floats, epsilon: float) -> float:
    return max(
        float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())
        for one, other in ((p, q), (q, p))
    )


def counts(rows: list[Floats]) -> dict[tuple[int, ...], float]:
    """How likely every vector of counts is, one report drawn from each row."""
    current: dict[tuple[int, ...], float] = {(0,) * len(rows[0]): 1.0}
    for row in rows:
        after: dict[tuple[int, ...], float] = {}
        for seen, mass in current.items():
            for report, chance in enumerate(row):
                key = (*seen[:report], seen[report] + 1, *seen[report + 1 :])
                after[key] = after.get(key, 0.0) + mass * float(chance)
        current = after
    return current


def shuffled(
    first: list[Floats], second: list[Floats], others: list[Floats]
) -> tuple[Floats, Floats]:
    one = counts([*first, *others])
    other = counts([*second, *others])
    keys = sorted({*one, *other})
    return np.array([one.get(key, 0.0) for key in keys]), np.array(
        [other.get(key, 0.0) for key in keys]
    )


def min_delta(
    profile: PrivacyProfile, epsilon: float, distance: float, shape: str = "linear", steps: int = 10
) -> float:
    """About the smallest delta that is certified; itself certified."""
    low = 1e-9
    high = 1.0
    for _ in range(steps):
        middle = math.sqrt(low * high)
        low, high = (
            (low, middle) if profile.covers(epsilon, middle, distance, shape) else (middle, high)  # type: ignore[arg-type]
        )
    return high


class Axis:
    """One coordinate: its profile, and the two laws of a move by d cells, both complete."""

    def __init__(self, kind: str, rng: random.Random) -> None:
        self.kind = kind
        self.rng = rng
        if kind == "bounded":
            table = shared_table(Polya(Fraction(1), rng.uniform(0.05, 1.0)), rng.randint(2, 12))
            count = rng.randint(1, 5)
            half = np.array([weight / 2**64 for weight in table.weights])
            whole = np.concatenate([half[:0:-1], half])
            self.law = np.ones(1)
            for _ in range(count):
                self.law = np.convolve(self.law, whole)
            self.profile: PrivacyProfile = AdditiveNoise(BoundedSum.of_table(table, count))
        elif kind == "geometric":
            rate = rng.uniform(0.2, 1.0)
            self.law = math.tanh(0.5 * rate) * np.exp(-rate * np.abs(np.arange(-150.0, 151.0)))
            self.profile = AdditiveNoise(Polya(Fraction(1), rate))
        else:
            self.bits = rng.randint(2, 40)
            self.flip = rng.uniform(0.05, 0.45)
            self.profile = RandomizedResponseProfile(self.bits, self.flip)

    def pair(self, d: int) -> tuple[Floats, Floats]:
        if self.kind == "bounded":
            return np.pad(self.law, (0, d)), np.pad(self.law, (d, 0))
        if self.kind == "geometric":  # what is left out is seen by nobody here
            return self.law[d:], self.law[: len(self.law) - d]
        d = min(d, self.bits)
        ones = self.rng.choice([0, (self.bits - d) // 2, self.bits - d])
        zero = np.array([1.0 - self.flip, self.flip])
        one = np.array([self.flip, 1.0 - self.flip])
        p = np.ones(1)
        for bit in range(self.bits - d):
            p = np.convolve(p, one if bit < ones else zero)
        q = p
        for _ in range(d):
            p = np.convolve(p, one)
            q = np.convolve(q, zero)
        return p, q


def attack_plane(rng: random.Random, kind: str) -> int:
    axis = Axis(kind, rng)
    radius = rng.uniform(1.0, 9.0)
    profile = PlanarNoise(axis.profile)
    epsilon = rng.uniform(0.1, 0.6) * radius
    flat = profile.delta(epsilon, radius)
    linear = min_delta(profile, epsilon, radius, steps=4)
    reach = math.floor(radius)
    cells = [
        (i, j)
        for i, j in product(range(reach + 1), repeat=2)
        if 0 < i * i + j * j <= radius * radius
    ]
    for i, j in rng.sample(cells, min(len(cells), 8)):
        (p, q), (r, s) = axis.pair(i), axis.pair(j)
        for one, other in (((p, r), (q, s)), ((p, s), (q, r))):
            first, second = (np.outer(*laws).ravel() for laws in (one, other))
            assert divergence(first, second, epsilon) <= flat * ROOM
            assert divergence(first, second, epsilon * math.hypot(i, j) / radius) <= linear * ROOM
    return 4 * min(len(cells), 8)


@pytest.mark.parametrize("kind", ["bounded", "geometric", "bits"])
def test_no_move_of_two_coordinates_gives_away_more(kind: str) -> None:
    assert attack_plane(random.Random(f"{kind} 1"), kind) > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bounded", "geometric", "bits"])
def test_no_move_of_two_coordinates_gives_away_more_many_times(kind: str) -> None:
    rng = random.Random(f"{kind} 2")
    assert sum(attack_plane(rng, kind) for _ in range(60)) > 1000


def test_moves_beyond_the_number_of_bits_are_those_of_all_bits() -> None:
    few = PlanarNoise(RandomizedResponseProfile(bits=3, flip=0.3))
    assert few.delta(0.5, 5.0) <= few.delta(0.5, 20.0)
    p, q = (
        np.convolve(np.convolve(law, law), law)
        for law in (np.array([0.3, 0.7]), np.array([0.7, 0.3]))
    )
    assert few.delta(0.5, 20.0) >= divergence(np.outer(p, p).ravel(), np.outer(q, q).ravel(), 0.5)


def test_what_is_not_a_number_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = RandomizedResponseProfile(bits=5000, flip=0.3)
    monkeypatch.setattr(
        RandomizedResponseProfile,
        "deltas",
        lambda self, rate, distance: np.full(int(distance), math.nan),
    )
    monkeypatch.setattr(
        RandomizedResponseProfile, "covers_at", lambda self, epsilon, delta, distance: distance == 8
    )
    assert not bits.covers(1.0, 1e-3, 8.0)


def test_small_steps_of_loss_lose_no_digit() -> None:
    """Curves at negative epsilons: 1 - x + x h(1/x), relative 1e-13 for any grid."""
    losses = AxisLosses.of(PureProfile(1e-7), 1, 1e-7, 1e-12)
    middle = losses.curves.shape[1] // 2
    for i in (1, 2, 3, 7):
        above = Fraction(float(losses.curves[1, middle + i]))
        x = (
            1
            - Fraction(losses.step) * i
            + (Fraction(losses.step) * i) ** 2 / 2
            - (Fraction(losses.step) * i) ** 3 / 6
        )  # below e^(-i step)
        wanted = 1 - x * (1 - above) - (Fraction(losses.step) * i) ** 4
        assert Fraction(float(losses.curves[1, middle - i])) >= wanted
        assert float(losses.curves[1, middle - i]) <= float(wanted) * (1.0 + 1e-12)


def attack_rounds(rng: random.Random, kind: str, most: int) -> None:
    axis = Axis(kind, rng)
    rounds = rng.choice([2, 3, 6])
    farthest = rng.randint(2, most)
    if kind == "bits":
        farthest = min(farthest, axis.bits)
    profile = ComposedProfile(((axis.profile, rounds),))
    epsilon = rng.uniform(0.3, 1.0) * farthest * math.sqrt(rounds)
    linear = min_delta(profile, epsilon, farthest, steps=4)
    for d in range(1, farthest + 1):
        p, q = axis.pair(d)
        for one, other in ((p, q), (q, p)):
            assert (
                rounded_down(one, other, rounds, epsilon * d / farthest)
                <= min(linear, profile.delta(epsilon * d / farthest, d)) * ROOM + 1e-14
            )


def rounded_down(p: Floats, q: Floats, rounds: int, epsilon: float) -> float:
    """Less than all rounds give away: every loss counts as the next smaller one of a grid."""
    step = max(1e-4, epsilon / 1000.0)
    certain = float(p[q == 0.0].sum())
    both = (p > 0.0) & (q > 0.0)
    cells = np.floor(np.log(p[both] / q[both]) / step).astype(np.int64)
    law = np.bincount(cells - cells.min(), p[both])
    total = np.ones(1)
    for _ in range(rounds):
        total = np.convolve(total, law)
    values = (rounds * cells.min() + np.arange(len(total))) * step
    far = values > epsilon
    return -math.expm1(rounds * math.log1p(-certain)) + float(
        np.sum(total[far] * -np.expm1(epsilon - values[far]))
    )


@pytest.mark.parametrize("kind", ["bounded", "geometric", "bits"])
def test_no_rounds_give_away_more(kind: str) -> None:
    attack_rounds(random.Random(f"{kind} 3"), kind, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bounded", "geometric", "bits"])
def test_no_rounds_give_away_more_many_times(kind: str) -> None:
    rng = random.Random(f"{kind} 4")
    for _ in range(25):
        attack_rounds(rng, kind, 4)


@check_all("rough", [0.0, 1e-13, 1e-11, 1e-3, 0.3])
def test_the_law_of_losses_dominates_every_pair(rough: float) -> None:
    rng = np.random.default_rng(5)
    for points in (1, 3, 40, 250):
        p = rng.dirichlet([0.5] * 6)
        q = rng.dirichlet([0.5] * 6)
        widest = float(np.abs(np.log(p / q)).max())
        step = grid_step(widest * rng.choice([0.5, 1.0, 1.4]) / points)
        curve = np.array([divergence(p, q, step * i) for i in range(points + 1)]) * (
            1.0 + 1e-14 + rough * rng.random(points + 1)
        )
        law = dominating_losses(np.minimum(curve, 1.0), step)
        at = np.arange(-points, points + 1) * step
        for epsilon in [
            *rng.uniform(-1.5 * widest, 1.5 * widest, 20),
            0.0,
            step,
            -step,
            points * step,
        ]:
            covered = law.infinite + float(
                np.sum(law.masses * np.maximum(-np.expm1(epsilon - at), 0.0))
            )
            assert divergence(p, q, float(epsilon)) <= covered * ROOM + 3e-16


def test_intervals_are_refused_where_the_noise_is_not_known_well_enough() -> None:
    law = Polya(Fraction(1), 0.5).law(-20.0)
    assert rounded_half_width(law, 5, 1e-8) > 0.0
    with pytest.raises(InputError, match="known to all but"):
        rounded_half_width(law, 5, 0.5 * law.outside)


def test_intervals_of_very_many_people_are_no_long_arrays() -> None:
    rounded = AdditiveRandomizer(span=100, shape=Fraction(1, 2), rate=0.5, granularity=4)
    assert rounded.half_width(2, 0.95, people=2**45) == pytest.approx(
        4 * math.sqrt(0.5 * 2**45 * math.log(2.0 / 0.025)), rel=1e-4
    )


@pytest.mark.parametrize("people", [1, 2, 3, 7])
def test_intervals_hold_for_every_data_set(people: int) -> None:
    law = Polya(Fraction(1), 0.9).law(-60.0)
    noise = np.concatenate([law.mass[:0:-1], law.mass])
    for shares in product([0.0, 0.02, 0.3, 0.5, 0.98], repeat=min(people, 3)):
        held = [*shares, *[shares[-1]] * (people - len(shares))]
        total = noise
        for share in held:
            total = np.convolve(total, [1.0 - share, share])
        errors = np.arange(len(total)) - law.radius - sum(held)
        for miss in (0.4, 0.05, 1e-4):
            assert (
                total[np.abs(errors) > rounded_half_width(law, people, miss) + 1e-9].sum()
                <= miss * ROOM
            )


@pytest.mark.parametrize(
    ("total", "users", "delta"), [(1.0, 100, 1e-5), (3.0, 2000, 1e-6), (0.3, 20, 1e-4)]
)
def test_single_items_pass_at_both_ends_of_every_piece(
    total: float, users: int, delta: float
) -> None:
    """The proof uses the clones of a piece's near end, so its far end must pass, too."""
    failing = 0.0
    rate = total * (1.0 - 1e-9)
    for _ in range(9):
        middle = 0.5 * (failing + rate)
        failing, rate = (
            (failing, middle)
            if every_distance(total, users, middle, delta, 1.0)[0]
            else (middle, rate)
        )
    kept, checks = every_distance(total, users, rate, delta, 1.0)
    assert kept
    for low, high in pairwise([0.0, *sorted(at for at, *_ in checks)]):
        near = math.tanh(0.5 * total * low)
        far = math.tanh(0.5 * total * high)
        mass = total + math.log1p(far) - math.log1p(near)  # of the clones, as a reach
        assert delta_upper(ClonePair(total * high, mass, mass), users, rate * high) <= delta * ROOM
        for part in (0.25, 0.5, 0.75):
            at = low + part * (high - low)
            assert (
                delta_upper(ClonePair(total * at, total, total), users, rate * at) <= delta * ROOM
            )


def line(rng: random.Random, points: int) -> tuple[Floats, Floats]:
    """Points from 0 to 1, and their distances."""
    places = np.array([0.0, *sorted(rng.random() for _ in range(points - 2)), 1.0])
    return places, np.abs(places[:, None] - places[None, :])


def attack_samples(rng: random.Random, *, with_laws: bool) -> None:
    places, distances = line(rng, 3)
    randomizer = PaddedExponential(distances, rng.uniform(0.5, 4.0))
    rows = randomizer.rows()[:, randomizer.rows().max(axis=0) > 0.0]
    samples = rng.randint(1, 3)
    users = rng.randint(1, 2)
    shuffle = ItemShuffle.of("central", users, samples, 1.0)
    moves = moves_of(randomizer, 1.0)
    own = max(move.rate for move in moves) * (1.0 + 1e-15)
    one = (
        ItemWiseProfile(own, shuffle, moves, "blanket flow")
        if with_laws
        else ItemWiseProfile(own, shuffle)
    )
    profile = SubsampledProfile(one, samples, 1.0)
    held = [
        np.bincount([rng.randrange(3) for _ in range(size)], minlength=3) / size
        for size in (rng.randint(1, 4), rng.randint(1, 3))
    ]
    apart = float(np.sum(np.abs(np.cumsum(held[0] - held[1])[:-1]) * np.diff(places)))
    if apart < 1e-3:
        return
    first = held[0] @ rows
    second = held[1] @ rows
    assert float(np.abs(np.log(first / second)).max()) <= report_loss(one.total, apart) * ROOM
    p, q = shuffled(
        [first] * samples,
        [second] * samples,
        [rows[rng.randrange(3)] for _ in range((users - 1) * samples)],
    )
    assert float(np.abs(np.log(p / q)).max()) <= profile.pure(apart) * ROOM
    for share in (0.0, 0.1, 0.4, 0.8):
        epsilon = share * profile.pure(apart)
        assert divergence(p, q, epsilon) <= profile.delta(epsilon, apart) * ROOM + 1e-15


@pytest.mark.parametrize("with_laws", [False, True])
def test_no_samples_give_away_more(with_laws: bool) -> None:
    rng = random.Random(8)
    for _ in range(2):
        attack_samples(rng, with_laws=with_laws)


@pytest.mark.slow
@pytest.mark.parametrize("with_laws", [False, True])
def test_no_samples_give_away_more_many_times(with_laws: bool) -> None:
    rng = random.Random(9)
    for _ in range(60):
        attack_samples(rng, with_laws=with_laws)


@check_all("shape", ["flat", "linear"])
def test_no_single_item_gives_away_more(shape: str) -> None:
    rng = random.Random(10)
    for _ in range(2):
        _, distances = line(rng, 3)
        randomizer = PaddedExponential(distances, rng.uniform(0.5, 4.0))
        users = rng.randint(1, 4)
        rows = randomizer.rows()[:, randomizer.rows().max(axis=0) > 0.0]
        radius = rng.uniform(0.4, 1.0)
        epsilon = rng.uniform(0.1, 0.9) * randomizer.rate * radius
        for profile in (
            OneItemProfile.of(randomizer, users),
            ItemWiseProfile(randomizer.rate, ItemShuffle.of("central", users, 1, 1.0)),
        ):
            delta = min_delta(profile, epsilon, radius, shape, steps=5)
            for a, b in product(range(3), repeat=2):
                if a != b and distances[a, b] <= radius:
                    p, q = shuffled(
                        [rows[a]], [rows[b]], [rows[rng.randrange(3)] for _ in range(users - 1)]
                    )
                    assert (
                        divergence(
                            p, q, epsilon if shape == "flat" else epsilon * distances[a, b] / radius
                        )
                        <= delta * ROOM
                    )


def test_padded_reports_keep_their_rate_on_the_table_itself() -> None:
    rng = random.Random(11)
    for _ in range(20):
        _, distances = line(rng, rng.randint(2, 6))
        scale = 10.0 ** rng.uniform(-4.0, 4.0)
        rate = 10.0 ** rng.uniform(-3.0, 2.0) / scale
        try:
            weights = PaddedExponential(distances * scale, rate).channel.weights
        except NotCertified:
            continue
        weights = weights[:, weights.max(axis=0) > 0]
        for a, b in product(range(len(weights)), repeat=2):
            assert weights[a].min() > 0
            largest = max(
                Fraction(int(x), int(y)) for x, y in zip(weights[a], weights[b], strict=True)
            )
            assert (
                math.log(largest) <= rate * float(distances[a, b] * scale) * (1.0 + 4e-16) + 4e-16
            )


def test_recognised_trees_are_never_longer_than_the_table() -> None:
    rng = random.Random(12)
    found = 0
    for _ in range(60):
        size = rng.randint(2, 10)
        above = [-1, *(rng.randrange(i) for i in range(1, size))]
        scale = 10.0 ** rng.uniform(-250.0, 250.0)
        lengths = [
            0.0,
            *(
                scale
                * rng.choice([1.0, 1.0 / 3.0, rng.random() + 1e-3, 10.0 ** rng.uniform(-6, 6)])
                for _ in range(1, size)
            ),
        ]
        table = np.array(
            [
                [float(_along(above, [Fraction(x) for x in lengths], i, j)) for j in range(size)]
                for i in range(size)
            ]
        )
        table = table * (
            1.0
            + rng.choice([0.0, 1e-15, 1e-7, 5e-6])
            * np.array([[(i * j) % 3 - 1 for j in range(size)] for i in range(size)])
        )
        for middle in range(size):
            table = np.minimum(table, table[:, middle : middle + 1] + table[middle : middle + 1, :])
        table = Matrix(table).distances
        if (tree := tree_below(table)) is None:
            continue
        found += 1
        parents = [int(parent) for parent in tree[0].parents]
        exact = [Fraction(float(length)) for length in tree[0].lengths]
        for i, j in product(range(size), repeat=2):
            assert _along(parents, exact, int(tree[1][i]), int(tree[1][j])) <= Fraction(
                float(table[i, j])
            )
    assert found > 30


def _along(parents: list[int], lengths: list[Fraction], i: int, j: int) -> Fraction:
    ways = []
    for point in (i, j):
        way = set()
        while point >= 0:
            way.add(point)
            point = parents[point]
        ways.append(way)
    return sum((lengths[point] for point in ways[0] ^ ways[1]), Fraction(0))
