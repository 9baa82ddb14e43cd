"""Errors carry the argument at fault, and each interface writes arguments by its own names."""

from __future__ import annotations

import pickle

from metricshuffle.errors import DomainError, InputError, argument

PROBLEM = (
    f"{argument('users')} must be at least 1, got 0; set {argument('per_user', 'mean')} or "
    f"{argument('clamp', True)}."
)


def as_option(name: str, value: str | None) -> str:
    return f"--{name.replace('_', '-')}" + (
        "" if value in (None, "True") else f" {str(value).strip(chr(39))}"
    )


def test_python_names_are_the_default() -> None:
    error = InputError(PROBLEM, remedy="Ask more people.")
    assert (
        str(error)
        == "users must be at least 1, got 0; set per_user='mean' or clamp=True. Ask more people."
    )
    assert error.field == "users"
    assert repr(error) == f"InputError({str(error)!r})"


def test_another_interface_writes_its_own_names() -> None:
    assert (
        InputError(PROBLEM).text(as_option)
        == "--users must be at least 1, got 0; set --per-user mean or --clamp."
    )


def test_field_can_be_named_or_missing() -> None:
    assert InputError("the box is too wide.", field="east").field == "east"
    assert InputError("the file is empty.").field is None


def test_other_names_for_arguments_hold_in_the_remedy_too() -> None:
    error = InputError(
        f"{argument('per_user')} is not known.", remedy=f"Leave {argument('per_user')} out."
    )
    renamed = error.renamed(per_user="summary")
    assert str(renamed) == "summary is not known. Leave summary out."
    assert (renamed.field, error.field) == ("summary", "per_user")


def test_prefix_and_pickle_keep_everything() -> None:
    error = DomainError(PROBLEM, remedy="Ask more people.")
    for copy in (error.prefixed("a.csv: "), pickle.loads(pickle.dumps(error))):  # noqa: S301 - made here
        assert isinstance(copy, DomainError)
        assert (copy.field, copy.remedy) == ("users", "Ask more people.")
        assert copy.text(as_option).endswith(error.text(as_option))
    assert str(error.prefixed("a.csv: ")) == f"a.csv: {error}"
