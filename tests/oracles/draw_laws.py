"""Laws of drawn items by enumeration, and the worst pure mechanism on them by linear program."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog

Floats = NDArray[np.float64]
Counts = tuple[int, ...]
"""How many of a user's items are at each point."""


def counts_of(total: int, points: int) -> list[Counts]:
    """Every user with that many items."""
    return [
        tuple(np.bincount(chosen, minlength=points).tolist())
        for chosen in itertools.combinations_with_replacement(range(points), total)
    ]


def law_with_replacement(user: Counts, samples: int) -> Floats:
    """Law of the drawn items over `counts_of(samples, points)`."""
    shares = np.array(user) / sum(user)
    masses = [
        math.factorial(samples)
        * math.prod(
            share**count / math.factorial(count) for share, count in zip(shares, drawn, strict=True)
        )
        for drawn in counts_of(samples, len(user))
    ]
    return np.array(masses)


def law_without_replacement(user: Counts, samples: int) -> Floats:
    """The same for draws without replacement."""
    masses = [
        math.prod(math.comb(count, part) for count, part in zip(user, drawn, strict=True))
        / math.comb(sum(user), samples)
        for drawn in counts_of(samples, len(user))
    ]
    return np.array(masses)


def earth_mover(one: Counts, other: Counts, distances: Floats) -> float:
    """Distance of two users, by the best assignment of equally many copies of their items."""
    copies = math.lcm(sum(one), sum(other))
    rows = np.repeat(np.arange(len(one)), np.array(one) * (copies // sum(one)))
    columns = np.repeat(np.arange(len(other)), np.array(other) * (copies // sum(other)))
    costs = distances[np.ix_(rows, columns)]
    return float(costs[linear_sum_assignment(costs)].mean())


def random_metric(generator: np.random.Generator, points: int) -> Floats:
    """Distances of points with diameter 1: shortest paths over random edges."""
    edges = generator.random((points, points)) ** generator.choice([0.5, 1.0, 3.0])
    distances = np.minimum(edges, edges.T)
    np.fill_diagonal(distances, 0.0)
    for middle in range(points):
        distances = np.minimum(distances, distances[:, [middle]] + distances[[middle]])
    return np.asarray(distances / distances.max())


def sample_distances(samples: int, distances: Floats) -> Floats:
    """Earth mover's distances of all pairs of drawn items."""
    drawn = counts_of(samples, len(distances))
    return np.array([[earth_mover(a, b, distances) for b in drawn] for a in drawn])


def worst_loss(one: Floats, other: Floats, rate: float, apart: Floats) -> float:
    """Largest log ratio of an event's probabilities over all mechanisms of that pure rate.

    An event has some probability f(c) > 0 for drawn items c with f(c) <= e^(rate distance) f(c'),
    and every such f, made small enough, is an event of some mechanism of that rate. The ratio of
    its means under both laws is largest at a solution of a linear program.
    """
    size = len(one)
    rows = []
    for a, b in itertools.permutations(range(size), 2):
        row = np.zeros(size)
        row[a] = math.exp(-rate * apart[a, b])
        row[b] = -1.0
        rows.append(row)
    solved = linprog(
        -one,
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=other[None],
        b_eq=[1.0],
        bounds=(0.0, None),
    )
    assert solved.status == 0, solved.message
    assert solved.fun is not None
    return math.log(-solved.fun)
