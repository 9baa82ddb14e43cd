"""Exports of `metricshuffle` agree with its __init__.pyi and docs/api.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.tables import check_all

import metricshuffle
import metricshuffle_papers
from metricshuffle import randomizers
from metricshuffle._old_names import MOVED

TEXT = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
DOCUMENTED = re.findall(r"^- `(\w+)", TEXT, flags=re.MULTILINE)


def listed(package: ModuleType) -> dict[str, str]:
    """Name -> module of every import in the .pyi of a package."""
    stub = Path(str(package.__file__)).with_suffix(".pyi")
    imports = [
        node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    for node in imports:
        for alias in node.names:
            assert alias.asname == alias.name, (
                f"{alias.name} is not exported to type checkers; write `{alias.name} as "
                f"{alias.name}`"
            )
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_the_documented_names_are_the_exported_ones() -> None:
    """Every name once, in docs/api.md and in __all__."""
    assert sorted(DOCUMENTED) == sorted(metricshuffle.__all__)
    assert len(set(DOCUMENTED)) == len(DOCUMENTED)
    assert sorted(metricshuffle.__all__) == list(metricshuffle.__all__)


@check_all("package", [metricshuffle, randomizers])
def test_the_exported_names_are_those_of_the_listing(package: ModuleType) -> None:
    """__all__ is the list in __init__.pyi, and every name comes from the module named there.

    Submodules are not part of it.
    """
    names = {name: home for name, home in listed(package).items() if home != package.__name__}
    assert sorted(package.__all__) == sorted(names)
    for name, home in names.items():
        value = getattr(package, name)
        assert value is getattr(sys.modules[home], name)
        assert name in dir(package)


@check_all("name", metricshuffle.__all__)
def test_every_name_imports_and_says_what_it_is(name: str) -> None:
    """With words of its own; `plan` is the function and not the module it lives in."""
    value = getattr(metricshuffle, name)
    assert (value.__doc__ or "").strip()
    assert callable(value)


def test_star_imports_and_unknown_names() -> None:
    """All names come with a star, and others are refused by name."""
    space: dict[str, object] = {}
    exec("from metricshuffle import *", space)  # noqa: S102 - the only way to test it
    assert set(metricshuffle.__all__) <= set(space)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = metricshuffle.nothing_of_the_kind  # type: ignore[attr-defined]


def test_importing_the_package_imports_none_of_it() -> None:
    """Modules come when a name is first asked for, so that a command line answers at once."""
    code = (
        "import sys, metricshuffle; print(sorted(name for name in sys.modules if "
        "name.startswith('metricshuffle') or name == 'numpy'))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert ast.literal_eval(told) == [
        "metricshuffle",
        "metricshuffle._lazy_exports",
        "metricshuffle._old_names",
    ]


@check_all("name", sorted(MOVED))
def test_names_that_moved_are_found_with_a_warning(name: str) -> None:
    assert name not in metricshuffle.__all__
    with pytest.warns(
        DeprecationWarning,
        match=rf"metricshuffle_papers\.{name} of the distribution metricshuffle-papers",
    ) as warned:
        assert getattr(metricshuffle, name) is getattr(metricshuffle_papers, name)
    assert warned[0].filename == __file__


def test_names_that_moved_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metricshuffle_papers", None)
    with pytest.raises(
        ImportError,
        match=(
            "compare_users is part of metricshuffle-papers now; install it with: pip install "
            "metricshuffle-papers"
        ),
    ):
        from metricshuffle import compare_users  # type: ignore[attr-defined]  # noqa: F401


def test_the_papers_offer_what_moved() -> None:
    assert set(metricshuffle_papers.__all__) == MOVED == set(listed(metricshuffle_papers))
