"""The people of queries on users' items: their validation, and their points as numbers."""

from __future__ import annotations

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.numerics.types import Floats
from metricshuffle.spaces import Grid, LabelledPoints, Users, users_of
from metricshuffle.spaces.space import MAX_POINTS_PAIRED


def item_points(people: Users) -> Floats:
    """The points of a line or a grid as numbers, one row each; cells count at their centres."""
    domain = people.items_in.domain
    values = domain.all_values()
    points = np.asarray(
        domain.centres(values) if isinstance(domain, Grid) else domain.points(values),
        dtype=np.float64,
    )
    return points.reshape(len(values), -1)


def validate_people(people: object) -> Users:
    users = (
        people
        if isinstance(people, Users)
        else Users.model_validate(people)
        if isinstance(people, dict)
        else users_of(people)
    )
    return users if isinstance(users.items_in.metric, LabelledPoints) else check_pairs(users)


def check_pairs(users: Users) -> Users:
    if users.size > MAX_POINTS_PAIRED:
        raise InputError(
            f"queries on users' items compare all pairs of at most {MAX_POINTS_PAIRED:,} "
            f"points, got {users.size:,}",
            field="people",
            remedy=f"use fewer, or give labels {argument('positions')} (in Python: the metric "
            "Vectors or GreatCircle), for which no pairs are compared.",
        )
    return users
