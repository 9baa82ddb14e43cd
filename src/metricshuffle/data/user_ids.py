"""Names of users that may mean one person."""

from __future__ import annotations

from metricshuffle.models import format_value


def ambiguous_user_ids(users: dict[str, int], title: str, column: str) -> list[str]:
    """A warning if names of users differ in nothing but leading zeros, decimals or the size of letters."""
    seen: dict[str, str] = {}
    pairs = [(seen[form], name) for name in users if seen.setdefault(form := _plain_form(name), name) != name]
    if not pairs:
        return []
    first, second = pairs[0]
    others = f", and {len(pairs) - 1:,} more like them" if len(pairs) > 1 else ""
    return [
        f"Users {format_value(first)} and {format_value(second)} in {column!r} of {title} counted as two people{others}: names "
        "are compared as text. "
        "If they are one person, correct the names and do not use this outcome: the promise is about all that one person holds."
    ]


def _plain_form(name: str) -> str:
    form = name.casefold()
    if not form[-1:].isdigit():
        return form
    if "." in form and form.replace(".", "", 1).isdigit():
        form = form.rstrip("0").removesuffix(".")
    return form.lstrip("0") or "0" if form.isdigit() else form
