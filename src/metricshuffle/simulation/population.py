"""Invented people for simulations: how many hold each value, and what is true of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces import Space, Users

CLUSTER_COUNT, CLUSTER_SIZES = 5, np.array([0.35, 0.25, 0.2, 0.12, 0.08])
MAX_DRAWN = 2**52  # items; more than are ever randomized one by one


@dataclass(frozen=True, eq=False)
class Population:
    """`truth` is the mean of the users' histograms; `sampled` counts the items that every user randomizes, `one` if only one."""

    users: int
    items: int
    truth: Floats
    sampled: Integers64
    one: Integers64

    @classmethod
    def drawn(cls, shares: Any, users: int, items: int, generator: np.random.Generator, samples: int | None = None) -> Population:
        """Everybody holds `items` drawn from the same shares, and takes `samples` of hers with replacement (all of hers if not given)."""
        probabilities = np.asarray(shares, dtype=np.float64)
        totals = generator.multinomial(min(users * items, MAX_DRAWN), probabilities / probabilities.sum())
        truth = totals / totals.sum()
        # Which of a user's items is taken: as good as drawn from everybody's, for many items.
        taken = totals if samples is None else generator.multinomial(min(users * samples, MAX_DRAWN), truth)
        return cls(users, items, truth, taken, totals if items == 1 else generator.multinomial(users, truth))

    @classmethod
    def of(cls, people: Users, item_counts: Any, items: int, generator: np.random.Generator, *, draws: bool = True) -> Population:
        """Real users, of any sizes: each draws `items` of her own, with replacement; not `draws`: takes hers, just so many, as they are."""
        histograms, sizes = people.histograms(item_counts), people.sizes(item_counts)
        if not draws and bool((sizes != items).any()):
            raise InputError(f"users take their items as they are only if all of them hold {items:,}.")
        sampled_items = generator.multinomial(items, histograms) if draws else np.rint(histograms * items).astype(np.int64)
        single_items = generator.multinomial(1, histograms)
        return cls(len(histograms), items, histograms.mean(axis=0), sampled_items.sum(axis=0), single_items.sum(axis=0))


def validate_shares(shares: Any, size: int) -> Floats:
    """Shares of the values, even ones if none are given."""
    spread = np.full(size, 1.0 / size) if shares is None else np.asarray(shares, dtype=np.float64)
    if spread.shape != (size,) or not (np.all(spread >= 0.0) and 0.0 < spread.sum() < math.inf):
        raise InputError(f"shares must be {size:,} numbers >= 0, one for each value, got shape {spread.shape}.")
    return spread


def zipf_shares(points: int, generator: np.random.Generator) -> Floats:
    """Shares 1, 1/2, 1/3, ... of their sum, in random order."""
    if points < 1:
        raise InputError(f"shares need at least one point, got {points}.")
    falling = 1.0 / np.arange(1, points + 1)
    return np.asarray(generator.permutation(falling / falling.sum()))


def spiky_shares(points: int, generator: np.random.Generator) -> Floats:
    """Everybody at one point in eight, drawn at random, all of them equally full.

    Whatever smooths shares is off by nearly the most here: ramps by 1.8 to 1.9 over the number of points in sum, boxes of 3 x 3 cells by
    half of that. Zipf's law in random order costs ramps half as much, and a handful of points is no riddle to boxes that overlap.
    """
    if points < 1:
        raise InputError(f"shares need at least one point, got {points}.")
    few = max(1, points // 8)
    return np.asarray(np.bincount(generator.choice(points, few, replace=False), minlength=points) / few)


def clustered_shares(space: Space, generator: np.random.Generator) -> Floats:
    """Five clusters of different sizes, each a 25th of the space wide, on a tenth of people who are spread evenly.

    Lines and grids; where points are not in a plane, clusters are points drawn at random.
    """
    points = space.domain.size or 0
    if space.domain.points_are == "codes":
        return np.asarray(
            np.bincount(generator.integers(points, size=CLUSTER_COUNT), weights=CLUSTER_SIZES, minlength=points) * 0.9 + 0.1 / points
        )
    places = np.asarray(space.domain.all_values(), dtype=np.float64).reshape(points, -1)
    places = places - places.min(axis=0)
    across = float(places.max())
    middles = generator.uniform(0.1, 0.9, size=(CLUSTER_COUNT, places.shape[1])) * places.max(axis=0)
    squares = ((places[:, None, :] - middles[None, :, :]) ** 2).sum(axis=2)
    bumps = np.exp(-0.5 * squares / max(0.04 * across, 0.3) ** 2)
    shares = (bumps / bumps.sum(axis=0)) @ CLUSTER_SIZES * 0.9 + 0.1 / points
    return np.asarray(shares / shares.sum())
