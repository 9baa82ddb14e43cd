"""Shuffled reports of up to a hundred users when all others hold one value, by definition.

It lists every vector of counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Floats = NDArray[np.float64]


def grouped(rows: Sequence[Sequence[float]]) -> list[Floats]:
    """Rows with proportional reports merged, which loses nothing and leaves fewer counts."""
    groups: dict[tuple[float, ...], Floats] = {}
    for column in np.array(rows, dtype=np.float64).T:
        if column.any():
            shape = tuple((column / column.sum()).round(12).tolist())
            groups[shape] = groups.get(shape, np.zeros(len(column))) + column
    return list(np.array(list(groups.values())).T)


def count_laws(
    a: Sequence[float], b: Sequence[float], other: Sequence[float], users: int
) -> tuple[Floats, Floats]:
    """Laws of the counts with the first user at a and at b.

    P(counts) = sum over z of K_a(z) Mult(n-1; counts - z; K_other).
    """
    first, second, rest = grouped([a, b, other])
    reports = len(rest)
    head = np.indices((users,) * (reports - 1)).reshape(reports - 1, -1).T
    head = head[head.sum(axis=1) < users]
    others = np.column_stack([head, users - 1 - head.sum(axis=1)])
    with np.errstate(divide="ignore", invalid="ignore"):
        log = (
            gammaln(users)
            - gammaln(others + 1.0).sum(axis=1)
            + np.where(others > 0, others * np.log(rest), 0.0).sum(axis=1)
        )
    law = np.exp(log)
    one = np.zeros((users + 1,) * (reports - 1))
    two = np.zeros((users + 1,) * (reports - 1))
    for z in range(reports):
        place = tuple((head + (np.arange(reports - 1) == z)).T)
        one[place] += first[z] * law
        two[place] += second[z] * law
    return one, two


def divergence(one: Floats, two: Floats, epsilon: float) -> float:
    """Hockey-stick divergence, the worse direction."""
    e = math.exp(epsilon)
    return max(
        float(np.maximum(one - e * two, 0.0).sum()), float(np.maximum(two - e * one, 0.0).sum())
    )
