"""Old module paths and names still work, with a warning that names the new one."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import metricshuffle

OLD_MODULES = Path(__file__).with_name("old_modules.txt").read_text(encoding="utf-8").split()
"""Every module of the version before the renaming."""
TABLE = json.loads(
    (Path(metricshuffle.__file__).parent / "_old_names.json").read_text(encoding="utf-8")
)


def test_an_old_module_is_the_new_one_with_a_warning() -> None:
    sys.modules.pop("metricshuffle.wire.task", None)
    with pytest.warns(DeprecationWarning, match="is now") as warned:  # (the folder warns, too)
        old = importlib.import_module("metricshuffle.wire.task")
    assert "metricshuffle.wire.task is now metricshuffle.tasks.task; the old name" in str(
        warned[-1].message
    )
    assert old.Task is metricshuffle.Task


def test_an_old_name_in_an_old_module() -> None:
    with pytest.warns(DeprecationWarning, match=r"metricshuffle\.models"):
        old = importlib.reload(importlib.import_module("metricshuffle.declared"))
    from metricshuffle.models import FrozenModel

    assert old.Declared is FrozenModel
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = old.nothing_of_this_name


@pytest.mark.thorough
def test_every_old_module_and_name_is_found() -> None:
    """In a process of its own, which imports all of them."""
    code = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
modules, members = json.load(sys.stdin)
lost = []
for module in modules:
    try:
        importlib.import_module(module)
    except ImportError as error:
        lost.append(f"{module}: {error}")
for key in members:
    module, _, name = key.partition(":")
    if not hasattr(importlib.import_module(module), name):
        lost.append(key)
print(json.dumps(lost))
"""
    modules = sorted({*OLD_MODULES, *TABLE["modules"]} - TABLE["removed"].keys())
    members = [key for key in TABLE["members"] if key.partition(":")[0] in TABLE["modules"]]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([modules, members]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == []


def test_every_old_module_is_there_or_listed() -> None:
    """Without importing them: as a file, or in the table of old names."""
    source = Path(metricshuffle.__file__).parents[1]
    places = {module: source.joinpath(*module.split(".")) for module in OLD_MODULES}
    missing = {
        module
        for module, path in places.items()
        if not path.with_suffix(".py").exists() and not (path / "__init__.py").exists()
    }
    assert missing <= TABLE["modules"].keys() | TABLE["removed"].keys()


def test_modules_of_the_papers_are_in_the_other_distribution() -> None:
    for module in ("metricshuffle.papers.outcomes", "metricshuffle.papers"):
        sys.modules.pop(module, None)
    with pytest.warns(DeprecationWarning, match=r"papers is now metricshuffle_papers;"):
        importlib.import_module("metricshuffle.papers")
    with pytest.warns(DeprecationWarning, match=r"outcomes is now metricshuffle_papers\.outcomes"):
        old = importlib.import_module("metricshuffle.papers.outcomes")
    assert old.Outcome is importlib.import_module("metricshuffle_papers.outcomes").Outcome


def test_modules_of_the_papers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metricshuffle_papers", None)
    monkeypatch.delitem(sys.modules, "metricshuffle.papers", raising=False)
    with pytest.raises(
        ImportError,
        match=(
            r"metricshuffle\.papers is part of metricshuffle-papers now; install it with: pip "
            "install metricshuffle-papers"
        ),
    ):
        importlib.import_module("metricshuffle.papers")


def test_a_module_that_was_removed_says_so() -> None:
    with pytest.raises(
        ModuleNotFoundError,
        match=r"first_version was removed: plan files of version 0\.1 are no longer read",
    ):
        importlib.import_module("metricshuffle.planning.first_version")


def test_a_path_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("metricshuffle.wires")
