"""What `import metricshuffle` offers is exactly what docs/api.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import metricshuffle

TEXT = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
DOCUMENTED = re.findall(r"^- `(\w+)", TEXT, flags=re.MULTILINE)


def test_the_documented_names_are_the_exported_ones() -> None:
    assert sorted(DOCUMENTED) == sorted(metricshuffle.__all__)
    assert len(set(DOCUMENTED)) == len(DOCUMENTED)
    assert sorted(metricshuffle.__all__) == list(metricshuffle.__all__)


@pytest.mark.parametrize("name", metricshuffle.__all__)
def test_every_name_imports_and_says_what_it_is(name: str) -> None:
    value = getattr(metricshuffle, name)
    assert (value.__doc__ or "").strip()
    assert callable(value)  # `plan` is the function and not the module it lives in


def test_star_imports_and_unknown_names() -> None:
    space: dict[str, object] = {}
    exec("from metricshuffle import *", space)  # noqa: S102 - the only way to test it
    assert set(metricshuffle.__all__) <= set(space)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = metricshuffle.nothing_of_the_kind
