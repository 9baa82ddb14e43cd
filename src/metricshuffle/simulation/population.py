"""Simulated people: how many have each value, and the true answer about them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats, Integers64
from metricshuffle.spaces import Space, Users, ZonePairs, Zones

CLUSTER_COUNT = 5
CLUSTER_SIZES = np.array([0.35, 0.25, 0.2, 0.12, 0.08])
MAX_DRAWN = 2**52  # items; more than are ever randomized individually


@dataclass(frozen=True, eq=False)
class Population:
    """Simulated users and their true shares.

    `truth` is the mean of the users' histograms; `sampled` counts the items that users randomize,
    and `single_items` those that they would randomize if each took only one.
    """

    users: int
    items: int
    truth: Floats
    sampled: Integers64
    single_items: Integers64

    @classmethod
    def drawn(
        cls,
        shares: object,
        users: int,
        items: int,
        generator: np.random.Generator,
        samples: int | None = None,
    ) -> Population:
        """Draw users who each have `items` items from the same shares.

        Each takes `samples` of their own items with replacement, or all of them if it is None.
        """
        probabilities = np.asarray(shares, dtype=np.float64)
        totals = generator.multinomial(
            min(users * items, MAX_DRAWN), probabilities / probabilities.sum()
        )
        truth = totals / totals.sum()
        # For many items, drawing from all users' items approximates drawing from each user's.
        taken = (
            totals
            if samples is None
            else generator.multinomial(min(users * samples, MAX_DRAWN), truth)
        )
        return cls(
            users,
            items,
            truth,
            taken,
            totals if items == 1 else generator.multinomial(users, truth),
        )

    @classmethod
    def of(
        cls,
        people: Users,
        item_counts: object,
        items: int,
        generator: np.random.Generator,
        *,
        draws: bool = True,
    ) -> Population:
        """Build a population from the items of actual users.

        With `draws` each user draws `items` of their own items with replacement; otherwise every
        user must have exactly `items` items, which are taken unchanged.
        """
        histograms = people.histograms(item_counts)
        sizes = people.sizes(item_counts)
        if not draws and bool((sizes != items).any()):
            raise InputError(
                f"every user must have exactly {items:,} items, because none are drawn."
            )
        sampled_items = (
            generator.multinomial(items, histograms)
            if draws
            else np.rint(histograms * items).astype(np.int64)
        )
        single_items = generator.multinomial(1, histograms)
        return cls(
            len(histograms),
            items,
            histograms.mean(axis=0),
            sampled_items.sum(axis=0),
            single_items.sum(axis=0),
        )


def validate_shares(shares: object, size: int) -> Floats:
    """Validate the shares of the values; None gives equal shares."""
    spread = np.full(size, 1.0 / size) if shares is None else np.asarray(shares, dtype=np.float64)
    if spread.shape != (size,) or not (np.all(spread >= 0.0) and 0.0 < spread.sum() < math.inf):
        raise InputError(
            f"shares must be {size:,} numbers >= 0, one for each value, got shape {spread.shape}."
        )
    return spread


def zipf_shares(points: int, generator: np.random.Generator) -> Floats:
    """Shares in proportion to 1, 1/2, 1/3, ..., in random order."""
    if points < 1:
        raise InputError(f"shares need at least one point, got {points}.")
    falling = 1.0 / np.arange(1, points + 1)
    return np.asarray(generator.permutation(falling / falling.sum()))


def spiky_shares(points: int, generator: np.random.Generator) -> Floats:
    """Equal shares at one point in eight, drawn at random, and 0 elsewhere.

    This is close to the worst case of smoothing: summed over all points, ramps have an error of 1.8
    to 1.9, and boxes of 3 x 3 cells half of that. For Zipf's law in random order the error of ramps
    is half as large, and for a handful of points overlapping boxes work well.
    """
    if points < 1:
        raise InputError(f"shares need at least one point, got {points}.")
    few = max(1, points // 8)
    return np.asarray(
        np.bincount(generator.choice(points, few, replace=False), minlength=points) / few
    )


def near_public_weights(space: Space, shares: Floats) -> Floats:
    """Shares times the public weights of zones, if there are any, normalized to sum to one."""
    domain = space.domain
    zones = domain.zones if isinstance(domain, ZonePairs) else domain
    if not isinstance(zones, Zones) or zones.weights is None:
        return shares
    weights = np.array(zones.weights, dtype=np.float64)
    if isinstance(domain, ZonePairs):
        weights = np.outer(weights, weights).ravel()
    weighted = shares * weights
    return weighted / weighted.sum() if weighted.sum() > 0.0 else shares


def clustered_shares(space: Space, generator: np.random.Generator) -> Floats:
    """Five clusters of different sizes, each a 25th of the space wide, and a tenth of even mass.

    On lines and grids; if points are not in a plane, clusters are single points drawn at random.
    """
    points = space.domain.size or 0
    if space.domain.points_are == "codes":
        return np.asarray(
            np.bincount(
                generator.integers(points, size=CLUSTER_COUNT),
                weights=CLUSTER_SIZES,
                minlength=points,
            )
            * 0.9
            + 0.1 / points
        )
    values = space.domain.all_values()
    # The values of zones and of their pairs are codes, which have no geometry.
    coded = isinstance(space.domain, Zones | ZonePairs)
    located = space.domain.points(values) if coded else values
    places = np.asarray(located, dtype=np.float64).reshape(points, -1)
    places = places - places.min(axis=0)
    across = float(places.max())
    middles = generator.uniform(0.1, 0.9, size=(CLUSTER_COUNT, places.shape[1])) * places.max(
        axis=0
    )
    squares = ((places[:, None, :] - middles[None, :, :]) ** 2).sum(axis=2)
    bumps = np.exp(-0.5 * squares / max(0.04 * across, 0.3) ** 2)
    shares = (bumps / bumps.sum(axis=0)) @ CLUSTER_SIZES * 0.9 + 0.1 / points
    return np.asarray(shares / shares.sum())
