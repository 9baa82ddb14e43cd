"""Noisy vectors in fractions and many digits, without code of the package.

Laws of sums, of whole views, and of shares of noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import mpmath
import numpy as np

Vector = tuple[int, ...]
Law = dict[Vector, Any]


def laplace_residue(z: int, p: Fraction, q: int) -> Fraction:
    """P(Z = z mod q), Z discrete Laplace of ratio p."""
    z %= q
    return (1 - p) / (1 + p) * (p**z + p ** (q - z)) / (1 - p**q)


def polya_residues(shape: Fraction, rate: float, q: int) -> list[float]:
    """Law of SGDL(shape, e^-rate) modulo q, by inverting its characteristic function."""
    with mpmath.workdps(40):
        b = mpmath.mpf(shape.numerator) / shape.denominator
        p = mpmath.exp(-mpmath.mpf(rate))
        phi = [
            ((1 - p) ** 2 / (1 - 2 * p * mpmath.cos(2 * mpmath.pi * j / q) + p * p)) ** b
            for j in range(q)
        ]
        return [
            float(mpmath.fsum(phi[j] * mpmath.cos(2 * mpmath.pi * j * z / q) for j in range(q)) / q)
            for z in range(q)
        ]


def hockey_stick(one: Mapping[Any, Any], other: Mapping[Any, Any], factor: Any) -> Any:
    """Sum of max(0, P - factor Q)."""
    return sum(max(mass - factor * other.get(key, 0), 0) for key, mass in one.items())


def largest_ratio(one: Mapping[Any, Fraction], other: Mapping[Any, Fraction]) -> Fraction:
    """Largest P/Q or Q/P."""
    return max(max(mass / other[key], other[key] / mass) for key, mass in one.items())


def noisy_on_box(
    sums: Mapping[Vector, Fraction], ratios: Sequence[Fraction], tops: Sequence[int]
) -> dict[Vector, Fraction]:
    """Law of S + Z, Z discrete Laplace of these ratios, each coordinate clamped to 0..top.

    top >= 1. Beyond the box every coordinate's mass falls by its ratio per step, whatever S in the
    box is, so clamping keeps all ratios of two laws.
    """
    box: Any = np.full([top + 1 for top in tops], Fraction(0), dtype=object)
    for s, mass in sums.items():
        box[s] += mass
    for axis, (p, top) in enumerate(zip(ratios, tops, strict=True)):
        box = np.moveaxis(
            np.tensordot(
                box, np.array(clamped_geometric(top + 1, p), dtype=object), axes=([axis], [0])
            ),
            -1,
            axis,
        )
    return {z: box[z] for z in np.ndindex(*box.shape)}


def clamped_geometric(size: int, p: Fraction) -> list[list[Fraction]]:
    """Row x: the law of x plus two-sided geometric noise of ratio p, clamped to 0..size-1."""
    return [
        [
            (1 - p) / (1 + p) * p ** abs(x - y) / (1 - p if y in (0, size - 1) else 1)
            for y in range(size)
        ]
        for x in range(size)
    ]


def added(laws: Iterable[Mapping[Vector, Any]]) -> Law:
    """Law of the sum of independent vectors."""
    total: Law | None = None
    for law in laws:
        if total is None:
            total = dict(law)
            continue
        following: Law = {}
        for a, mass in total.items():
            for b, chance in law.items():
                key = tuple(map(int.__add__, a, b))
                following[key] = following.get(key, 0) + mass * chance
        total = following
    assert total is not None
    return total


@cache
def share_laws(moduli: Vector, messages: int) -> dict[Vector, Law]:
    """Law of the multiset of shares (counts of elements) of each element of Z_q1 x ... x Z_qb."""
    elements = list(product(*map(range, moduli)))
    place = {element: i for i, element in enumerate(elements)}
    chance = Fraction(1, len(elements) ** (messages - 1))
    found: dict[Vector, Counter[Vector]] = {element: Counter() for element in elements}
    # by convolution of multisets: (multiset, sum) of the uniform shares, one after the other
    drawn: Counter[tuple[Vector, Vector]] = Counter({((0,) * len(elements), (0,) * len(moduli)): 1})
    for _ in range(messages - 1):
        following: Counter[tuple[Vector, Vector]] = Counter()
        for (counts, total), times in drawn.items():
            for element in elements:
                following[one_more(counts, place[element]), plus(total, element, moduli)] += times
        drawn = following
    for (counts, total), times in drawn.items():
        for value in elements:
            last = plus(value, tuple(-t for t in total), moduli)
            found[value][one_more(counts, place[last])] += times
    return {
        value: {key: chance * times for key, times in counted.items()}
        for value, counted in found.items()
    }


def one_more(counts: Vector, place: int) -> Vector:
    return (*counts[:place], counts[place] + 1, *counts[place + 1 :])


def plus(a: Vector, b: Vector, moduli: Vector) -> Vector:
    return tuple((x + y) % q for x, y, q in zip(a, b, moduli, strict=True))


def view_law(
    values: Sequence[Vector], noise: Sequence[Sequence[Any]], moduli: Vector, messages: int
) -> Law:
    """Law of the multiset of all messages of one group.

    `noise[e][z]` is the probability of each person's noise z in coordinate e.
    """
    shares = share_laws(moduli, messages)
    people = []
    for value in values:
        person: Law = {}
        for z in product(*(range(q) for q in moduli)):
            chance = math.prod(
                (law[one] for law, one in zip(noise, z, strict=True)), start=Fraction(1)
            )
            if chance:
                for key, mass in shares[plus(value, z, moduli)].items():
                    person[key] = person.get(key, 0) + chance * mass
        people.append(person)
    return added(people)


def residue_sums(values: Sequence[Vector], noise: Sequence[Sequence[Any]], moduli: Vector) -> Law:
    """Law of the sums modulo the moduli: the output of an ideal shuffler."""
    total: Law = {(0,) * len(moduli): Fraction(1)}
    for value in values:
        following: Law = {}
        for s, mass in total.items():
            for z in product(*(range(q) for q in moduli)):
                chance = math.prod(
                    (law[one] for law, one in zip(noise, z, strict=True)), start=Fraction(1)
                )
                if chance:
                    key = plus(plus(s, value, moduli), z, moduli)
                    following[key] = following.get(key, 0) + mass * chance
        total = following
    return total


def excess(people: int, messages: int, order: int) -> Fraction:
    """E[order^(C-1)] - 1, C the components of the graph of two random partitions.

    It is [x^n] a(x)^order / [x^n] a(x) in fractions.
    """
    g = messages - 1
    a = [Fraction(1)]
    for k in range(1, people + 1):
        a.append(Fraction(math.factorial(k * g), math.factorial(g) ** (2 * k) * math.factorial(k)))
    c = [Fraction(0)] * (people + 1)
    e = [Fraction(1)] + [Fraction(0)] * people
    for k in range(1, people + 1):
        c[k] = a[k] - sum((j * c[j] * a[k - j] for j in range(1, k)), Fraction(0)) / k
    for k in range(1, people + 1):
        e[k] = order * sum((j * c[j] * e[k - j] for j in range(1, k + 1)), Fraction(0)) / k
    return e[people] / a[people] / order - 1


def large_move_delta(
    coordinates: Iterable[tuple[float, int]], epsilon: float, digits: int = 40
) -> mpmath.mpf:
    """E[(1 - e^(epsilon - loss))_+] over coordinates (rate, size), in many digits.

    Losses are distinguished by rate.
    """
    with mpmath.workdps(digits):
        law: dict[tuple[tuple[float, int], ...], mpmath.mpf] = {(): mpmath.mpf(1)}
        for rate, size in coordinates:
            p = mpmath.exp(-mpmath.mpf(rate))
            own = [
                (size, 1 / (1 + p)),
                *((size - 2 * j, (1 - p) / (1 + p) * p**j) for j in range(1, size)),
                (-size, p**size / (1 + p)),
            ]
            following: dict[tuple[tuple[float, int], ...], mpmath.mpf] = {}
            for key, mass in law.items():
                for steps, chance in own:
                    now = dict(key)
                    now[rate] = now.get(rate, 0) + steps
                    new = tuple(sorted(now.items()))
                    following[new] = following.get(new, mpmath.mpf(0)) + mass * chance
            law = following
        total = mpmath.mpf(0)
        for key, mass in law.items():
            loss = mpmath.fsum(mpmath.mpf(rate) * steps for rate, steps in key)
            if loss > epsilon:
                total -= mass * mpmath.expm1(mpmath.mpf(epsilon) - loss)
        return total
