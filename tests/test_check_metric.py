"""check_metric names the violated axiom and the points that violate it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.errors import ConditionError, InputError
from metricshuffle.spaces import Euclidean, Matrix, Metric
from metricshuffle.testing import check_metric


def test_metrics_and_functions_pass() -> None:
    check_metric(Euclidean(), [(0, 0), (3, 4), (0, 0)])
    check_metric(lambda x, y: float(x != y), ["a", "b", "c"])
    check_metric(Matrix([[0, 0, 1], [0, 0, 1], [1, 1, 0]]), range(3), pseudo=True)


@check_all(
    ("function", "axiom", "where"),
    [
        (lambda x, y: math.nan if x != y else 0.0, "finite", r"d\(1, 2\) = nan"),
        (lambda x, y: float(y - x), "not negative", r"d\(2, 1\) = -1.0"),
        (lambda x, y: abs(x - y) + 1.0, "itself", r"d\(1, 1\) = 1.0"),
        (lambda x, y: abs(x // 2 - y // 2), "positive", r"d\(2, 3\) = 0.0"),
        (lambda x, y: max(y - x, 2 * (x - y)), "symmetry", r"d\(1, 2\) = 1.0 and d\(2, 1\) = 2.0"),
        (
            lambda x, y: (x - y) ** 2,
            "triangle",
            r"d\(1, 3\) = 4.0 with d\(1, 2\) = 1.0 and d\(2, 3\) = 1.0",
        ),
    ],
)
def test_the_broken_axiom_is_named(
    function: Callable[[Any, Any], float], axiom: str, where: str
) -> None:
    with pytest.raises(ConditionError, match=where) as told:
        check_metric(function, [1, 2, 3])
    assert axiom in told.value.condition


class Inconsistent(Metric):
    kind: Literal["inconsistent-for-test"] = "inconsistent-for-test"

    def pairwise(self, points_a: Any, points_b: Any) -> Any:
        return np.abs(np.subtract.outer(points_a, points_b)) * float(len(points_a))


class Misshapen(Metric):
    kind: Literal["misshapen-for-test"] = "misshapen-for-test"

    def pairwise(self, points_a: Any, points_b: Any) -> Any:
        return np.abs(np.subtract(points_a, points_b))


def test_pairwise_must_agree_with_the_call() -> None:
    with pytest.raises(ConditionError, match="agree"):
        check_metric(Inconsistent(), [1, 2])
    with pytest.raises(ConditionError, match="shape"):
        check_metric(Misshapen(), [1, 2])


def test_no_points_are_no_evidence() -> None:
    with pytest.raises(InputError, match="at least one point"):
        check_metric(Euclidean(), [])
