"""Settings of a plan: steps, consistent options, and invalid ones for a query."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from metricshuffle.errors import InputError
from metricshuffle.planning.candidates.sum_setting import SumSetting
from metricshuffle.planning.plan import plan
from metricshuffle.planning.plan_request import PlanRequest
from metricshuffle.privacy.target import Target
from metricshuffle.queries import (
    Centroid,
    Histogram,
    Mean,
    Query,
    Sum,
    UserHistogram,
    UserLinearQuery,
)
from metricshuffle.queries.summed_query import SummedQuery
from metricshuffle.spaces import Categories, Grid, Integers, Interval, users_of

NEAR = Target(1.0, 1e-6, 1.0)
QUERIES: dict[str, Query] = {
    "sum": Sum(Integers(0, 9)),
    "mean": Mean(Interval(0.0, 9.0)),
    "centroid": Centroid(Grid(5, 5)),
    "histogram": Histogram(Integers(0, 9)),
    "labels": Histogram(Categories(["a", "b", "c"])),
    "users": UserHistogram(users_of(Integers(0, 9))),
    "users with items": UserHistogram(users_of(Integers(0, 9), 3)),
    "users' mean": UserLinearQuery.average(users_of(Integers(0, 9))),
}
ONLY_SUMS: dict[str, Any] = {
    "encoding": "unary",
    "padding": "bounded",
    "granularity": 2,
    "transport": "aggregator",
}


def steps_of(query: SummedQuery, target: Target, **choices: Any) -> SumSetting:
    return SumSetting(PlanRequest(query, target, 100, None, **choices).setting, query)


def test_a_real_number_has_many_steps_in_a_grain() -> None:
    """Real numbers are counted in 4096ths of the granularity."""
    setting = steps_of(Mean(Interval(-5, 5)), Target(1, 1e-6, 2), granularity=0.5)
    assert (setting.grain, setting.step) == (4096, 0.5 / 4096)
    assert setting.target.distance == pytest.approx(4 * 4096, rel=1e-11)
    assert setting.query.between(setting.step) == "values rounded to steps of 0.0001221"


def test_a_distance_in_cells_is_whole_where_it_was_meant_to_be() -> None:
    """0.3 km of cells of 0.1 km are three cells."""
    setting = steps_of(Centroid(Grid(20, 20, cell=0.1)), Target(1, 1e-6, 0.3))
    assert math.floor(setting.target.distance) == 3
    assert steps_of(Sum(Integers(0, 9)), Target(1, 1e-6, 3)).target.distance == 3.0


def test_epsilon_can_be_changed_alone() -> None:
    """All else of a setting stays."""
    setting = PlanRequest(Mean(Integers(0, 40)), Target(1.5, 1e-5, 7, "flat"), 9, 8).setting
    assert setting.at_epsilon(2.0).target == Target(2.0, 1e-5, 7, "flat")
    assert setting.at_epsilon(2.0).honest == 8


@pytest.mark.parametrize("option", ONLY_SUMS)
@pytest.mark.parametrize(
    "name", [name for name, query in QUERIES.items() if not isinstance(query, SummedQuery)]
)
def test_what_is_about_sums_makes_no_sense_for_tables_and_items(name: str, option: str) -> None:
    """Encodings, padding, granularity and the transport of shares are refused by name."""
    query = QUERIES[name]
    with pytest.raises(
        InputError, match=rf"^{option} does not apply to a {query.kind}; leave it out\.$"
    ):
        plan(query, NEAR, 50, **{option: ONLY_SUMS[option]})


@pytest.mark.parametrize("name", QUERIES)
def test_draws_are_for_histograms_of_users(name: str) -> None:
    """No other protocol draws items, so nobody may believe that hers are drawn."""
    if "draw" in QUERIES[name].options:
        assert PlanRequest(QUERIES[name], NEAR, 50, draw=2).draw == 2
        with pytest.warns(DeprecationWarning, match="samples is now draw"):
            assert PlanRequest(QUERIES[name], NEAR, 50, samples=2).draw == 2
        with pytest.warns(DeprecationWarning, match="samples is now draw"):
            plan(QUERIES[name], NEAR, 50, samples=2, protocols=["item-wise"])
    else:
        with pytest.raises(InputError, match="draw does not apply"):
            plan(QUERIES[name], NEAR, 50, draw=2)


def test_draws_without_replacement_need_one_public_number() -> None:
    """Unequal numbers, more draws than items, and no number of draws are refused."""
    unequal = UserHistogram(users_of(Integers(0, 3)))
    equal = UserHistogram(users_of(Integers(0, 3), 4))
    with pytest.raises(InputError, match="draws without replacement of unequal numbers"):
        plan(unequal, NEAR, 50, draw=2, without_replacement=True)
    with pytest.raises(InputError, match="at most the 4 that everybody holds, got 5"):
        plan(equal, NEAR, 50, draw=5, without_replacement=True)
    with pytest.raises(InputError, match="needs draw"):
        plan(equal, NEAR, 50, without_replacement=True)
    with pytest.raises(InputError, match="without_replacement does not apply"):
        plan(QUERIES["sum"], NEAR, 50, without_replacement=True)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(
    "wrong",
    [
        {"users": 0},
        {"users": 2.5},
        {"users": True},
        {"users": 10**14},
        {"honest": 51},
        {"honest": 0},
        {"honest": "many"},
        {"rounds": 0},
        {"rounds": 1.5},
        {"rounds": True},
        {"trusted": "analyst"},
        {"trusted": None},
        {"max_bits": 0},
        {"max_bits": 2.5},
        {"max_bits": "3"},
        {"max_bits": True},
        {"max_local_epsilon": 0.0},
        {"max_local_epsilon": math.nan},
        {"max_local_epsilon": math.inf},
        {"max_local_epsilon": "3"},
        {"max_local_epsilon": True},
        {"protocols": "tree-laplace"},
        {"protocols": 3},
        {"protocols": []},
        {"protocols": ["magic"]},
        {"protocols": [3]},
    ],
    ids=str,
)
def test_wrong_wishes_are_a_sentence_that_names_them(name: str, wrong: dict[str, Any]) -> None:
    """The same for every query; nothing ends as another kind of exception."""
    (option,) = wrong
    with pytest.raises(InputError, match=rf"{option.removesuffix('s')}.*\.$"):
        plan(QUERIES[name], NEAR, **{"users": 50, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"encoding": "binary"},
        {"encoding": ["unary"]},
        {"padding": "none"},
        {"transport": "curator"},
        {"granularity": 0},
        {"granularity": -1.0},
        {"granularity": math.nan},
        {"granularity": math.inf},
        {"granularity": "2"},
        {"granularity": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["sum", "mean", "centroid"])
def test_wrong_choices_for_sums_are_a_sentence_that_names_them(
    name: str, wrong: dict[str, Any]
) -> None:
    """Granularities that are no number, and encodings that do not exist."""
    (option,) = wrong
    with pytest.raises(InputError, match=rf"{option}.*\.$"):
        plan(QUERIES[name], NEAR, 50, **wrong)


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("sum", Target(1, 1e-6, 10), "beyond the diameter"),
        ("centroid", Target(1, 1e-6, 6), "beyond the diameter"),
        ("histogram", Target(1, 1e-6, 0.5), "between one step, 1, and the diameter"),
        ("histogram", Target(1, 1e-6, 9.5), "between one step, 1, and the diameter"),
        ("labels", Target(1, 1e-6, 2.0), "must be 1"),
        ("users", Target(1, 1e-6, 9.5), "largest earth mover's distance"),
        ("users with items", Target(1, 1e-6, 0.1), "less than the smallest move"),
    ],
)
def test_distances_that_promise_nothing_are_refused(name: str, target: Target, words: str) -> None:
    """Farther than any two people are apart, or nearer than the smallest move there is."""
    with pytest.raises(InputError, match=words):
        plan(QUERIES[name], target, 50)


def test_a_plan_needs_a_query_and_a_target() -> None:
    """Anything else is named."""
    with pytest.raises(InputError, match=r"a plan needs a query .* got str and Target"):
        plan("mean", NEAR, 50)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got Sum and tuple"):
        plan(QUERIES["sum"], (1.0, 1e-6, 1.0), 50)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", QUERIES)
def test_only_the_protocols_that_are_wanted_are_calibrated(name: str) -> None:
    """`protocols` filters; a protocol of another query is an error that lists the known."""
    choices: dict[str, Any] = {"granularity": 1.0, "encoding": "modular"} if name == "mean" else {}
    everything = plan(QUERIES[name], Target(1.0, 1e-6, 1.0), 50, trusted="curator", **choices)
    names = {offer.protocol for offer in everything.candidates}
    for wanted in sorted(names):
        calibrated = plan(
            QUERIES[name],
            Target(1.0, 1e-6, 1.0),
            50,
            trusted="curator",
            protocols=[wanted],
            **choices,
        )
        assert {offer.protocol for offer in calibrated.candidates} == {wanted}
        assert all(row.protocol == wanted for row in calibrated.not_offered)
    other = "tree-laplace" if "tree-laplace" not in names else "geometric-local"
    with pytest.raises(
        InputError, match=f"there is no protocol '{other}' for .*; choose among .*{min(names)}"
    ):
        plan(QUERIES[name], Target(1.0, 1e-6, 1.0), 50, protocols=[other], **choices)


@pytest.mark.slow
def test_the_order_of_protocols_does_not_depend_on_what_was_imported_first() -> None:
    """Families are asked by name, so that two plans of the same wishes are the same file."""
    text = (
        "import metricshuffle.planning.candidates.{first}, metricshuffle as ms; q = "
        "ms.UserHistogram(ms.users_of(ms.Integers(0, 3), 1)); "
    )
    text += "print(ms.plan(q, ms.Target(1, 0, 1), 10, trusted='nobody').to_json())"
    plans = [
        subprocess.run(
            [sys.executable, "-c", text.format(first=first)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for first in ("noisy_answers", "item_wise")
    ]
    assert plans[0] == plans[1]
    assert "item-wise" in plans[0]
