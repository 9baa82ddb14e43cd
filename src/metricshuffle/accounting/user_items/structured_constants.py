"""Lipschitz constants of queries with a known structure, without comparing all pairs of points.

Functions that are linear in the points' vectors, and distances to given points, have constants by a
theorem, for any number of points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.accounting.user_items.lipschitz import MIN_QUOTIENT, NormName
from metricshuffle.citations import theorem
from metricshuffle.errors import InputError, NotCertified
from metricshuffle.numerics.rounding import ROUNDOFF
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces.labelled_points import LabelledPoints, Vectors

ORDERS: dict[NormName, float] = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
SQUARINGS = 20
MAX_SQUARED = 1024  # columns of a matrix whose powers are computed
SLACKS = (1e-4, 1e-3, 1e-2, 0.1)
"""Enlargements of the constant for rounded numbers, that are tried in this order."""
MAX_CLOSE_PAIRS = 2_000_000
RESIDUAL = 1e-6
"""Largest error of a structure, as a part of the widest column's range."""
ROUNDING_ROOM = 1.0 + 1e-11


@dataclass(frozen=True)
class Structure:
    """f(x) = g(x) + e(x), where g has Lipschitz constants by a theorem and |e_j| <= errors[j]."""

    constants: dict[NormName, float]
    errors: Floats


@theorem("metricshuffle", "spectral norm by Frobenius norms of squares")
def spectral_norm(matrix: Floats) -> float:
    """Certified upper bound on the largest singular value, within about a millionth.

    Statement: let M_0 = A^T A and M_(i+1) = M_i^2, symmetric matrices. The spectral norm of M_i is
    the square root of that of M_(i+1), and at most the Frobenius norm of M_i. So the 2^t-th root of
    the Frobenius norm of M_t bounds the spectral norm of M_0, and is too large by a factor of at
    most n^(1/2^(t+1)).
    Conditions: finite entries.
    Numerics: a computed square of an n by n matrix is off by at most n u/(1 - n u) times the square
    of its Frobenius norm, in the Frobenius norm (u = 2^-53); this is added before each root.
    Entries are scaled by powers of two; sums are enlarged by n^2 u and by 1e-11.
    Reference: this docstring; Higham, Accuracy and Stability of Numerical Algorithms, section 3.5.
    """
    table = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    largest = float(np.abs(table).max())
    if not 0.0 < largest < math.inf:
        return 0.0 if largest == 0.0 else math.inf
    exponent = math.frexp(largest)[1]
    scaled = np.ldexp(table, -exponent)
    rows, size = scaled.shape
    if size > MAX_SQUARED:
        return float(np.ldexp(_frobenius(scaled), exponent))
    power = scaled.T @ scaled
    lost = [1.01 * rows * ROUNDOFF * _frobenius(scaled) ** 2]
    exponents = [0]
    for _ in range(SQUARINGS):
        shift = math.frexp(float(np.abs(power).max()))[1]
        power = np.ldexp(power, -shift)
        exponents.append(shift)
        lost.append(1.01 * size * ROUNDOFF * _frobenius(power) ** 2)
        power = power @ power
    bound = _frobenius(power)
    for shift, error in zip(exponents[:0:-1], lost[:0:-1], strict=True):
        bound = math.ldexp(math.sqrt(bound + error) * ROUNDING_ROOM, shift)
    return float(np.ldexp(math.sqrt(bound + lost[0]) * ROUNDING_ROOM, exponent))


def _frobenius(matrix: Floats) -> float:
    """Frobenius norm, rounded up."""
    return float(np.sqrt((matrix**2).sum())) * (1.0 + 2.0 * matrix.size * ROUNDOFF + 1e-15)


