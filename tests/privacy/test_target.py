"""Valid and invalid targets."""

from __future__ import annotations

import math

import pytest
from tests.tables import check_all

from metricshuffle.errors import InputError
from metricshuffle.privacy.target import Target, checked_users, honest_count


def test_targets_say_what_they_mean() -> None:
    assert (
        str(Target(1, 1e-6, 100))
        == "epsilon 1 in proportion to the distance up to 100, delta 1e-06"
    )
    assert str(Target(0.5, 0, 2.5, "flat")) == "epsilon 0.5 for every move up to 2.5, delta 0"
    assert Target.model_validate_json(Target(1, 1e-6, 3, "flat").model_dump_json()) == Target(
        1, 1e-6, 3, "flat"
    )


@check_all(
    ("fields", "named"),
    [
        ((0, 1e-6, 1), "epsilon"),
        ((-1, 1e-6, 1), "epsilon"),
        ((math.nan, 1e-6, 1), "epsilon"),
        ((1e9, 1e-6, 1), "epsilon"),
        ((1, 1.0, 1), "delta"),
        ((1, -0.1, 1), "delta"),
        ((1, 1e-300, 1), "delta"),
        ((1, 1e-6, 0), "distance"),
        ((1, 1e-6, math.inf), "distance"),
        ((1, 1e-6, 1, "round"), "shape"),
    ],
)
def test_wrong_targets_are_refused_by_name(fields: tuple[object, ...], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Target(*fields)  # type: ignore[arg-type]


def test_honest_people_as_counts_fractions_and_percentages() -> None:
    assert honest_count(None, 50) == 50
    assert honest_count(7, 50) == honest_count("7", 50) == 7
    assert honest_count(0.29, 100) == honest_count("29%", 100) == honest_count("0.29", 100) == 29
    assert honest_count(1.0, 10**13) == 10**13  # rounding must not count more than there are
    assert honest_count(0.5, 10**13) == 5 * 10**12
    assert honest_count("33.3%", 1000) == 333
    assert honest_count(0.999, 3) == 2


@check_all("wrong", [0, -3, 51, 0.001, 1.5, math.nan, "many", "150%", True, [3]])
def test_wrong_honest_counts(wrong: object) -> None:
    with pytest.raises(InputError, match="honest"):
        honest_count(wrong, 50)  # type: ignore[arg-type]


@check_all("wrong", [0, -1, 2.0, True, "3", 10**14])
def test_wrong_users(wrong: object) -> None:
    with pytest.raises(InputError, match="users"):
        checked_users(wrong)  # type: ignore[arg-type]
