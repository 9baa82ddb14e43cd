"""From noisy masses of the subtrees of a tree to shares of its points: the possible answer near what was released."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricshuffle.errors import InputError
from metricshuffle.protocols.frequencies import simplex_projection
from metricshuffle.spaces import TreeEmbedding

Floats = NDArray[np.float64]


def shares_from_subtrees(embedding: TreeEmbedding, coordinates: Floats) -> Floats:
    """Shares of the points, non-negative and summing to one, from one noisy coordinate for each edge of the tree.

    Statement: coordinate e is (length of e) * (mass below e) plus noise. A path (the points of a line) becomes the nearest
    falling sequence of masses, in least squares weighted by the squared lengths (isotonic regression). In any other tree every node
    hands its mass down: the estimates for its children, and for itself if it is a point, are projected onto the simplex of
    its mass, the root's being 1. What comes out is biased, as every projection is, and never leaves the possible answers.
    """
    given = np.asarray(coordinates, dtype=np.float64)
    lengths = embedding.lengths
    if given.shape != lengths.shape or not np.all(np.isfinite(given)):
        raise InputError(f"a projection needs one finite coordinate for each of {lengths.size:,} edges, got shape {given.shape}.")
    if not np.all(lengths > 0.0):
        raise InputError("an edge of length 0 tells nothing about the mass below it; merge points at distance 0 first.")
    below = given / lengths
    masses = _falling(embedding, below) if embedding.is_path else _handed_down(embedding, below)
    return masses[embedding.nodes]


def possible_shares(tree: TreeEmbedding | None, shares: Floats) -> Floats:
    """The possible shares near unbiased ones: along the tree of the points, which keeps far moves right, or else the nearest ones."""
    return simplex_projection(shares) if tree is None else shares_from_subtrees(tree, tree.means(shares)[0])


def _falling(embedding: TreeEmbedding, below: Floats) -> Floats:
    """The mass of every node of a path, the root first."""
    from scipy.optimize import isotonic_regression

    order = embedding.order
    fitted = isotonic_regression(
        below[embedding.edge_of[order[1:]]], weights=embedding.lengths[embedding.edge_of[order[1:]]] ** 2, increasing=False
    ).x
    tails = np.concatenate([[1.0], np.clip(fitted, 0.0, 1.0), [0.0]])
    masses = np.zeros(order.size)
    masses[order] = np.maximum(tails[:-1] - tails[1:], 0.0)
    return masses


def _handed_down(embedding: TreeEmbedding, below: Floats) -> Floats:
    """The mass that stays at every node."""
    is_point = np.zeros(embedding.order.size, dtype=bool)
    is_point[embedding.nodes] = True
    masses = np.zeros(embedding.order.size)
    masses[embedding.order[0]] = 1.0
    for node in embedding.order:
        children = embedding.children[node]
        if not len(children) or masses[node] <= 0.0:
            continue
        wanted = below[embedding.edge_of[children]]
        if is_point[node]:
            whole = 1.0 if node == embedding.order[0] else below[embedding.edge_of[node]]
            wanted = np.append(wanted, whole - wanted.sum())
        parts = simplex_projection(wanted / masses[node]) * masses[node]
        masses[children] = parts[: len(children)]
        masses[node] = parts[-1] if is_point[node] else 0.0
    return masses