@theorem("metricshuffle", "Lipschitz constant of a structured query, without all pairs")
def structured_constants(features: Floats, metric: LabelledPoints) -> dict[NormName, float]:
    """Certified Lipschitz constants of f, linear in vectors or distances to points, plus rounding.

    Statement: let f = g + e with a constant L of g in the norm, and |e_j(x)| <= errors[j]. Points
    at a distance of t or more have ||f(x) - f(y)|| <= (L + 2 ||errors||/t) d(x, y). Closer points
    are compared one by one: their positions along any axis differ by at most t, so sorting the
    points along one axis finds them all. g is one of two: x -> F v(x), for vectors v(x) that are as
    far apart as the points; its constant is the spectral norm of F in l2, the longest row of F in
    linf, and in l1 at most sqrt(D) times the spectral norm and at most the sum of the rows' norms.
    Or g_j(x) = s_j d(x, c_j), the scaled distance to a point c_j: by the triangle inequality each
    column has the constant |s_j|, and the norm of all s bounds them together.
    Conditions: f has one of these structures up to 1e-6 of the widest column's range, else refused.
    Numerics: F and s are found by least squares, and errors are what remains, enlarged by bounds on
    their own rounding; so no error in finding F makes the constant too small. f is scaled by a
    power of two; no constant is below 1e-290.
    Reference: this docstring.
    """
    varying = features[:, np.ptp(features, axis=0) > 0.0]
    if not varying.size:
        return dict.fromkeys(ORDERS, 0.0)
    exponent = math.frexp(float(np.abs(varying).max()))[1]
    scaled = np.ldexp(varying, -exponent)
    structure = _structure(scaled, metric)
    if structure is None:
        raise NotCertified(
            f"the constants of a query on {len(features):,} points are known only for distances "
            "to points of the space and for functions that are linear in their vectors; this "
            "query is neither. Use fewer points, whose pairs are compared."
        )
    with np.errstate(over="ignore", under="ignore"):
        return {
            norm: max(
                float(np.ldexp(_with_errors(scaled, metric, structure, norm), exponent)),
                MIN_QUOTIENT,
            )
            for norm in ORDERS
        }


def _with_errors(
    features: Floats, metric: LabelledPoints, structure: Structure, norm: NormName
) -> float:
    """Constant in one norm, with the errors of the structure: close pairs are compared."""
    base = structure.constants[norm]
    order = ORDERS[norm]
    errors = float(np.linalg.norm(structure.errors, order)) * ROUNDING_ROOM
    for slack in SLACKS:
        apart = 2.0 * errors / (slack * base) * ROUNDING_ROOM
        pairs = _close_pairs(metric, apart)
        if pairs is not None:
            closest = _largest_quotient(features, metric, pairs, apart, order)
            return max(base * (1.0 + slack), closest) * ROUNDING_ROOM
    raise NotCertified(
        "too many points are so close together that rounded answers tell them apart; merge points."
    )


def _structure(features: Floats, metric: LabelledPoints) -> Structure | None:
    linear = _linear(features, metric) if isinstance(metric, Vectors) else None
    return _distances(features, metric) if linear is None else linear


def _linear(features: Floats, metric: Vectors) -> Structure | None:
    """f as a linear function of the vectors, by least squares with one refinement."""
    vectors = metric.positions
    middle = vectors.mean(axis=0)
    centred = vectors - middle
    gram = np.linalg.pinv(centred.T @ centred, rcond=1e-13, hermitian=True)
    offset = features.mean(axis=0)
    matrix = gram @ (centred.T @ (features - offset))
    matrix += gram @ (centred.T @ (features - offset - centred @ matrix))
    if not np.isfinite(matrix).all():
        return None
    remainder = features - offset - vectors @ matrix + middle @ matrix
    sizes = np.abs(vectors) @ np.abs(matrix) + np.abs(middle) @ np.abs(matrix)
    sizes += np.abs(features) + np.abs(offset)
    rounding = 4.0 * (vectors.shape[1] + 8) * ROUNDOFF * sizes.max(axis=0)
    # The constant middle @ matrix and the offset cancel in every difference, rounded or not.
    errors = np.abs(remainder).max(axis=0) + rounding
    if not errors.max() <= RESIDUAL * np.ptp(features, axis=0).max():
        return None
    rows = np.sqrt((matrix**2).sum(axis=0)) * (1.0 + 2.0 * len(matrix) * ROUNDOFF + 1e-15)
    spectral = spectral_norm(matrix)
    together = min(float(rows.sum()), math.sqrt(len(rows)) * spectral)
    constants: dict[NormName, float] = {
        "l1": together * ROUNDING_ROOM,
        "l2": min(spectral, float(np.sqrt((rows**2).sum())) * ROUNDING_ROOM),
        "linf": float(rows.max()),
    }
    return Structure(constants, errors)


