"""Projections of noisy shares onto valid ones: on the simplex, on windows of a line, on a tree."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces import TreeEmbedding

MIN_VARIANCE = 1e-200  # as a fraction of the largest variance


def simplex_projection(values: Floats) -> Floats:
    """Nearest point (Euclidean) whose coordinates are >= 0 and sum to one.

    Statement: it is max(values - t, 0) with the t that makes it sum to one.
    Numerics: t from the sorted values, O(k log k).
    Reference: Held, Wolfe, Crowder 1974.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.all(np.isfinite(array)):
        raise InputError(
            "a projection onto the simplex needs a list of finite numbers, got shape "
            f"{array.shape}."
        )
    falling = np.sort(array)[::-1]
    thresholds = (np.cumsum(falling) - 1.0) / np.arange(1, array.size + 1)
    last = int(np.flatnonzero(falling > thresholds)[-1])
    projected: Floats = np.maximum(array - thresholds[last], 0.0)
    return projected / math.fsum(projected)


def shares_from_windows(
    starts: Integers64, ends: Integers64, levels: Floats, errors: Floats
) -> Floats:
    """Shares of the points 0 .. ends[-1], >= 0 and of sum one, for each row of `levels`.

    levels[k] is the mean, with standard error errors[k], of the shares at or below the points
    starts[k] .. ends[k] - 1; windows follow each other without gaps. The levels are replaced by the
    nearest non-decreasing sequence in least squares weighted by 1/errors^2 (isotonic regression),
    clipped to 0..1. The cumulative share takes each level in the middle of its window and is linear
    in between, from 0 before the first point to 1 at the last. With windows of one point and no
    noise, the result is the true shares; inside wider windows the positions of people are unknown.
    """
    from metricshuffle.estimation import _isotonic_kernels as kernels

    window_means = np.atleast_2d(np.asarray(levels, dtype=np.float64))
    deviations = np.asarray(errors, dtype=np.float64)
    if (
        window_means.ndim != 2
        or window_means.shape[1] != len(starts)
        or not np.all(np.isfinite(window_means))
    ):
        raise InputError(
            f"there must be one finite mean for each of {len(starts):,} windows, got shape "
            f"{np.shape(levels)}."
        )
    if deviations.shape != (len(starts),) or not np.all(
        (deviations > 0.0) & (deviations < math.inf)
    ):
        raise InputError(
            f"there must be one standard error > 0 for each of {len(starts):,} windows, "
            f"got shape {deviations.shape}."
        )
    weights = (deviations.min() / deviations) ** 2
    weights = np.maximum(weights, 1e-200)
    last = int(ends[-1])
    corners = np.concatenate([[-1.0], 0.5 * (starts + ends - 1), [float(last)]])
    cumulative = np.empty((len(window_means), last + 1))
    for run, row in enumerate(window_means):
        rising = np.clip(kernels.rising(row, weights), 0.0, 1.0)
        reached = np.interp(np.arange(last + 1), corners, np.concatenate([[0.0], rising, [1.0]]))
        cumulative[run] = np.maximum(np.diff(reached, prepend=0.0), 0.0)
    return cumulative if np.ndim(levels) > 1 else cumulative[0]


def shares_from_subtrees(
    embedding: TreeEmbedding, coordinates: Floats, noise: Floats | None = None
) -> Floats:
    """Shares of the points, >= 0 and of sum one, from one noisy coordinate per edge of the tree.

    Statement: the coordinate of edge e is (length of e) * (mass below e) plus noise, of the same
    size on all edges, or in proportion to `noise`. On a path (the points of a line), the masses
    below the edges are replaced by the nearest non-increasing sequence, in least squares weighted
    by the squares of length/noise (isotonic regression). In any other tree, the least squares
    estimate of the mass below each edge is made from the leaves upwards; then, starting with mass 1
    at the root, every node divides its mass among its children, as near to their estimates as their
    sum allows, and keeps the remainder if it is a point. The result is biased, as every projection
    is, and always a valid answer. Let q be the true shares, f(q) their exact coordinates, and z the
    noisy coordinates. On a line of equal gaps the earth mover's distance of the result to q is at
    most |z - f(q)|_1 (isotonic regression contracts); on a star it is at most twice that (the
    Euclidean projection onto a simplex is also a projection in the sum norm); elsewhere it was
    observed to be less, on average.
    """
    noisy = np.asarray(coordinates, dtype=np.float64)
    lengths = embedding.lengths
    if noisy.shape != lengths.shape or not np.all(np.isfinite(noisy)):
        raise InputError(
            f"a projection needs one finite coordinate for each of {lengths.size:,} edges, "
            f"got shape {noisy.shape}."
        )
    if not np.all(lengths > 0.0):
        raise InputError(
            "an edge of length 0 does not determine the mass below it; merge points at "
            "distance 0 first."
        )
    deviations = (1.0 if noise is None else np.asarray(noise, dtype=np.float64)) / lengths
    if (
        not np.all((deviations > 0.0) & (deviations < math.inf))
        or deviations.shape != lengths.shape
    ):
        raise InputError(
            f"the size of the noise must be one number > 0 for each of {lengths.size:,} edges."
        )
    below = noisy / lengths
    variances = (deviations / deviations.max()) ** 2
    masses = (_path_masses if embedding.is_path else _distribute_down)(
        embedding, below, np.maximum(variances, MIN_VARIANCE)
    )
    return masses[embedding.nodes]


