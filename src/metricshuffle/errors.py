"""The exception tree.

    MetricShuffleError
    ├── InputError            a value, option, column or file is wrong (also a ValueError)
    │   ├── DomainError       a value lies outside the declared space
    │   ├── PlanError         a plan file is damaged, edited or does not fit the data
    │   └── BatchTooSmall     fewer reports than the plan's guarantee counts on
    ├── ConditionError        a theorem was asked for outside its conditions
    ├── NotCertified          a bound exists but could not be certified (too many cells, no convergence)
    └── MissingExtra          an optional dependency is not installed (also an ImportError)

Every message is a sentence: what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType


class MetricShuffleError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(MetricShuffleError, ValueError):
    """Something the caller gave is wrong; the message names the field and the remedy."""


class DomainError(InputError):
    """A value lies outside the declared space; `where` tells which rows, if a whole column was looked at."""

    where: WrongRows | None = None


@dataclass(frozen=True)
class WrongRows:
    """Which rows of a column are wrong (counting from 0), where they should lie, and what is wrong with each."""

    rows: Sequence[int]
    inside: str
    reason: Callable[[int], str]
    can_clamp: Callable[[int], bool]
    """Whether a row holds a finite number outside, which clamping would move."""


class PlanError(InputError):
    """A plan or one of its files is damaged, edited by hand, or belongs to something else."""


class BatchTooSmall(InputError):
    """A batch holds fewer reports than the plan's guarantee counts on."""


class ConditionError(MetricShuffleError):
    """A theorem was asked for outside its conditions."""

    def __init__(self, theorem: str, condition: str, got: str) -> None:
        self.theorem, self.condition, self.got = theorem, condition, got
        super().__init__(f"{theorem} needs {condition}, but got {got}.")


class NotCertified(MetricShuffleError):
    """A number could not be certified, so no number is returned."""


class InputWarning(UserWarning):
    """Something about the values that a reader should know, like rows that were left out because they were told to be."""


class MissingExtra(MetricShuffleError, ImportError):
    """An optional dependency is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say in one sentence which extra brings it."""
    try:
        return import_module(module)
    except ImportError as missing:
        raise MissingExtra(
            f"This needs the optional package {module.split('.')[0]!r}; install it with: pip install 'metricshuffle[{extra}]'"
        ) from missing
