"""The examples run as they are, here in a small configuration."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_heat_map_of_a_city(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    output = tmp_path / "city.html"
    loaded("city_heat_map").main(["--people", "2000", "--width", "9", "--output", str(output)])
    assert str(output) in capsys.readouterr().out
    page = output.read_text(encoding="utf-8")
    assert page.count("<svg") == page.count("</svg>") == 4
    assert "Hidden at epsilon 1.4" in page
    assert not re.search(r"(?:src|href)=|<script|@import|url\(", page)  # nothing is fetched
    wrong = [int(share) for share in re.findall(r"(\d+) % of the people are in the wrong cell", page)]
    assert len(wrong) == 3
    assert max(wrong) < 60
