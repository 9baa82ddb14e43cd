"""The examples run as they are, here in a small configuration."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_heat_maps_of_a_city(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    output = tmp_path / "city.svg"
    loaded("city_heat_map").main(["--people", "2000", "--width", "9", "--output", str(output)])
    told = capsys.readouterr().out
    assert str(output) in told
    assert told.count("Hidden at epsilon 1.4") == 2  # one promise for each plan
    drawn = output.read_text(encoding="utf-8")
    ElementTree.fromstring(drawn)  # noqa: S314 - our own picture
    assert not re.search(r"(?:src|href)=|<script|@import|url\((?!#)", drawn)  # nothing is fetched
    description = re.search(r"<desc[^>]*>(.*?)</desc>", drawn)
    assert description is not None
    wrong = [int(share) for share in re.findall(r"(\d+)% of the people are in a wrong cell", description[1])]
    assert len(wrong) == 3
    assert max(wrong) < 60
