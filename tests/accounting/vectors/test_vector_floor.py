"""Values randomized first: the guarantee of sums, the fallback, and where it fails."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, permutations, product

import numpy as np
import pytest
from tests.oracles import noisy_vectors as oracle
from tests.oracles.far_moves import large_move_delta
from tests.tables import check_all

from metricshuffle.accounting.vectors.compromised_shuffler import floor_loss
from metricshuffle.accounting.vectors.feature_changes import FeatureChanges, ideal_loss
from metricshuffle.errors import InputError

HALF = Fraction(1, 2)
THIRDS = Fraction(2, 3)
Point = tuple[int, int]


def ramps(size: int, width: int) -> list[oracle.Vector]:
    starts = range(0, size - 1, width)
    return [
        tuple(max(0, min(start + width, size - 1) - max(x, start)) for start in starts)
        for x in range(size)
    ]


def boxes(width: int) -> dict[Point, oracle.Vector]:
    """All diagonal shifts of width x width boxes on a grid of 3 x 3; width 1: cells."""
    found = {}
    for x, y in product(range(3), repeat=2):
        row: list[int] = []
        for shift in range(width):
            codes = sorted({(i + shift) // width for i in range(3)})
            row += [
                int(((x + shift) // width, (y + shift) // width) == box)
                for box in product(codes, repeat=2)
            ]
        found[x, y] = tuple(row)
    return found


def hats() -> dict[Point, oracle.Vector]:
    """Width 2 on a grid of 3 x 3: nodes at 0 and 2."""
    return {
        (x, y): tuple(
            max(0, 2 - abs(x - a)) * max(0, 2 - abs(y - b)) for a, b in product((0, 2), repeat=2)
        )
        for x, y in product(range(3), repeat=2)
    }


def changed(one: oracle.Vector, other: oracle.Vector, p: Fraction) -> FeatureChanges:
    sizes = np.abs(np.subtract(one, other)).astype(np.int64)
    return FeatureChanges(np.full(len(one), -math.log(p)), sizes, np.ones(len(one), dtype=np.int64))


def blurred(features: list[oracle.Vector], floor: Fraction) -> list[oracle.Law]:
    """For each point of a line the law of the features of its randomized value."""
    found: list[oracle.Law] = []
    for row in oracle.clamped_geometric(len(features), floor):
        law: oracle.Law = {}
        for vector, mass in zip(features, row, strict=True):
            law[vector] = law.get(vector, 0) + mass
        found.append(law)
    return found


@pytest.mark.parametrize(("size", "width"), [(4, 1), (5, 2), (4, 3)])
@pytest.mark.parametrize("people", [1, 2])
def test_lines_keep_their_promise(size: int, width: int, people: int) -> None:
    check_line(size, width, people)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "width"), [(4, 1), (5, 2), (6, 3)])
def test_lines_of_three_people_keep_their_promise(size: int, width: int) -> None:
    check_line(size, width, 3)


def check_line(size: int, width: int, people: int) -> None:
    """Every pair of data sets: the largest ratio is within the losses at the best matching."""
    features = ramps(size, width)
    ratios = [THIRDS] * len(features[0])
    tops = [people * max(column) for column in zip(*features, strict=True)]
    worst = 0.0
    for floor in (HALF, Fraction(1, 5)):
        laws = blurred(features, floor)
        crowds = combinations_with_replacement(range(size), people)
        data = {
            x: oracle.noisy_on_box(oracle.added([laws[i] for i in x]), ratios, tops) for x in crowds
        }
        for one, other in combinations(data, 2):
            bound = -math.log(THIRDS) * sum(abs(a - b) for a, b in zip(one, other, strict=True))
            loss = math.log(oracle.largest_ratio(data[one], data[other]))
            assert loss <= bound + 1e-12
            worst = max(worst, loss / bound)
    assert 0.3 < worst < 1.0


def grid_laws(features: dict[Point, oracle.Vector], floor: Fraction) -> dict[Point, oracle.Law]:
    axis = oracle.clamped_geometric(3, floor)
    found = {}
    for x, y in features:
        law: oracle.Law = {}
        for (a, b), vector in features.items():
            law[vector] = law.get(vector, 0) + axis[x][a] * axis[y][b]
        found[x, y] = law
    return found


def grid_bound(kind: str, dx: int, dy: int) -> float:
    rate = -math.log(THIRDS)
    if kind == "hats":
        return rate * 4.0 * (dx + dy)
    return 2.0 * rate * min({"cells": 1, "boxes": 2}[kind], dx + dy)


GRIDS = {"cells": boxes(1), "boxes": boxes(2), "hats": hats()}


@pytest.mark.parametrize("kind", GRIDS)
def test_grids_keep_their_promise(kind: str) -> None:
    features = GRIDS[kind]
    tops = [max(column) for column in zip(*features.values(), strict=True)]
    ratios = [THIRDS] * len(tops)
    # the bounds are true of the features themselves, and do not fall in either axis
    for one, other in combinations(features, 2):
        assert (
            ideal_loss(changed(features[one], features[other], THIRDS))
            <= grid_bound(kind, *steps(one, other)) + 1e-12
        )
    laws = {
        x: oracle.noisy_on_box(law, ratios, tops) for x, law in grid_laws(features, HALF).items()
    }
    for one, other in combinations(features, 2):
        assert (
            math.log(oracle.largest_ratio(laws[one], laws[other]))
            <= grid_bound(kind, *steps(one, other)) + 1e-12
        )


def steps(one: Point, other: Point) -> Point:
    return abs(one[0] - other[0]), abs(one[1] - other[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["boxes", "hats"])
def test_two_people_on_a_grid(kind: str) -> None:
    features = GRIDS[kind]
    tops = [2 * max(column) for column in zip(*features.values(), strict=True)]
    one_law = grid_laws(features, HALF)
    rng = np.random.default_rng(5)
    pairs = list(combinations_with_replacement(features, 2))
    chosen = [pairs[i] for i in rng.choice(len(pairs), 8, replace=False)]
    laws = {
        x: oracle.noisy_on_box(oracle.added([one_law[i] for i in x]), [THIRDS] * len(tops), tops)
        for x in chosen
    }
    for one, other in combinations(chosen, 2):
        bound = min(
            sum(grid_bound(kind, *steps(a, b)) for a, b in zip(one, order, strict=True))
            for order in permutations(other)
        )
        assert math.log(oracle.largest_ratio(laws[one], laws[other])) <= bound + 1e-12


@check_all("floor", [HALF, Fraction(1, 5), Fraction(9, 10)])
def test_far_moves_stay_within_the_moves_that_are_no_farther(floor: Fraction) -> None:
    features = ramps(5, 1)
    laws = [oracle.noisy_on_box(law, [THIRDS] * 4, [1] * 4) for law in blurred(features, floor)]
    assert all(sum(law.values()) == 1 for law in laws)
    for one, other in combinations(range(5), 2):
        for epsilon in (0.0, 0.2, 0.6, 1.0):
            delta = float(oracle.hockey_stick(laws[one], laws[other], Fraction(math.exp(epsilon))))
            assert (
                delta
                <= large_move_delta(changed(features[one], features[other], THIRDS), epsilon)
                * (1 + 1e-12)
                + 1e-15
            )


def test_the_fallback_is_that_of_the_value() -> None:
    """One vector with its share of noise (shape 1/50): at most rho per step with a floor.

    Nearly no protection without one.
    """
    features = ramps(4, 1)
    share = oracle.polya_residues(Fraction(1, 50), 0.4, 5)
    q = 5

    def seen(law: oracle.Law) -> dict[oracle.Vector, float]:
        found = {}
        for z in product(range(q), repeat=3):
            found[z] = sum(
                float(mass) * math.prod(share[(a - b) % q] for a, b in zip(z, s, strict=True))
                for s, mass in law.items()
            )
        return found

    bare, floored = (
        [seen({vector: 1.0}) for vector in features],
        [seen(law) for law in blurred(features, HALF)],
    )
    for one, other in combinations(range(4), 2):
        loss, without = (
            max(abs(math.log(laws[one][z] / laws[other][z])) for z in laws[one])
            for laws in (floored, bare)
        )
        assert loss <= floor_loss(-math.log(HALF), other - one) * (1 + 1e-12)
        assert without > 3.5 * (other - one)


def test_the_loss_of_a_randomized_value_is_attained() -> None:
    rows = oracle.clamped_geometric(5, HALF)
    for one, other in combinations(range(5), 2):
        ratio = max(max(a / b, b / a) for a, b in zip(rows[one], rows[other], strict=True))
        assert math.log(ratio) == pytest.approx(floor_loss(math.log(2.0), other - one), rel=1e-14)
    assert floor_loss(0.1, 3.0) >= 0.1 * 3
    assert floor_loss(0.1, 0.0) == 0.0
    for rate, steps in ((0.0, 1.0), (math.nan, 1.0), (1.0, math.nan), (1.0, -1.0)):
        with pytest.raises(InputError):
            floor_loss(rate, steps)


def test_no_floor_for_different_numbers_of_items() -> None:
    """{a} against {a, a}, at distance 0: two points, two units, noise ratio 1/2."""
    stay = Fraction(2, 3)
    leave = Fraction(1, 3)
    assert oracle.clamped_geometric(2, HALF) == [[stay, leave], [leave, stay]]
    one: dict[oracle.Vector, Fraction] = {(2,): stay, (0,): leave}
    two: dict[oracle.Vector, Fraction] = {(2,): stay**2, (1,): 2 * stay * leave, (0,): leave**2}
    laws = [oracle.noisy_on_box(law, [HALF], [2]) for law in (one, two)]
    assert oracle.largest_ratio(*laws) == Fraction(13, 9)
    assert math.log(13 / 9) == pytest.approx(0.3677, abs=1e-4)
    # and without noise on the sums a 1 gives the number of items away
    assert (1,) in two
    assert (1,) not in one


def test_no_floor_on_a_star() -> None:
    """Eight leaves around a centre: a floor of r^distance hurts the guarantee about sums."""
    leaves = 8
    r = Fraction(1, 20)
    features = [tuple(int(i == j) for j in range(leaves)) for i in range(leaves + 1)]
    laws = []
    for x in (0, leaves):
        weights = [r ** ((x != y) * (1 if leaves in (x, y) else 2)) for y in range(leaves + 1)]
        law = {
            vector: weight / sum(weights) for vector, weight in zip(features, weights, strict=True)
        }
        laws.append(oracle.noisy_on_box(law, [THIRDS] * leaves, [1] * leaves))
    promised = ideal_loss(changed(features[0], features[leaves], THIRDS))
    assert math.log(oracle.largest_ratio(*laws)) == pytest.approx(1.15826 * promised, rel=1e-5)
