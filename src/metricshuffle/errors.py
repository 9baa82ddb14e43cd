"""Exceptions of this package.

    MetricShuffleError
    ├── InputError            a value, option, column or file is wrong (also a ValueError)
    │   ├── DomainError       a value lies outside the declared space
    │   ├── PlanError         a plan file is damaged, edited or does not fit the data
    │   └── BatchTooSmall     fewer reports than the plan's guarantee counts on
    ├── ConditionError        a theorem was used outside its conditions
    ├── NotCertified          a bound exists but could not be certified (too many cells)
    └── MissingExtra          an optional dependency is not installed (also an ImportError)

Every message is a sentence: what is wrong, where, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Self

ArgumentNames = Callable[[str, str | None], str]
"""Function that formats an argument for one interface, given its name and Python value."""
_ARGUMENT = re.compile("\x02([^\x03=]*)(?:=([^\x03]*))?\x03")
_OWNER = re.compile("\x04([^\x05]*)\x05")


def argument(name: str, value: object = None) -> str:
    """Mark an argument in an error message; each interface prints its own name for it.

    Without a value, an interface prints the argument (`clamp`, `--clamp`); with a value, it prints
    the argument set to that value (`clamp=True`, `--clamp`).
    """
    if value is None:
        return f"\x02{name}\x03"
    is_short = isinstance(value, float) and float(f"{value:g}") == value
    return f"\x02{name}={value:g}\x03" if is_short else f"\x02{name}={value!r}\x03"


def owner(name: str) -> str:
    """Mark the class whose argument is wrong, at the start of a message; only Python prints it."""
    return f"\x04{name}: \x05"


def without_owner(template: str) -> str:
    """Remove the marked class from a message."""
    return _OWNER.sub("", template)


def python_name(name: str, value: str | None) -> str:
    """Argument as Python writes it."""
    return name if value is None else f"{name}={value}"


class MetricShuffleError(Exception):
    """Base class of all errors that this package raises on purpose.

    Args:
        problem: what is wrong. Arguments are marked by `argument`.
        field: argument at fault; by default the first one that the problem marks.
        remedy: what to do, if the problem does not say so: a sentence, or a text in lower case that
            continues the problem after a semicolon.
    """

    def __init__(self, problem: str = "", *, field: str | None = None, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        first = _ARGUMENT.search(problem)
        self.field = first[1] if field is None and first is not None else field

    @property
    def template(self) -> str:
        """Message with its arguments still marked, to build another error from this one."""
        if self.remedy[:1].islower():
            return f"{self.problem.rstrip('.')}; {self.remedy}"
        return f"{self.problem} {self.remedy}".rstrip()

    def text(self, names: ArgumentNames) -> str:
        """Return the message with the argument names of one interface, without the class."""
        return _ARGUMENT.sub(lambda mark: names(mark[1], mark[2]), without_owner(self.template))

    def __str__(self) -> str:
        python_text = _OWNER.sub(lambda mark: mark[1], self.template)
        return _ARGUMENT.sub(lambda mark: python_name(mark[1], mark[2]), python_text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def prefixed(self, prefix: str) -> Self:
        """Copy of the error with a prefix, such as the file that it is about."""
        return self._copy(f"{prefix}{self.problem}", self.remedy, self.field)

    def renamed(self, **names: str) -> Self:
        """Copy of the error with other names for its arguments."""

        def rename(mark: re.Match[str]) -> str:
            return mark[0].replace(mark[1], names.get(mark[1], mark[1]), 1)

        problem, remedy = (_ARGUMENT.sub(rename, part) for part in (self.problem, self.remedy))
        return self._copy(problem, remedy, names.get(self.field or "", self.field))

    def _copy(self, problem: str, remedy: str, field: str | None) -> Self:
        error = type(self).__new__(type(self))
        error.args = (problem,)
        error.__dict__.update(vars(self), problem=problem, remedy=remedy, field=field)
        return error


class InputError(MetricShuffleError, ValueError):
    """An input of the caller is invalid."""


class DomainError(InputError):
    """A value lies outside the declared space; `where` has the rows if a column was given."""

    where: WrongRows | None = None


@dataclass(frozen=True)
class WrongRows:
    """Invalid rows of a column (counted from 0), the expected domain, and a reason for each."""

    rows: Sequence[int]
    inside: str
    reason: Callable[[int], str]
    can_clamp: Callable[[int], bool]
    """Whether a row has a finite number outside the domain, which clamping would move."""


class PlanError(InputError):
    """A plan or one of its files is damaged, edited by hand, or belongs to something else."""


class BatchTooSmall(InputError):
    """A batch has fewer reports than the plan's guarantee counts on."""


class ConditionError(MetricShuffleError):
    """A theorem was used outside its conditions."""

    def __init__(self, theorem: str, condition: str, got: str) -> None:
        self.theorem = theorem
        self.condition = condition
        self.got = got
        super().__init__(f"{theorem} needs {condition}, but got {got}.")


class NotCertified(MetricShuffleError):
    """A number could not be certified, so no number is returned."""


class InputWarning(UserWarning):
    """Warning about the values, for example that rows were left out as requested."""


class MissingExtra(MetricShuffleError, ImportError):
    """An optional dependency is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module; raises MissingExtra with the name of the extra."""
    try:
        return import_module(module)
    except ImportError as missing:
        raise MissingExtra(
            f"This needs the optional package {module.split('.')[0]!r}; install it with: "
            f"pip install 'metricshuffle[{extra}]'"
        ) from missing