def possible_shares(tree: TreeEmbedding | None, shares: Floats) -> Floats:
    """Valid shares near unbiased ones: by the tree of the points, or else the nearest ones.

    The projection by a tree gets mass that moves over large distances right.
    """
    return (
        simplex_projection(shares)
        if tree is None
        else shares_from_subtrees(tree, tree.means(shares)[0])
    )


def _path_masses(embedding: TreeEmbedding, below: Floats, variances: Floats) -> Floats:
    """Mass of every node of a path, the root first."""
    from metricshuffle.estimation import _isotonic_kernels as kernels

    order = embedding.order
    links = embedding.edge_of[order[1:]]
    # A sequence that decreases away from the root increases towards it.
    fitted = kernels.rising(
        below[links][::-1].copy(), (variances.min() / variances[links])[::-1].copy()
    )[::-1]
    tails = np.concatenate([[1.0], np.clip(fitted, 0.0, 1.0), [0.0]])
    masses = np.zeros(order.size)
    masses[order] = np.maximum(tails[:-1] - tails[1:], 0.0)
    return masses


def _distribute_down(embedding: TreeEmbedding, below: Floats, spreads: Floats) -> Floats:
    """Mass that remains at every node."""
    is_point = np.zeros(embedding.order.size, dtype=bool)
    is_point[embedding.nodes] = True
    wanted, variances = _combine_upwards(embedding, below, spreads, is_point)
    masses = np.zeros(embedding.order.size)
    masses[embedding.order[0]] = 1.0
    for node in embedding.order:
        children = embedding.children[node]
        if not len(children) or masses[node] <= 0.0:
            continue
        mass = masses[node]
        parts = np.maximum(wanted[children], 0.0)
        masses[node] = max(mass - float(parts.sum()), 0.0) if is_point[node] else 0.0
        masses[children] = (
            parts
            if masses[node] > 0.0
            else _split_mass(mass, wanted[children], variances[children])
        )
    return masses


def _combine_upwards(
    embedding: TreeEmbedding, below: Floats, spreads: Floats, is_point: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Estimates of the mass below each link, by its coordinate and those below; variances.

    Estimates are weighted by their inverse variances.
    """
    wanted = np.ones(embedding.order.size)
    variances = np.zeros(embedding.order.size)
    wanted[embedding.links], variances[embedding.links] = below, spreads
    for node in embedding.order[:0:-1]:
        children = embedding.children[node]
        together = float(wanted[children].sum())
        if len(children) and not (
            is_point[node] and together <= wanted[node]
        ):  # a point may retain mass, but not a negative one
            spread = float(variances[children].sum())
            own = variances[node]
            wanted[node] = (spread * wanted[node] + own * together) / (spread + own)
            variances[node] = spread * own / (spread + own)
    return wanted, variances


def _split_mass(mass: float, wanted: Floats, variances: Floats) -> Floats:
    """Numbers >= 0 of sum `mass` nearest to `wanted` in squares over variances.

    These are (wanted - t variances)_+ for some t.
    """
    order = np.argsort(-wanted / variances, kind="stable")
    levels = (np.cumsum(wanted[order]) - mass) / np.cumsum(variances[order])
    last = int(np.flatnonzero((wanted / variances)[order] > levels)[-1])
    parts = np.maximum(wanted - levels[last] * variances, 0.0)
    return np.asarray(parts * (mass / math.fsum(parts)))
