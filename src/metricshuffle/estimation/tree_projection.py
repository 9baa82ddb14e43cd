"""From noisy masses of the subtrees of a tree to shares of its points: the possible answer near what was released."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.estimation.simplex import simplex_projection
from metricshuffle.spaces import TreeEmbedding

Floats = NDArray[np.float64]
MIN_VARIANCE = 1e-200  # of the largest


def shares_from_subtrees(embedding: TreeEmbedding, coordinates: Floats, noise: Floats | None = None) -> Floats:
    """Shares of the points, non-negative and summing to one, from one noisy coordinate for each edge of the tree.

    Statement: coordinate e is (length of e) * (mass below e) plus noise, of the same size on all edges, or in proportion to `noise`.
    A path (the points of a line) becomes the nearest falling sequence of masses, in least squares weighted by the squares of
    length/noise (isotonic regression). In any other tree the least squares estimate of the mass below each link is made from
    the leaves upwards, and every node hands its mass down, 1 from the root: to its children as near to their estimates as their
    sum allows, what is left to itself if it is a point.
    What comes out is biased, as every projection is, and never leaves the possible answers. With z - f(q) the noise: on a line of
    equal gaps the earth mover's distance to q is at most |z - f(q)|_1 (isotonic regression contracts), on a star at most twice that
    (the Euclidean projection onto a simplex is one in the sum norm too); elsewhere it was seen to be less, on average.
    """
    noisy = np.asarray(coordinates, dtype=np.float64)
    lengths = embedding.lengths
    if noisy.shape != lengths.shape or not np.all(np.isfinite(noisy)):
        raise InputError(f"a projection needs one finite coordinate for each of {lengths.size:,} edges, got shape {noisy.shape}.")
    if not np.all(lengths > 0.0):
        raise InputError("an edge of length 0 tells nothing about the mass below it; merge points at distance 0 first.")
    deviations = (1.0 if noise is None else np.asarray(noise, dtype=np.float64)) / lengths
    if not np.all((deviations > 0.0) & (deviations < math.inf)) or deviations.shape != lengths.shape:
        raise InputError(f"the size of the noise must be one number > 0 for each of {lengths.size:,} edges.")
    below, variances = noisy / lengths, (deviations / deviations.max()) ** 2
    masses = (_path_masses if embedding.is_path else _distribute_down)(embedding, below, np.maximum(variances, MIN_VARIANCE))
    return masses[embedding.nodes]


def possible_shares(tree: TreeEmbedding | None, shares: Floats) -> Floats:
    """The possible shares near unbiased ones: along the tree of the points, which keeps far moves right, or else the nearest ones."""
    return simplex_projection(shares) if tree is None else shares_from_subtrees(tree, tree.means(shares)[0])


def _path_masses(embedding: TreeEmbedding, below: Floats, variances: Floats) -> Floats:
    """The mass of every node of a path, the root first."""
    from metricshuffle.estimation import _isotonic_kernels as kernels

    order = embedding.order
    links = embedding.edge_of[order[1:]]
    # falling from the root on is rising towards it
    fitted = kernels.rising(below[links][::-1].copy(), (variances.min() / variances[links])[::-1].copy())[::-1]
    tails = np.concatenate([[1.0], np.clip(fitted, 0.0, 1.0), [0.0]])
    masses = np.zeros(order.size)
    masses[order] = np.maximum(tails[:-1] - tails[1:], 0.0)
    return masses


def _distribute_down(embedding: TreeEmbedding, below: Floats, spreads: Floats) -> Floats:
    """The mass that stays at every node."""
    is_point = np.zeros(embedding.order.size, dtype=bool)
    is_point[embedding.nodes] = True
    wanted, variances = _combine_upwards(embedding, below, spreads, is_point)
    masses = np.zeros(embedding.order.size)
    masses[embedding.order[0]] = 1.0
    for node in embedding.order:
        children = embedding.children[node]
        if not len(children) or masses[node] <= 0.0:
            continue
        mass, parts = masses[node], np.maximum(wanted[children], 0.0)
        masses[node] = max(mass - float(parts.sum()), 0.0) if is_point[node] else 0.0
        masses[children] = parts if masses[node] > 0.0 else _split_mass(mass, wanted[children], variances[children])
    return masses


def _combine_upwards(
    embedding: TreeEmbedding, below: Floats, spreads: Floats, is_point: NDArray[np.bool_]
) -> tuple[Floats, Floats]:  # fmt: skip
    """The mass below each link, by its own coordinate and by those farther down, each counted by what it tells; and the variances."""
    wanted, variances = np.ones(embedding.order.size), np.zeros(embedding.order.size)
    wanted[embedding.links], variances[embedding.links] = below, spreads
    for node in embedding.order[:0:-1]:
        children = embedding.children[node]
        together = float(wanted[children].sum())
        if len(children) and not (is_point[node] and together <= wanted[node]):  # a point may keep some mass, but no less than none
            spread, own = float(variances[children].sum()), variances[node]
            wanted[node] = (spread * wanted[node] + own * together) / (spread + own)
            variances[node] = spread * own / (spread + own)
    return wanted, variances


def _split_mass(mass: float, wanted: Floats, variances: Floats) -> Floats:
    """Numbers >= 0 that sum to `mass`, nearest to those wanted in squares over variances: (wanted - t variances)_+."""
    order = np.argsort(-wanted / variances, kind="stable")
    levels = (np.cumsum(wanted[order]) - mass) / np.cumsum(variances[order])
    last = int(np.flatnonzero((wanted / variances)[order] > levels)[-1])
    parts = np.maximum(wanted - levels[last] * variances, 0.0)
    return np.asarray(parts * (mass / math.fsum(parts)))
