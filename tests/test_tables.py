"""Tables of cases: one test checks every row, names failures, and cannot be empty."""

from __future__ import annotations

import pytest
from tests.tables import check_all

ROWS = [(1, 2), (3, 3), (5, 4)]


def test_every_row_is_checked_and_all_that_fail_are_named() -> None:
    seen = []

    @check_all("low, high", ROWS)
    def ordered(low: int, high: int) -> None:
        seen.append((low, high))
        assert low < high

    with pytest.raises(pytest.fail.Exception) as failure:
        ordered()
    assert seen == ROWS
    text = str(failure.value)
    assert text.startswith("2 of 3 rows fail\n\nlow=3, high=3\n")
    assert "low=5, high=4\n" in text
    assert "low=1" not in text
    assert "assert low < high" in text


def test_rows_that_skip_or_raise_nothing_expected_fail() -> None:
    @check_all("value", [0, 1])
    def refused(value: int) -> None:
        if value:
            pytest.skip("not here")
        with pytest.raises(ValueError, match="never"):
            pass

    with pytest.raises(pytest.fail.Exception, match="2 of 2 rows fail"):
        refused()


@check_all("first", [1, 2])
@check_all(("second", "both"), [(1, "x1"), (2, "x2")])
def test_tables_cross_and_fixtures_come(
    first: int, second: int, both: str, request: pytest.FixtureRequest
) -> None:
    assert (first in (1, 2), both) == (True, f"x{second}")
    assert request.node.name == "test_tables_cross_and_fixtures_come"


def test_tables_that_would_not_be_checked_as_meant_are_refused() -> None:
    with pytest.raises(AssertionError, match="without rows"):
        check_all("value", [])
    with pytest.raises(AssertionError, match="tests of their own"):
        check_all("value", [1, pytest.param(2, marks=pytest.mark.slow)])
    with pytest.raises(AssertionError, match="a value for each name"):
        check_all("first, second", [(1, 2), (3,)])
    with pytest.raises(AssertionError, match="takes no other"):

        @check_all("other", [1])
        def ignored(value: int) -> None:
            del value
