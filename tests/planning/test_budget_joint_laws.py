"""Joint laws of all released rounds, computed independently, against the budget.

Nothing here is taken from an account but the parameters of the noise. Reports with about the same
likelihood ratio are put together, which makes data sets harder to tell apart, so that whatever
refutes a price here refutes it in truth; laws without end are cut off where 1e-14 is left, and
1e-12 is forgiven.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from metricshuffle.planning import plan
from metricshuffle.planning.costs.joint_cost import joint_cost
from metricshuffle.planning.costs.task_cost import Price, TaskCost
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.features import space_of
from metricshuffle.protocols.features.feature_set import feature_table
from metricshuffle.queries import Centroid, Histogram, Mean, Sum
from metricshuffle.spaces import Categories, Grid, Integers, Interval
from metricshuffle.tasks import Task

pytestmark = pytest.mark.thorough

Law = NDArray[np.float64]
Pair = tuple[Law, Law]
"""What is seen in one round, of two neighbouring data sets."""
MOST_POINTS = 4000


def difference_of_counts(shape: float, rate: float, tail: float = 1e-14) -> tuple[Law, int]:
    """The law of A - B, both negative binomial (1: geometric), from -radius to radius."""
    one = [(1.0 - math.exp(-rate)) ** shape]
    ratio = math.exp(-rate)
    number = 0
    while one[-1] > tail or number * (1.0 - ratio) < 1.0:
        one.append(one[-1] * ratio * (shape + number) / (number + 1.0))
        number += 1
    return np.convolve(one, one[::-1]), len(one) - 1


def shifted(law: Law, steps: int) -> Pair:
    """A law, and the same so many steps farther."""
    nothing = np.zeros(abs(steps))
    pair = np.concatenate([law, nothing]), np.concatenate([nothing, law])
    return pair if steps >= 0 else pair[::-1]


def join_messages(pair: Pair, digits: int = 11) -> Pair:
    """Reports of the same likelihood ratio as one."""
    first, second = pair
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(first + second > 0.0, np.log(first) - np.log(second), 0.0)
    values, which = np.unique(np.round(np.clip(ratios, -700.0, 700.0), digits), return_inverse=True)
    joined = np.zeros(len(values)), np.zeros(len(values))
    np.add.at(joined[0], which, first)
    np.add.at(joined[1], which, second)
    return joined


def joint(pairs: Sequence[Pair]) -> Pair:
    """Of independent reports."""
    first = np.ones(1)
    second = np.ones(1)
    for one, other in map(join_messages, pairs):
        first, second = join_messages(
            (np.outer(first, one).ravel(), np.outer(second, other).ravel())
        )
        digits = 4
        while len(first) > MOST_POINTS and digits > 1:
            (first, second), digits = join_messages((first, second), digits), digits - 1
    return first, second


def exceeding(pair: Pair, epsilon: float) -> float:
    """Excess of one law over e^epsilon times the other on the worst set, either direction."""
    factor = math.exp(min(epsilon, 700.0))
    return max(
        float(np.maximum(one - factor * other, 0.0).sum()) for one, other in (pair, pair[::-1])
    )


def held(pair: Pair, price: Price) -> bool:
    return (
        math.isinf(price.epsilon)
        or exceeding(pair, price.epsilon * (1.0 + 1e-9)) <= price.delta * (1.0 + 1e-9) + 1e-12
    )


# What one round shows, for every way in which people may move


def parted(total: int, people: int) -> Iterator[tuple[int, ...]]:
    """Ways to move by so many steps in total."""
    yield (total,)
    if people > 1:
        for first in range(1, total // 2 + 1):
            yield (first, total - first)
    if people > 2 and total >= 3:
        yield (1, 1, total - 2)


def clamped(law: Law, radius: int, value: int, top: int, farthest: int) -> Law:
    """The law of a report of a value with that noise, clamped to -farthest .. top + farthest."""
    report = np.zeros(top + 2 * farthest + 1)
    places = np.clip(np.arange(-radius, radius + 1) + value, -farthest, top + farthest) + farthest
    np.add.at(report, places, law)
    return report


def tally_reports_partition(laws: Sequence[Law]) -> Law:
    total = np.ones(1)
    for law in laws:
        total = np.convolve(total, law)
    return total


def sum_rounds(task: Task, moved: tuple[int, ...]) -> Iterator[list[Pair]]:
    """Sums: people move by so many steps each."""
    protocol: Any = task.protocol
    noise = protocol.randomizers[0]
    if protocol.name == "randomized-response-shuffle":
        bits = task.honest * noise.span
        flip = noise.flip
        steps = sum(moved)
        for ones in sorted({0, (bits - steps) // 2, bits - steps}):
            yield [(flipped(ones, bits, flip), flipped(ones + steps, bits, flip))]
        return
    share, radius = difference_of_counts(float(noise.shape), noise.rate)
    if protocol.trusted == "nobody":
        yield [shifted(share, steps) for steps in moved]
    elif protocol.trusted == "curator":
        yield [shifted(share, sum(moved))]
    elif protocol.modulus is not None:
        total, _ = difference_of_counts(float(noise.shape * task.honest), noise.rate)
        yield [shifted(total, sum(moved))]
    else:
        for others in (0, noise.span // 2, noise.span):
            rest = tally_reports_partition(
                [clamped(share, radius, others, noise.span, noise.radius)]
                * (task.honest - len(moved))
            )
            for low in (True, False):
                ends = [(0, steps) if low else (noise.span - steps, noise.span) for steps in moved]
                mine = [
                    tally_reports_partition(
                        [clamped(share, radius, end[at], noise.span, noise.radius) for end in ends]
                    )
                    for at in (0, 1)
                ]
                yield [(np.convolve(rest, mine[0]), np.convolve(rest, mine[1]))]


def flipped(ones: int, bits: int, flip: float) -> Law:
    """The law of the ones among so many flipped bits."""
    return tally_reports_partition(
        [np.array([flip, 1.0 - flip])] * ones + [np.array([1.0 - flip, flip])] * (bits - ones)
    )


def counted(kinds: Sequence[Law]) -> dict[tuple[int, ...], float]:
    """The law of the counts of reports, each with its own law."""
    counts: dict[tuple[int, ...], float] = {(0,) * len(kinds[0]): 1.0}
    for law in kinds:
        more: dict[tuple[int, ...], float] = {}
        for seen, chance in counts.items():
            for report, likely in enumerate(law):
                key = (*seen[:report], seen[report] + 1, *seen[report + 1 :])
                more[key] = more.get(key, 0.0) + chance * float(likely)
        counts = more
    return counts


def label_rounds(task: Task, moved: tuple[int, int]) -> Iterator[list[Pair]]:
    """One person moves; the others hold the first, second or third value, or a mixture."""
    randomizer: Any = task.protocol.randomizer  # type: ignore[attr-defined]
    cells = randomizer.inputs
    lie = 1.0 / (math.exp(randomizer.epsilon) + cells - 1.0)
    rows = [
        np.array([lie if other != cell else 1.0 - (cells - 1) * lie for other in range(cells)])
        for cell in range(cells)
    ]
    before, after = moved
    if task.protocol.trusted == "nobody":
        yield [(rows[before], rows[after])]
        return
    third = next((cell for cell in range(cells) if cell not in moved), before)
    for others in ([before], [after], [third], [before, after], list(range(cells))):
        rest = [rows[others[person % len(others)]] for person in range(task.honest - 1)]
        one = counted([rows[before], *rest])
        other = counted([rows[after], *rest])
        yield [(np.array([one[key] for key in one]), np.array([other[key] for key in one]))]


def vector_rounds(task: Task, moves: Sequence[tuple[int, int]]) -> Iterator[list[Pair]]:
    """Noisy vectors in total: people move, and coordinates have independent noise."""
    protocol: Any = task.protocol
    space = space_of(task.query)
    table = np.asarray(feature_table(protocol.features, space).todense(), dtype=np.int64)
    change = sum(table[after] - table[before] for before, after in moves)
    laws = [difference_of_counts(1.0, float(rate))[0] for rate in protocol.rates(space)]
    yield [
        shifted(law, int(steps))
        for law, steps in zip(laws, np.asarray(change).tolist(), strict=True)
        if steps
    ]


def centroid_rounds(task: Task, distance: float) -> Iterator[list[Pair]]:
    """Places in total, on cells of 1: any number of people who move so far in total."""
    laws = [difference_of_counts(1.0, axis.rate)[0] for axis in task.protocol.randomizers]  # type: ignore[attr-defined]
    reach = range(math.floor(distance) + 1)
    for across, up in itertools.product(reach, reach):
        if 0 < math.hypot(across, up) <= distance:
            yield [
                shifted(law, steps) for law, steps in zip(laws, (across, up), strict=True) if steps
            ]


def rounded_rounds(task: Task, distance: float, people: int) -> Iterator[list[Pair]]:
    """Randomly rounded real numbers, with noise per person or on a curator's total."""
    protocol: Any = task.protocol
    noise = protocol.randomizers[0]
    law = difference_of_counts(1.0, noise.rate)[0]
    steps = round(distance / protocol.step)

    def report(value: int) -> Law:
        cell, beyond = divmod(value, noise.granularity)
        share = beyond / noise.granularity
        seen = np.zeros(len(law) + noise.top + 1)
        seen[cell : cell + len(law)] += (1.0 - share) * law
        seen[cell + 1 : cell + 1 + len(law)] += share * law
        return seen

    for start in (0, noise.granularity // 3, noise.granularity // 2):
        for moved in (
            parted(steps, min(people, 2))
            if steps < 4
            else ([(steps,), (steps // 2, steps - steps // 2)][: min(people, 2)])
        ):
            yield [(report(start), report(start + by)) for by in moved]


def rounds_of(task: Task, distance: float, people: int) -> list[list[Pair]]:
    """Views of one round for data sets `distance` apart, with that many movers."""
    if task.query.kind == "centroid":
        return list(centroid_rounds(task, distance))
    if task.query.kind == "mean":
        return list(rounded_rounds(task, distance, people))
    distance = math.floor(distance)
    if task.query.kind == "sum":
        span = task.query.domain.high  # type: ignore[attr-defined]
        return [
            pairs
            for moved in parted(distance, people)
            if max(moved) <= span
            for pairs in sum_rounds(task, moved)
        ]
    cells = task.query.cells  # type: ignore[attr-defined]
    near = [
        (one, other)
        for one, other in itertools.permutations(range(cells), 2)
        if isinstance(task.query.values_in, Categories) or abs(one - other) <= distance
    ]
    if task.protocol.kind == "frequencies":
        return [pairs for moved in near for pairs in label_rounds(task, moved)]
    ways: list[tuple[tuple[int, int], ...]] = [(move,) for move in near]
    if people > 1:
        ways += [
            pair
            for pair in itertools.product(near, near)
            if sum(abs(one - other) for one, other in pair) <= distance
        ]
    return [pairs for way in ways for pairs in vector_rounds(task, way) if pairs]


def own_reports(task: Task, stated: float) -> list[list[Pair]]:
    """What one person's own report shows by itself."""
    protocol: Any = task.protocol
    distance = math.floor(stated)
    if protocol.kind == "frequencies":
        alone = task.model_copy(
            update={"protocol": protocol.model_copy(update={"trusted": "nobody"})}
        )
        return rounds_of(alone, distance, 1)
    if protocol.trusted in ("nobody", "curator") or protocol.kind != "sums":
        return []  # what is said of them is said above, or nothing is
    noise = protocol.randomizers[0]
    pairs = []
    for before in range(noise.span - distance + 1):
        if protocol.name == "randomized-response-shuffle":
            pairs.append(
                [
                    (
                        flipped(before, noise.span, noise.flip),
                        flipped(before + distance, noise.span, noise.flip),
                    )
                ]
            )
            continue
        share, radius = difference_of_counts(float(noise.shape), noise.rate)
        if protocol.modulus is None:
            laws = [
                clamped(share, radius, value, noise.span, noise.radius)
                for value in (before, before + distance)
            ]
            pairs.append([(laws[0], laws[1])])
        else:
            pairs.append([shifted(share, distance)])
    return pairs


# Tasks


def sum_task(target: Target, span: int, people: int = 6, rounds: int = 1, **chosen: Any) -> Task:
    return plan(Sum(Integers(0, span, "h")), target, people, rounds=rounds, **chosen).task


def line_task(target: Target, cells: int, people: int = 6, rounds: int = 1, **chosen: Any) -> Task:
    return plan(
        Histogram(Integers(0, cells - 1, "h")), target, people, rounds=rounds, **chosen
    ).task


def label_task(
    target: Target, labels: int, people: int = 6, rounds: int = 1, **chosen: Any
) -> Task:
    return plan(
        Histogram(Categories([str(label) for label in range(labels)])),
        target,
        people,
        rounds=rounds,
        **chosen,
    ).task


def place_task(target: Target, rounds: int = 1) -> Task:
    return plan(
        Centroid(Grid(4, 3, 1.0)),
        target,
        6,
        rounds=rounds,
        trusted="curator",
        protocols=["geometric-central"],
    ).task


def real_task(target: Target, rounds: int = 1, **chosen: Any) -> Task:
    return plan(
        Mean(Interval(0.0, 4.0, "h")), target, 6, rounds=rounds, granularity=0.5, **chosen
    ).task


RESPONSE = ["randomized-response-shuffle"]
SHARED = ["polya-shuffle"]
LABELS = ["k-ary-randomized-response"]
MADE: dict[str, Callable[[], Task]] = {
    "local": lambda: sum_task(
        Target(1.0, 0.0, 3), 6, rounds=2, trusted="nobody", protocols=["geometric-local"]
    ),
    "local, flat": lambda: sum_task(
        Target(0.8, 0.0, 2, "flat"), 6, trusted="nobody", protocols=["geometric-local"]
    ),
    "curator": lambda: sum_task(
        Target(1.2, 0.0, 2), 6, rounds=3, trusted="curator", protocols=["geometric-central"]
    ),
    "curator, flat": lambda: sum_task(
        Target(0.7, 1e-2, 4, "flat"),
        6,
        rounds=2,
        trusted="curator",
        protocols=["geometric-central"],
    ),
    "bits": lambda: sum_task(Target(1.5, 2e-2, 2), 3, people=8, rounds=2, protocols=RESPONSE),
    "unary": lambda: sum_task(
        Target(1.5, 1e-2, 2), 3, people=4, rounds=2, encoding="unary", protocols=SHARED
    ),
    "unary, flat": lambda: sum_task(
        Target(1.0, 3e-2, 3, "flat"), 3, people=4, encoding="unary", protocols=SHARED
    ),
    "aggregated": lambda: sum_task(
        Target(1.0, 1e-2, 3), 4, rounds=2, trusted="aggregator", protocols=SHARED
    ),
    "labels": lambda: label_task(Target(1.5, 2e-2, 1), 3, people=8, rounds=2, protocols=LABELS),
    "local labels": lambda: label_task(
        Target(1.0, 0.0, 1), 3, rounds=2, trusted="nobody", protocols=LABELS
    ),
    "line": lambda: line_task(Target(1.5, 2e-2, 2), 3, people=8, protocols=LABELS),
    "local line": lambda: line_task(Target(1.0, 0.0, 2), 4, trusted="nobody", protocols=LABELS),
    "centroid": lambda: place_task(Target(1.0, 1e-2, 2), rounds=2),
    "centroid, flat": lambda: place_task(Target(1.3, 1e-2, 3, "flat")),
    "rounded": lambda: real_task(
        Target(1.0, 1e-2, 2), rounds=2, trusted="curator", protocols=["geometric-central"]
    ),
    "rounded, flat": lambda: real_task(
        Target(1.0, 1e-2, 1, "flat"), trusted="curator", protocols=["geometric-central"]
    ),
    "rounded, local": lambda: real_task(
        Target(1.0, 0.0, 2), rounds=2, trusted="nobody", protocols=["geometric-local"]
    ),
    "vectors": lambda: line_task(
        Target(1.0, 1e-2, 2), 4, rounds=2, trusted="curator", protocols=["noisy-vectors"]
    ),
    "vectors, flat": lambda: line_task(
        Target(1.0, 1e-2, 2, "flat"), 4, rounds=2, trusted="curator", protocols=["noisy-vectors"]
    ),
}


@cache
def made(kind: str) -> Task:
    return MADE[kind]()


@cache
def shown(kind: str, distance: float, people: int) -> list[list[Pair]]:
    return rounds_of(made(kind), distance, people)


def worst_of(choices: list[list[Pair]], at: float) -> list[Pair]:
    """The round that tells most, at that epsilon."""
    return max(choices, key=lambda pairs: exceeding(joint(pairs), at))


def people_of(task: Task) -> int:
    return 3 if task.guarantee.protects == "people together" else 1


def distances_of(task: Task) -> list[float]:
    """At which a promise is tried: every whole step, and, of real numbers, parts of a cell."""
    parts = (
        [0.0625, 0.25, 0.75]
        if task.query.kind == "mean"
        else [math.sqrt(2.0)]
        if task.query.kind == "centroid"
        else []
    )
    return [*parts, *map(float, range(1, math.floor(task.guarantee.distance) + 1))]


QUICK = ("local, flat", "curator", "bits", "line", "local line", "local labels")


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in MADE]
)
def test_no_price_of_one_task_is_too_small(kind: str) -> None:
    """Fewer, all and more rounds than planned; every distance; single reports."""
    task = made(kind)
    task.verify()
    claimed = task.guarantee
    compared = 0
    for rounds in range(1, task.rounds + 3):
        part = TaskCost(task, rounds)
        for distance in distances_of(task):
            price = part.at(distance)
            for pairs in shown(kind, distance, people_of(task)):
                assert held(joint(pairs * rounds), price), (rounds, distance, price)
                compared += 1
        for pairs in own_reports(task, claimed.distance):
            assert held(joint(pairs * rounds), part.alone), (rounds, part.alone)
            compared += 1
    assert compared >= 3


def refute(kinds: Sequence[str], rounds: Sequence[int]) -> int:
    """Compare the joint cost of tasks with the joint laws; return the number of laws."""
    parts = [TaskCost(made(kind), count) for kind, count in zip(kinds, rounds, strict=True)]
    found = joint_cost(parts)
    people = 3 if found.people_together else 1
    said = [(found.spent, [part.task.guarantee.distance for part in parts], rounds)]
    said.append((found.planned, said[0][1], [max(part.rounds, part.task.rounds) for part in parts]))
    if found.common is not None:
        said.append((found.common.spent, list(found.common.distances), rounds))
    compared = 0
    for price, distances, counts in said:
        for scale in (0.3, 0.6, 1.0):
            chosen = [
                worst_of(shown(kind, distance, people), price.epsilon * scale / len(kinds) / count)
                for kind, distance, count in zip(kinds, distances, counts, strict=True)
            ]
            everything = [
                pair for pairs, count in zip(chosen, counts, strict=True) for pair in pairs * count
            ]
            assert held(joint(everything), price), (kinds, counts, distances, price)
            compared += 1
    return compared


@pytest.mark.parametrize(
    ("kinds", "rounds"),
    [
        (("local labels", "curator"), (1, 2)),
        (("bits", "line"), (2, 1)),
    ],
)
def test_no_price_of_different_tasks_is_too_small(
    kinds: tuple[str, ...], rounds: tuple[int, ...]
) -> None:
    assert refute(kinds, rounds) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("first", MADE)
def test_no_price_of_any_two_or_three_tasks_is_too_small(first: str) -> None:
    """Every pair of the tasks above, below, at and above the planned rounds; some threes."""
    names = list(MADE)
    compared = 0
    for second in names[names.index(first) + 1 :]:
        for rounds in (
            (1, 1),
            (2, 1),
            (made(first).rounds, made(second).rounds),
            (made(first).rounds + 1, made(second).rounds + 1),
        ):
            compared += refute((first, second), rounds)
    third = (
        names[(names.index(first) + 5) % len(names)],
        names[(names.index(first) + 9) % len(names)],
    )
    compared += refute((first, *third), (1, 1, 1))
    assert compared >= 6


def test_several_people_move_where_one_person_s_law_would_say_less() -> None:
    """Two people who move by 1 are more distinguishable than one who moves by 2.

    That is so if each one's noise is a small share of many.
    """
    share, _ = difference_of_counts(0.2, 0.1)
    one = joint([shifted(share, 2)])
    two = joint([shifted(share, 1)] * 2)
    assert exceeding(two, 0.0) > exceeding(one, 0.0) + 0.05


def test_a_promise_about_people_together_is_not_priced_by_one_person_s_law() -> None:
    """A local task with an unneeded delta is priced by its pure noise.

    Not by one person's exact law.
    """
    honest = made("local")
    claimed = honest.guarantee.model_copy(update={"delta": 0.05})
    task = Task(**{**dict(honest), "guarantee": claimed, "digest": ""})
    task.verify()
    assert task.guarantee.protects == "people together"
    assert TaskCost(task, 1).price.epsilon == pytest.approx(0.5, rel=2e-3)
    account = task.protocol.account(
        task.query, task.target.model_copy(update={"epsilon": 0.3}), task.honest, 1
    )
    assert account.protects == "one person"
