"""Common randomizers at small sizes in exact rationals, from their descriptions.

One row per input, weights per report.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations

Row = list[Fraction]
Rows = list[Row]


def normalised(rows: Iterable[Sequence[Fraction | int]]) -> Rows:
    return [[Fraction(weight) / sum(row) for weight in row] for row in rows]


def whole_weights(rows: Rows) -> list[list[int]]:
    """Laws as whole numbers with one total, for the enumerators."""
    common = math.lcm(*(weight.denominator for row in rows for weight in row))
    return [[int(weight * common) for weight in row] for row in rows]


def likely(p: Fraction, inputs: Iterable[frozenset[int]], outputs: int) -> Rows:
    """Channel in which reports in the input's own set are p times as likely as the others."""
    return normalised([p if y in own else 1 for y in range(outputs)] for own in inputs)


def randomized_response(p: Fraction, options: int) -> Rows:
    return likely(p, [frozenset({x}) for x in range(options)], options)


def subset_selection(p: Fraction, options: int, chosen: int) -> Rows:
    reports = list(combinations(range(options), chosen))
    return normalised([p if x in report else 1 for report in reports] for x in range(options))


def subset_exponential(p: Fraction, options: int, held: int, chosen: int) -> Rows:
    reports = list(combinations(range(options), chosen))
    return normalised(
        [p if set(own) & set(report) else 1 for report in reports]
        for own in combinations(range(options), held)
    )


def collision(p: Fraction, buckets: int, held: int) -> Rows:
    return likely(p, map(frozenset, combinations(range(buckets), held)), buckets)


def pckv(p: Fraction, keys: int, held: int) -> Rows:
    """Reports are a key and a sign; report 2j + sign is likely if the input holds it."""
    owns = [
        frozenset(2 * key + sign for key, sign in zip(own, signs, strict=True))
        for own in combinations(range(keys), held)
        for signs in itertools.product((0, 1), repeat=held)
    ]
    return likely(p, owns, 2 * keys)


def hadamard(p: Fraction, order: int, blocks: int = 1) -> Rows:
    """Hadamard response: likely are the places of the block where row x is +1.

    The input is (block, x), x a row of the Sylvester matrix.
    """
    owns = []
    for block in range(blocks):
        for x in range(1, order):
            owns.append(
                frozenset(block * order + y for y in range(order) if (x & y).bit_count() % 2 == 0)
            )
    return likely(p, owns, order * blocks)


def bitwise(true_bit: Fraction, other_bit: Fraction, options: int, inputs: Sequence[int]) -> Rows:
    """Unary encoding: bit x is 1 with probability `true_bit`, every other with `other_bit`.

    Input -1 is the all-zero vector.
    """
    reports = list(itertools.product((0, 1), repeat=options))

    def chance(x: int, report: tuple[int, ...]) -> Fraction:
        found = Fraction(1)
        for place, bit in enumerate(report):
            one = true_bit if place == x else other_bit
            found *= one if bit else 1 - one
        return found

    return [[chance(x, report) for report in reports] for x in inputs]


def local_hash(p: Fraction, options: int, buckets: int) -> Rows:
    """Uniform function from options to buckets with the bucket by randomized response."""
    functions = list(itertools.product(range(buckets), repeat=options))
    return normalised(
        [p if h[x] == y else 1 for h in functions for y in range(buckets)] for x in range(options)
    )


def priv_kv(first: Fraction, second: Fraction, keys: int, held: int) -> Rows:
    """PrivKV: one key at random.

    Held: present with odds `first`, sign kept with odds `second`; else absent with odds `first`,
    sign uniform.
    """
    rows = []
    for own in combinations(range(keys), held):
        for signs in itertools.product((0, 1), repeat=held):
            has = dict(zip(own, signs, strict=True))
            row: Row = []
            for key in range(keys):
                if key in has:
                    present = first / (first + 1)
                    kept = second / (second + 1)
                    sign = [kept, 1 - kept] if has[key] == 0 else [1 - kept, kept]
                else:
                    present = 1 / (first + 1)
                    sign = [Fraction(1, 2), Fraction(1, 2)]
                row += [present * sign[0] / keys, present * sign[1] / keys, (1 - present) / keys]
            rows.append(row)
    return rows


def variation(rows: Rows) -> Fraction:
    """Largest total variation of two rows."""
    return max(
        sum((abs(x - y) for x, y in zip(one, other, strict=True)), Fraction(0)) / 2
        for one, other in combinations(rows, 2)
    )


def largest_ratio(rows: Rows, others: Rows | None = None) -> Fraction:
    """max K_a(y)/K_i(y) over the rows a and the rows i."""
    return max(
        x / y
        for one in rows
        for other in (rows if others is None else others)
        for x, y in zip(one, other, strict=True)
    )


def ratio_where_equal(rows: Rows, a: int = 0, b: int = 1) -> Fraction:
    """max over the reports with K_a = K_b and over every other row i of K_a/K_i."""
    equal = [y for y, (x, z) in enumerate(zip(rows[a], rows[b], strict=True)) if x == z]
    return max(rows[a][y] / row[y] for y in equal for row in rows)
