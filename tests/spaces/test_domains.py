"""Domains accept values inside and name the row of a value outside."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from tests.tables import check_all

from metricshuffle.errors import DomainError, InputError
from metricshuffle.spaces import AnyDomain, Categories, Domain, Grid, Integers, Interval

KCAL = Integers(0, 1000, unit="kcal")


def test_whole_floats_are_whole_numbers() -> None:
    validated = KCAL.validated([0, 3.0, np.int8(7), np.float32(9), 1000])
    assert validated.dtype == np.int64
    assert validated.tolist() == [0, 3, 7, 9, 1000]


@check_all(
    ("values", "count", "row", "words"),
    [
        ([5, 1001, -1], 2, 1, "1001 lies above it"),
        ([5, -1], 1, 1, "-1 lies below it"),
        ([5, 3.5], 1, 1, "3.5 is not a whole number"),
        ([5, math.nan], 1, 1, "NaN"),
        ([5, math.inf, 2], 1, 1, "inf is infinite"),
        ([1, True], 1, 1, "True is a truth value"),
        ([1, 2, "7"], 1, 2, "'7' is text"),
        ([None, 1], 1, 0, "None is missing"),
        ([1, Decimal(3)], 1, 1, "is a Decimal"),
        ([1e300], 1, 0, "1e+300 lies above"),
        ([-(10**400)], 1, 0, "an integer of 1329 bits lies below"),
        ([2**63], 1, 0, "9223372036854775808 lies above"),
        (np.array([2**64 - 1], dtype=np.uint64), 1, 0, "18446744073709551615 lies above"),
        (np.array([False, True]), 2, 0, "truth value"),
        (np.array(["a"]), 1, 0, "text"),
        (np.ma.MaskedArray([1, 2], mask=[False, True]), 1, 1, "is missing"),
    ],
)
def test_the_first_wrong_row_is_named(values: Any, count: int, row: int, words: str) -> None:
    with pytest.raises(DomainError) as told:
        KCAL.validated(values)
    assert f"{count} of {len(values)} values" in str(told.value)
    assert f"row {row} (counting from 0)" in str(told.value)
    assert words in str(told.value)
    assert "whole numbers from 0 to 1,000 kcal" in str(told.value)


@check_all("values", [5, "abc", [[1, 2]], {1, 2}])
def test_only_columns_are_validated(values: Any) -> None:
    with pytest.raises(InputError, match="one-dimensional"):
        KCAL.validated(values)


def test_empty_columns_pass() -> None:
    assert KCAL.validated([]).shape == (0,)
    assert Grid(2, 2).validated([]).shape == (0, 2)
    assert Categories(["a"]).validated([]).shape == (0,)


def test_integers_next_to_the_largest_bound_are_not_rounded_inside() -> None:
    widest = Integers(0, 2**53 - 1)
    assert widest.validated([2**53 - 1])[0] == 2**53 - 1
    for beyond in (2**53, 2**53 + 1, float(2**53)):
        assert not widest.contains(beyond)
    with pytest.raises(DomainError):
        widest.validated([0.5 * 2, 2**53 + 1])


def test_clamping_is_asked_for_and_still_refuses_what_is_no_number() -> None:
    assert KCAL.clamped([-5, 12, 1e300, 10**400, 1000.5]).tolist() == [0, 12, 1000, 1000, 1000]
    assert Interval(0, 1).clamped([-1, 0.25, 10**400]).tolist() == [0.0, 0.25, 1.0]
    assert Grid(3, 4).clamped([(-1, 9), (1, 1)]).tolist() == [[0, 3], [1, 1]]
    for bad in (math.nan, math.inf, "3", True, 3.5):
        with pytest.raises(DomainError):
            KCAL.clamped([bad])
    with pytest.raises(InputError, match="no order"):
        Categories(["a", "b"]).clamped(["c"])


def test_interval_keeps_its_ends_and_refuses_the_next_double() -> None:
    unit = Interval(-1, 1, unit="m")
    assert unit.validated([-1, 0.5, 1]).dtype == np.float64
    for outside in (math.nextafter(1, 2), math.nextafter(-1, -2), math.nan, -1e300):
        assert not unit.contains(outside)


def test_grid_cells_are_pairs_of_indices() -> None:
    grid = Grid(3, 4)
    assert grid.validated([(2, 3), (0.0, 0)]).tolist() == [[2, 3], [0, 0]]
    with pytest.raises(
        DomainError, match=r"1 of 2 values.*row 1 .*\(3, 3\) is not a column from 0 to 2"
    ):
        grid.validated([(2, 3), (3, 3)])
    with pytest.raises(DomainError, match="truth value"):
        grid.validated([(1, True)])
    with pytest.raises(DomainError, match="pair of whole numbers"):
        grid.validated([(1, 0.5)])
    for ragged in ([(1, 2), (1,)], [1, 2], [(1, 2, 3)]):
        with pytest.raises(InputError, match="shape"):
            grid.validated(ragged)


def test_labels_become_codes_and_back() -> None:
    colours = Categories(["red", "green", "blue"])
    assert colours.validated(["blue", "red"]).tolist() == [2, 0]
    assert colours.labels_of([2, 0]) == ["blue", "red"]
    with pytest.raises(DomainError, match=r"2 of 3 values are.*row 1 .*'pink' is not a label"):
        colours.validated(["red", "pink", 1])
    with pytest.raises(DomainError, match=r"row 0 .* labels are text"):
        colours.validated([0])
    with pytest.raises(DomainError):
        colours.labels_of([3])


@check_all(
    ("make", "field"),
    [
        (lambda: Integers(5, 5), "low must be below high"),
        (lambda: Integers(0, 2**53), "high must lie within"),
        (lambda: Integers(-(2**53) + 1, 2**53 - 1), "high - low"),
        (lambda: Integers(0, 10**400), "high must be a finite"),
        (lambda: Integers(True, 5), "low must be a number"),
        (lambda: Integers(0, "9"), "high must be a number"),  # type: ignore[arg-type]
        (lambda: Integers(0.5, 5), "low must be a whole"),  # type: ignore[arg-type]
        (lambda: Integers(0, 5, unit=3), "unit"),  # type: ignore[arg-type]
        (lambda: Integers(0, 5, colour=3), "colour is not one of its fields"),
        (lambda: Interval(0, math.nan), "high must be a finite"),
        (lambda: Interval(-math.inf, 0), "low must be a finite"),
        (lambda: Interval(-1.7e308, 1.7e308), "high - low must be finite"),
        (lambda: Interval(2, 1), "low must be below high"),
        (lambda: Grid(0, 5), "width must be at least 1"),
        (lambda: Grid(5, -1), "height must be at least 1"),
        (lambda: Grid(5, 5, cell=0), "cell must be > 0"),
        (lambda: Grid(5, 5, cell=math.nan), "cell must be a finite"),
        (lambda: Grid(2**52, 5, cell=1e300), "width \\* cell must be finite"),
        (lambda: Categories([]), "labels must name at least one"),
        (lambda: Categories(["a", ""]), "label 1 "),
        (lambda: Categories(["a", "b", "a"]), "'a' appears more than once"),
        (lambda: Categories([1, 2]), "labels"),
    ],
)
def test_wrong_declarations_name_the_field(make: Any, field: str) -> None:
    with pytest.raises(InputError, match=field):
        make()


class File(BaseModel):
    domain: AnyDomain


DOMAINS = [
    KCAL,
    Interval(-0.5, 1e-3, "m"),
    Grid(100, 80, cell=50, unit="m"),
    Categories(("a", "b")),
]


@check_all("domain", DOMAINS)
def test_json_both_ways(domain: Domain) -> None:
    assert type(domain).model_validate_json(domain.model_dump_json()) == domain
    assert File.model_validate_json(File(domain=domain).model_dump_json()) == File(domain=domain)
    assert hash(domain) == hash(domain.model_copy())


@check_all("field", ["kind", "low", "unit"])
def test_domains_are_frozen(field: str) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(KCAL, field, 1)


@check_all(
    ("text", "words"),
    [
        ('{"domain": {"kind": "integers", "low": 5}}', "needs high"),
        ('{"domain": {"kind": "integers", "low": 5, "high": 3}}', "low must be below high"),
        (
            '{"domain": {"kind": "integers", "low": 0, "high": 3, "step": 2}}',
            "step is not one of its fields",
        ),
        ('{"domain": {"kind": "torus"}}', "unknown kind 'torus'"),
        ('{"domain": {"low": 0, "high": 3}}', "unknown kind None"),
    ],
)
def test_damaged_files_are_validation_errors_in_words(text: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        File.model_validate_json(text)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=3), st.none()),
        max_size=8,
    )
)
def test_a_column_passes_exactly_if_every_value_does(values: list[Any]) -> None:
    def inside(value: Any) -> bool:
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 <= value <= 1000
            and value == int(value)
        )

    wrong = [row for row, value in enumerate(values) if not inside(value)]
    if wrong:
        with pytest.raises(
            DomainError, match=rf"^{len(wrong)} of {len(values)} values.* row {wrong[0]} \("
        ):
            KCAL.validated(values)
    else:
        assert KCAL.validated(values).tolist() == values
