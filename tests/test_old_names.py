"""Module paths and names of the version before still work, with a warning that names the new one."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import metricshuffle

TABLE = json.loads((Path(metricshuffle.__file__).parent / "_old_names.json").read_text(encoding="utf-8"))


def test_an_old_module_is_the_new_one_with_a_warning() -> None:
    sys.modules.pop("metricshuffle.wire.task", None)
    with pytest.warns(DeprecationWarning, match="is now") as warned:  # (the folder warns, too)
        old = importlib.import_module("metricshuffle.wire.task")
    assert "metricshuffle.wire.task is now metricshuffle.tasks.task; the old name" in str(warned[-1].message)
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
table = json.load(sys.stdin)
lost = []
for old, new in table["modules"].items():
    try:
        importlib.import_module(old)
    except ImportError as error:
        lost.append(f"{old}: {error}")
for key in table["members"]:
    module, _, name = key.partition(":")
    if module in table["modules"] and not hasattr(importlib.import_module(module), name):
        lost.append(key)
print(json.dumps(lost))
"""
    done = subprocess.run([sys.executable, "-c", code], input=json.dumps(TABLE), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_a_path_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("metricshuffle.wires")
