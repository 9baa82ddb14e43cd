"""The polytope that a query's answers move in, per unit of distance, and constants in its norm.

K is the hull of (f(x) - f(y))/d(x, y) over all pairs of points. Noise in the norm of K is the
K-norm mechanism of Hardt and Talwar: no norm fits the query better. No guarantee needs the exact
hull: `polytope_constant` is certified over all pairs in the norm of any polytope.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricshuffle.accounting.user_items.lipschitz import MIN_QUOTIENT, lipschitz_constant
from metricshuffle.citations import theorem
from metricshuffle.errors import ConditionError, InputError
from metricshuffle.noise.polytope import MAX_POLYTOPE_DIMENSIONS, Polytope, evenly_spread
from metricshuffle.numerics.types import Floats

Codes = NDArray[np.int64]

IMAGE_BITS = 52
MAX_EXACT = 2**IMAGE_BITS
"""Sums of whole numbers up to this are exact in doubles, in any order."""
MIN_THICKNESS = 1e-7
"""Thinnest hull, compared with its longest side, that is not regarded as flat."""
MAX_COMPARED = 2e9  # differences computed, which take a second or two
SPREAD_PAIRS = 20_000
SAMPLED_POINTS = 400
BLOCK_PAIRS = 2**14
DIRECTIONS = 256
MAX_WIDTH = 10**8
LOOSE = 1e-7
MAX_POLAR = 4  # columns up to which the polar hull is found quickly
MAX_HULL_FACETS = {2: 256, 3: 192, 4: 128, 5: 96, 6: 64, 7: 64, 8: 64}
MAX_HULL_POINTS = {2: 512, 3: 128, 4: 40, 5: 20, 6: 16, 7: 14, 8: 12}
"""Maximum number of points of a hull, by dimension; more points give too many facets."""


@theorem("Hardt10", "K-norm mechanism, with the constant of any polytope")
def polytope_constant(numbers: Floats, power: int, distances: Floats, polytope: Polytope) -> float:
    """max over pairs of ||f(x) - f(x')||_K / d(x, x'), rounded up; f = numbers / 2^power.

    Statement: let K = {z : |k_i z| <= R for all facets k_i}. The norm of z in K is max_i |k_i z|/R,
    so the constant is that of the columns k_i f in the maximum norm, divided by R. Noise with a
    density proportional to e^(-||z||_K/scale) then has a loss of at most constant/scale times the
    earth mover's distance. The noise is least if K is the hull of all (f(x) - f(x'))/d(x, x'), but
    the statement holds for every K.
    Conditions: f in whole numbers, sum_j |k_ij| max_x |f_j(x)| <= 2^52 for every i, else refused.
    Numerics: all k_i f(x) are exact, as whole numbers below 2^53; the rest is as in
    `lipschitz_constant`, rounded up once more for the division by R; never below 1e-290.
    Reference: docs/proofs/k-norm.md.
    """
    if polytope.dimension != numbers.shape[1]:
        raise InputError(
            f"a polytope of {polytope.dimension} coordinates does not measure vectors of "
            f"{numbers.shape[1]:,}."
        )
    # Whole numbers below 2^53 each, but their sum is only compared, so it may be rounded.
    sizes = np.abs(polytope.matrix) @ np.abs(numbers).max(axis=0)
    if not float(sizes.max()) * (1.0 + 1e-12) <= MAX_EXACT:
        raise InputError(
            "the facets of this polytope are too fine for the query: their products with its "
            "numbers are not exact."
        )
    images = np.ldexp(numbers @ polytope.matrix.T, -IMAGE_BITS)
    constant = lipschitz_constant(images, distances, "linf").constant
    per_unit = constant / polytope.largest * (1.0 + 2.0**-50)
    with np.errstate(over="ignore", under="ignore"):
        scaled = float(np.ldexp(per_unit, IMAGE_BITS - power))
    return max(scaled, MIN_QUOTIENT) if constant > 0.0 else 0.0


def query_polytope(numbers: Floats, distances: Floats) -> Polytope:
    """Polytope close to the hull of (f(x) - f(y))/d(x, y), for K-norm noise; f in whole numbers.

    It is the hull itself if that has few facets (always for two columns and few points), otherwise
    the smallest polytope with the facets of a hull of some of these vectors and of the box around
    them. Facets are rounded, so `polytope_constant` may be slightly above 1 / R.

    Raises:
        ConditionError: if there are fewer than 2 or more than 8 columns, or if they are linearly
            dependent, which makes the hull flat.
    """
    points, columns = numbers.shape
    if not 2 <= columns <= MAX_POLYTOPE_DIMENSIONS:
        raise ConditionError(
            "K-norm noise",
            f"2 to {MAX_POLYTOPE_DIMENSIONS} columns (uniform points of a polytope are drawn by "
            "rejection)",
            f"{columns:,}",
        )
    largest = np.abs(numbers).max(axis=0)
    if not largest.all():
        raise ConditionError(
            "K-norm noise",
            "columns that are not constant",
            f"column {int(np.argmin(largest))} (counting from 0)",
        )
    if not distances.max() > 0.0:
        raise _flat()
    units = numbers / largest
    apart = distances / distances.max()
    moves = _quotients(units, apart, *_pairs(units, apart))
    whitening = _whitening(moves)
    directions = np.hstack([np.eye(columns), whitening @ _directions(columns, DIRECTIONS)])
    extremes = _extremes(moves, directions)
    most = int(min(MAX_HULL_FACETS[columns], max(2.0 * columns, MAX_COMPARED / points**2)))
    normals = _facets(extremes @ whitening, most - columns) @ whitening.T
    normals = np.concatenate([normals, np.eye(columns)])
    normals = normals / np.abs(extremes @ normals.T).max(axis=0)[:, None]
    polytope = Polytope(_whole(_needed(normals), largest))
    if not max(polytope.widths) < MAX_WIDTH:
        raise ConditionError(
            "K-norm noise",
            "columns that move by comparable amounts; change their units",
            f"columns of which one moves {float(max(polytope.widths)):.3g} times as much",
        )
    return polytope


def _directions(columns: int, count: int) -> Floats:
    """Directions in all quarters of the space, as columns."""
    return 2.0 * evenly_spread(0, count, columns).T - 1.0


def _pairs(units: Floats, apart: Floats) -> tuple[Codes, Codes]:
    """Pairs of points in which the query may move most: all pairs of few points, or a choice.

    The choice: all pairs of some points, pairs spread over all, each point with its nearest one,
    and the pairs with the largest moves.
    """
    count = len(apart)
    if count <= SAMPLED_POINTS:
        return np.triu_indices(count, 1)
    some = np.linspace(0, count - 1, SAMPLED_POINTS).astype(np.int64)
    first, second = np.triu_indices(SAMPLED_POINTS, 1)
    every = np.arange(count)
    nearest = np.array([np.where(row > 0.0, row, np.inf).argmin() for row in apart])
    spread = (count * evenly_spread(0, SPREAD_PAIRS, 2)).astype(np.int64)
    along = units @ _directions(units.shape[1], DIRECTIONS)
    return (
        np.concatenate([some[first], every, spread[:, 0], along.argmax(axis=0)]),
        np.concatenate([some[second], nearest, spread[:, 1], along.argmin(axis=0)]),
    )


def _quotients(units: Floats, apart: Floats, first: Codes, second: Codes) -> Floats:
    """Moves per distance of the given pairs; pairs at distance 0, or too large ones, are skipped.

    Skipping is safe here: `polytope_constant` sees all pairs.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        moves = (units[first] - units[second]) / apart[first, second][:, None]
    return np.asarray(moves[np.isfinite(moves).all(axis=1) & (np.abs(moves).max(axis=1) < 1e140)])


def _whitening(sample: Floats) -> Floats:
    """Linear map after which the sample is about equally wide in all directions."""
    sizes = np.abs(sample).max(axis=0) if len(sample) else np.zeros(sample.shape[1])
    if not sizes.all():
        raise _flat()
    _, widths, axes = np.linalg.svd(sample / sizes, full_matrices=False)
    if len(widths) < len(sizes) or not widths[-1] > MIN_THICKNESS * widths[0]:
        raise _flat()
    return np.asarray((axes / sizes).T / (widths / widths[0]))


def _flat() -> ConditionError:
    return ConditionError(
        "K-norm noise",
        "columns that are not linearly dependent; leave out what follows from the others",
        "columns whose moves lie in (or very close to) a hyperplane",
    )


def _extremes(moves: Floats, directions: Floats) -> Floats:
    """Moves that are farthest in one of the directions; all of them if they are few."""
    if len(moves) <= directions.shape[1]:
        return moves
    best = np.zeros((directions.shape[1], moves.shape[1]))
    reach = np.full(directions.shape[1], -1.0)
    for start in range(0, len(moves), BLOCK_PAIRS):
        block = moves[start : start + BLOCK_PAIRS]
        along = np.abs(block @ directions)
        sizes = along.max(axis=0)
        farther = sizes > reach
        reach[farther] = sizes[farther]
        best[farther] = block[along[:, farther].argmax(axis=0)]
    return best


def _facets(points: Floats, most: int) -> Floats:
    """Normals of the facets of the symmetric hull of some points; at most `most`, maybe none."""
    from scipy.spatial import ConvexHull, QhullError

    columns = points.shape[1]
    limit = MAX_HULL_POINTS[columns]
    some = np.unique(np.concatenate([points, -points]), axis=0)
    while limit > columns:
        if len(some) > 2 * limit:
            farthest = points[np.abs(points @ _directions(columns, limit)).argmax(axis=0)]
            some = np.unique(np.concatenate([farthest, -farthest]), axis=0)
        try:
            equations = ConvexHull(some).equations
        except QhullError:
            break
        normals = equations[:, :-1] / -equations[:, -1:]
        leading = np.take_along_axis(normals, np.abs(normals).argmax(axis=1)[:, None], axis=1)
        normals = np.unique(np.round(normals * np.sign(leading), 10), axis=0)
        if len(normals) <= most:
            return np.asarray(normals)
        limit = 2 * limit // 3
    return np.empty((0, columns))


def _needed(normals: Floats) -> Floats:
    """Facets that cut off something that no other facet does: the corners of the polar hull.

    Facets of the box, which come last, must cut off a fraction of at least 1e-7.
    """
    from scipy.optimize import linprog
    from scipy.spatial import ConvexHull

    columns = normals.shape[1]
    leading = np.take_along_axis(normals, np.abs(normals).argmax(axis=1)[:, None], axis=1)
    signed = normals * np.sign(leading)
    scaled = np.round(signed / np.abs(normals).max(axis=0), 9)
    first = np.sort(np.unique(scaled, axis=0, return_index=True)[1])
    polar = (
        signed
        * np.where(np.arange(len(normals)) < len(normals) - columns, 1.0, 1.0 - LOOSE)[:, None]
    )
    normals = signed[first]
    polar = polar[first]
    if columns <= MAX_POLAR:
        corners = ConvexHull(np.concatenate([polar, -polar])).vertices
        return normals[np.unique(corners % len(normals))]
    left = list(range(len(normals)))
    for index in range(len(normals) - 1, -1, -1):
        others = normals[[row for row in left if row != index]]
        reach = linprog(
            -polar[index],
            A_ub=np.concatenate([others, -others]),
            b_ub=np.ones(2 * len(others)),
            bounds=(None, None),
        )
        if reach.status == 0 and float(reach.fun or 0.0) >= -1.0:
            left.remove(index)
    return normals[left]


def _whole(normals: Floats, largest: Floats) -> tuple[tuple[int, ...], ...]:
    """Facets in whole numbers whose products with the query's numbers are exact."""
    room = MAX_EXACT - len(largest) * 2.0**31
    factor = room / float(np.abs(normals).sum(axis=1).max()) * (1.0 - 1e-9)
    rows = np.rint(normals * (factor / largest))
    return tuple(tuple(int(entry) for entry in row) for row in np.unique(rows, axis=0))