def _distances(features: Floats, metric: LabelledPoints) -> Structure | None:
    """f as scaled distances to points, one for each column."""
    slopes = []
    errors = []
    every = np.arange(len(features))
    widest = float(np.ptp(features, axis=0).max())
    for column in features.T:
        extremes = (int(column.argmin()), int(column.argmax()))
        remainder = math.inf
        slope = 0.0
        for nearest, farthest in (extremes, extremes[::-1]):
            apart = metric.pairwise([nearest], every)[0]
            if apart[farthest] > 0.0:
                rise = float((column[farthest] - column[nearest]) / apart[farthest])
                left = float(np.abs(column - column[nearest] - rise * apart).max())
                if left < remainder:
                    remainder = left
                    slope = abs(rise)
        sizes = float(np.abs(column).max()) + slope * metric.diameter_bound
        errors.append(remainder + slope * metric.position_error + 32.0 * ROUNDOFF * sizes)
        slopes.append(slope)
        if not errors[-1] <= RESIDUAL * widest:
            return None
    scaled = np.array(slopes)
    constants: dict[NormName, float] = {
        "l1": float(scaled.sum()) * ROUNDING_ROOM,
        "l2": float(np.linalg.norm(scaled)) * ROUNDING_ROOM,
        "linf": float(scaled.max()) * ROUNDING_ROOM,
    }
    return Structure(constants, np.array(errors))


def _close_pairs(metric: LabelledPoints, apart: float) -> tuple[Integers64, Integers64] | None:
    """Pairs of points, among them all that are closer than `apart`; None if they are too many.

    The points are sorted along a direction of length below 1 with irregular entries, so that hardly
    any points agree along it.
    """
    positions = metric.positions
    direction = np.sin(np.arange(1.0, positions.shape[1] + 1.0) ** 2)
    direction *= 0.99 / max(float(np.linalg.norm(direction)), 1e-300)
    along = positions @ direction
    order = np.argsort(along, kind="stable")
    line = along[order]
    rounding = 4.0 * metric.position_error + 1e-13 * float(np.abs(positions).sum(axis=1).max())
    ends = np.searchsorted(line, line + (apart + rounding), side="right")
    counts = ends - np.arange(1, len(line) + 1)
    if int(counts.sum()) > MAX_CLOSE_PAIRS:
        return None
    first = np.repeat(np.arange(len(line)), counts)
    offsets = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[first], order[first + 1 + offsets]


def _largest_quotient(
    features: Floats,
    metric: LabelledPoints,
    pairs: tuple[Integers64, Integers64],
    limit: float,
    order: float,
) -> float:
    """Upper bound on the largest move per distance of those pairs that are closer than `limit`.

    The straight line between two positions is never longer than the distance: pairs for which it is
    `limit` or more are left out, and for the others it is used instead of the distance.
    """
    largest = 0.0
    block = max(1, 2**22 // max(features.shape[1], metric.positions.shape[1]))
    for start in range(0, len(pairs[0]), block):
        first, second = (codes[start : start + block] for codes in pairs)
        differences = features[first] - features[second]
        moved = np.linalg.norm(differences, order, axis=1)
        # Squares of tiny numbers underflow; the l1 norm is never less than the norm asked for.
        moved = np.where(moved < 1e-140, np.abs(differences).sum(axis=1), moved)
        apart = np.linalg.norm(metric.positions[first] - metric.positions[second], axis=1)
        apart = apart * (1.0 - 1e-11) - 4.0 * metric.position_error
        moved = np.where(apart >= limit, 0.0, moved)
        torn = (moved > 0.0) & ~(apart > 0.0)
        if torn.any():
            index = int(np.argmax(torn))
            raise InputError(
                f"points {int(first[index])} and {int(second[index])} are at the same place, or "
                "nearly, but the query differs on them; merge the points."
            )
        steps = moved > 0.0
        if steps.any():
            largest = max(largest, float((moved[steps] / apart[steps]).max()))
    return largest
