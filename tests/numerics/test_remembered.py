"""Steered search: few evaluations, encloses the sign change, same result as bisection."""

from __future__ import annotations

import math

from tests.tables import check_all

from metricshuffle.numerics.certified_search import MemoizedCheck, last_certified


@check_all("root", [0.0123, 0.7, 5.0, 31.0])
@check_all("guess", [0.02, 0.7, 30.0])
@check_all("power", [1.0, 2.0])
def test_few_questions_enclose_a_root(root: float, guess: float, power: float) -> None:
    asked = []

    def excess(value: float) -> float:
        asked.append(value)
        return float(30.0 * (1.0 - (root / value) ** power))

    known = MemoizedCheck(excess, 0.01, 64.0)
    known.enclose(guess, 28.0, 1e-8)
    assert known.passing <= root <= known.failing <= known.passing * (1.0 + 1.01e-8)
    assert len(asked) <= 32
    alone = last_certified(
        lambda value: 30.0 * (1.0 - (root / value) ** power) <= 0.0, 64.0, 0.01, relative=1e-7
    )
    assert last_certified(known, 64.0, 0.01, relative=1e-7) == alone


def test_what_is_not_a_number_fails_and_is_halved_away() -> None:
    known = MemoizedCheck(
        lambda value: math.nan if value > 3.0 else math.inf if value > 2.0 else -math.inf, 0.5, 64.0
    )
    known.enclose(10.0, 1.0, 1e-6)
    assert known.passing <= 2.0 <= known.failing <= known.passing * (1.0 + 1.01e-6)
