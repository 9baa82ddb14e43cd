"""Quantiles, spread and shares above: exact answers, refusals and sentences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.errors import InputError
from metricshuffle.queries.line_query import LineQuery
from metricshuffle.queries.query import Estimate, Query

NUMBERS = ms.Integers(0, 10)
REALS = ms.Interval(-1.0, 1.0, "km")


def counts_of(query: LineQuery, values: Any) -> Any:
    return np.bincount(query.inputs(values, 1.0).numbers[:, 0], minlength=query.cells)


def test_a_quantile_is_the_least_value_that_enough_people_reach() -> None:
    """Against the definition, with shares that are whole numbers of people."""
    generator = np.random.default_rng(1)
    for people in (1, 2, 5, 10, 40):
        values = generator.integers(0, 11, people)
        at = (0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.9, 0.975)
        query = ms.Quantiles(NUMBERS, at)
        exact = query.exact(counts_of(query, values)).tolist()
        for share, code in zip(at, exact, strict=True):
            needed = round(1000 * share) * people
            reached = [t for t in range(11) if 1000 * int(np.sum(values <= t)) >= needed]
            assert code == reached[0], (people, share)


def test_a_tenth_of_ten_people_is_one() -> None:
    """The float 0.1 is above a tenth; shares count as they are written."""
    query = ms.Quantiles(NUMBERS, (0.1, 0.7))
    assert query.exact(np.ones(11, dtype=np.int64) * (np.arange(11) < 10)).tolist() == [0.0, 6.0]


def test_rows_of_counts_have_a_row_of_answers_each() -> None:
    for query in (
        ms.Quantiles(NUMBERS, (0.5, 0.9)),
        ms.Spread(NUMBERS),
        ms.ShareAbove(NUMBERS, (4, 8), 3),
    ):
        counts = np.random.default_rng(2).integers(0, 5, (4, 11))
        rows = query.exact(counts)
        assert rows.shape == (4, 2)
        assert np.allclose(rows, [query.exact(row) for row in counts])


def test_a_spread_is_the_mean_and_the_standard_deviation() -> None:
    values = np.array([0, 3, 3, 4, 10])
    query = ms.Spread(NUMBERS)
    assert np.allclose(query.exact(counts_of(query, values)), [values.mean(), values.std()])
    reals = np.array([-0.95, 0.1, 0.7])
    binned = ms.Spread(REALS, 0.5)
    middles = np.array([-0.75, 0.25, 0.75])
    assert np.allclose(binned.exact(counts_of(binned, reals)), [middles.mean(), middles.std()])
    assert np.all(
        np.abs(np.array([reals.mean(), reals.std()]) - [middles.mean(), middles.std()]) <= 0.25
    )


def test_a_share_above_is_bracketed_by_two_sharp_shares() -> None:
    """The sentence of the answer, for all thresholds and fades."""
    generator = np.random.default_rng(3)
    for _ in range(20):
        values = generator.integers(0, 11, 30)
        for threshold in range(10):
            for fade in range(1, threshold + 2):
                query = ms.ShareAbove(NUMBERS, (threshold,), fade)
                share = float(query.exact(counts_of(query, values))[0])
                weights = np.clip((values - (threshold + 1 - fade)) / fade, 0.0, 1.0)
                assert share == pytest.approx(weights.mean())
                assert np.mean(values > threshold) <= share + 1e-12
                assert share <= np.mean(values > threshold - fade + 1) + 1e-12
    assert ms.ShareAbove(ms.Integers(0, 1000), 300, 50).remarks() == [
        "Shares fade: a share above 300, fading over 50, is at least the share above 300 and at "
        "most the share above 251."
    ]
    assert ms.ShareAbove(NUMBERS, 3).remarks() == []


def test_shares_of_real_numbers_are_at_or_above_a_threshold() -> None:
    query = ms.ShareAbove(REALS, (0.0, 0.5), step=0.25)
    assert query.row_labels == ("at or above 0", "at or above 0.5")
    values = np.array([-0.3, -0.01, 0.0, 0.4, 0.5, 0.9])
    assert np.allclose(query.exact(counts_of(query, values)), [4 / 6, 2 / 6])


REFUSED: dict[str, tuple[Callable[[], Query], str]] = {
    "a share of 0": (lambda: ms.Quantiles(NUMBERS, (0.0,)), "strictly between 0 and 1"),
    "a share of 1": (lambda: ms.Quantiles(NUMBERS, (0.5, 1.0)), "strictly between 0 and 1"),
    "a percentage": (lambda: ms.Quantiles(NUMBERS, 50), "strictly between 0 and 1"),
    "no share": (lambda: ms.Quantiles(NUMBERS, ()), "at least one share"),
    "a share twice": (lambda: ms.Quantiles(NUMBERS, (0.5, 0.5)), "twice"),
    "not a number": (lambda: ms.Quantiles(NUMBERS, (math.nan,)), "finite"),
    "an edge outside": (lambda: ms.Quantiles(NUMBERS, edges=(12,)), "first numbers of bins"),
    "an edge inside a bin": (
        lambda: ms.Quantiles(ms.Integers(0, 99), edges=(5,), step=10),
        "first numbers of bins",
    ),
    "falling edges": (lambda: ms.Quantiles(NUMBERS, edges=(5, 2)), "must increase"),
    "reals without a step": (lambda: ms.Quantiles(REALS), "needs a step"),
    "labels": (lambda: ms.Spread(ms.Categories(["a", "b"])), "needs Integers or an Interval"),
    "one value": (lambda: ms.Spread(ms.Integers(0, 9), 10), "needs 2 to"),
    "too many": (lambda: ms.Spread(ms.Integers(0, 10**6)), "merge values"),
    "a fade below a step": (lambda: ms.ShareAbove(NUMBERS, (5,), 0.5), "at least a step"),
    "a fade of 1.5 steps": (lambda: ms.ShareAbove(NUMBERS, (5,), 1.5), "multiple of a step"),
    "a fade below the range": (lambda: ms.ShareAbove(NUMBERS, (2,), 4), "use at most 3"),
    "overlapping windows": (lambda: ms.ShareAbove(NUMBERS, (4, 6), 3), "at least fade 3 apart"),
    "falling thresholds": (lambda: ms.ShareAbove(NUMBERS, (6, 4)), "must increase"),
    "above the largest": (lambda: ms.ShareAbove(NUMBERS, (10,)), "from 0 to 9"),
    "inside a bin": (lambda: ms.ShareAbove(REALS, (0.1,), step=0.25), "edges of bins"),
    "no threshold": (lambda: ms.ShareAbove(NUMBERS, ()), "at least one threshold"),
}


@check_all("name", REFUSED)
def test_impossible_questions_are_refused_with_a_sentence(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        make()


@check_all(
    "query",
    [
        ms.Quantiles(NUMBERS),
        ms.Quantiles(REALS, (0.1, 0.9), (-0.5, 0.0, 0.5), 0.25),
        ms.Spread(REALS, 0.5),
        ms.ShareAbove(ms.Integers(0, 99), (49,), 20, 10),
    ],
)
def test_a_query_is_read_back(query: LineQuery) -> None:
    assert Query.of_kind(query.model_dump(mode="json")) == query
    assert hash(Query.of_kind(query.model_dump(mode="json"))) == hash(query)


@check_all("query", [ms.Quantiles(NUMBERS), ms.Spread(NUMBERS), ms.ShareAbove(NUMBERS, 3)])
def test_there_is_no_answer_about_nobody(query: LineQuery) -> None:
    with pytest.raises(InputError, match="no answer about nobody"):
        query.exact(np.zeros(11, dtype=np.int64))


def test_an_interval_contains_the_printed_number() -> None:
    query = ms.Quantiles(NUMBERS)
    estimate = Estimate(
        np.array([7.0]), None, 10, 1.0, lambda *_: (np.array([2.0]), np.array([5.0]))
    )
    answer = query.answer(estimate)
    assert np.array_equal(np.asarray(answer.interval), [[2.0, 7.0]])
    assert answer.standard_error is None
