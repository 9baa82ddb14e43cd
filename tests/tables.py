"""Decorator for a test over a table of cases: all rows run, and every failing row is named."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def check_all(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with every row in turn, like `pytest.mark.parametrize` but as one test.

    For properties that take milliseconds per row and need no fixture of their own for each row.
    """
    arguments = (
        [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    )
    single = isinstance(names, str) and "," not in names
    listed = list(rows)
    assert listed, "a table without rows checks nothing"
    assert not any(hasattr(row, "marks") for row in listed), (
        "rows that are marked are tests of their own"
    )
    table = [(row,) if single else tuple(row) for row in listed]
    assert {len(row) for row in table} == {len(arguments)}, "every row has a value for each name"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def checked(**fixtures: Any) -> None:
            failures = []
            for row in table:
                case = dict(zip(arguments, row, strict=True))
                try:
                    test(**case, **fixtures)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                    failures.append(_describe(case, error))
            if failures:
                head = f"{len(failures)} of {len(table)} rows fail"
                pytest.fail("\n\n".join([head, *failures]), pytrace=False)

        signature = inspect.signature(test)
        missing = set(arguments) - set(signature.parameters)
        assert not missing, f"{test.__name__} takes no {', '.join(sorted(missing))}"
        left = [value for name, value in signature.parameters.items() if name not in arguments]
        checked.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return checked

    return decorate


def _describe(case: dict[str, Any], error: BaseException) -> str:
    """Description of a failing row, with the place and the reason."""
    row = ", ".join(f"{name}={value!r}" for name, value in case.items())
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    lines = traceback.format_exception(type(error), error, frames)
    return f"{row}\n{''.join(lines)}".rstrip()
