"""Numbers on the page agree with the command line, for random settings."""

from __future__ import annotations

import json
import os
import random
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from tests.web.conftest import Served
from typer.testing import CliRunner

import metricshuffle as ms
from metricshuffle.cli.command_group import app
from metricshuffle.numerics.rounding import format_epsilon
from metricshuffle.planning.plan_text import candidate_rows
from metricshuffle.report.report_subject import ReportSubject
from metricshuffle.report.sections.headline import headline
from metricshuffle.web.downloads import arguments
from metricshuffle.web.engineer_cards import RANDOMIZER_FIELDS
from metricshuffle.web.form_fields import FieldErrors
from metricshuffle.web.results import load_result

CARDS = ("number", "place", "category", "items")


def drawn(card: str, seed: int) -> dict[str, str]:
    """A setting that can be planned in seconds; whatever a form has is in some of them."""
    draw = random.Random(f"{card} {seed}")
    common = {
        "epsilon": f"{draw.choice([0.5, 1, 2, 4]) * draw.uniform(0.8, 1.2):.3g}",
        "users": str(draw.choice([300, 1000, 5000])),
        "honest": str(draw.choice([80, 90, 100])),
        "delta": draw.choice(["1e-6", "1e-8"]),
        "rounds": draw.choice(["1", "1", "3"]),
        "trusted": draw.choice(["shuffler", "shuffler", "nobody", "aggregator", "curator"]),
        "max_local_epsilon": draw.choice(["", "", "", "8"]),
        "max_bits": draw.choice(["", "", "", "4096"]),
    }
    common |= {"first": "accuracy"} if draw.random() < 0.25 else {}
    common |= {"flat": "on"} if draw.random() < 0.2 else {}
    real = draw.random() < 0.3
    own: dict[str, dict[str, Any]] = {
        "number": {
            "question": draw.choice(["mean", "sum", "histogram"]),
            "low": "0.0" if real else str(draw.choice([0, -20])),
            "high": str(draw.choice([60, 200])),
            "granularity": "5" if real else draw.choice(["", "", "2"]),
            "step": "20",
            "distance": str(draw.choice([20, 40])),
            "unit": draw.choice(["", "min"]),
            "encoding": draw.choice(["modular", "modular", "unary", "auto"]),
        },
        "place": {
            "question": draw.choice(["map", "centroid"]),
            "where": draw.choice(["grid", "grid", "box"]),
            "width": str(draw.randint(3, 5)),
            "height": str(draw.randint(2, 4)),
            "south": "48.1",
            "west": "11.5",
            "north": "48.12",
            "east": "11.53",
            "cell": draw.choice(["500", "700"]),
            "distance": draw.choice(["700", "1000"]),
        },
        "category": {"labels": ",".join("abcdefgh"[: draw.randint(2, 6)])},
        "items": {
            "question": draw.choice(["histogram", "mean"]),
            "item": draw.choice(["number", "number", "label", "square"]),
            "high": str(draw.randint(4, 8)),
            "labels": "home, work, shop",
            "levels": "2",
            "side": "4",
            "distance": "1",
            "items": draw.choice(["", "4"]),
        },
    }
    setting = common | own[card]
    if card == "number" and setting["encoding"] != "modular":
        setting["rounds"] = (
            # single bits over several rounds take minutes to plan, here and on the command line
            "1"
        )
    if card == "items" and setting["item"] == "label":
        setting["question"] = "histogram"  # words have no mean
    if setting.get("first") == "accuracy":
        wide = {"sum": "2000", "mean": "4", "centroid": "300"}
        setting["rounds"] = "1"  # a search over several rounds takes minutes
        setting["error"] = (
            wide.get(setting.get("question", ""), "0.05") if card != "items" else "0.5"
        )
    return setting


class Result(HTMLParser):
    """What the part of the page with the numbers holds, for machines and for people."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.data: dict[str, str] = {}
        self.rows: list[tuple[str, str]] = []
        self.cells: list[list[str]] = []
        self.big: list[str] = []
        self._into: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if given.get("class") == "result":
            self.data = given
        elif tag == "tr" and "data-error" in given:
            self.rows.append((given["data-error"], given["data-local"]))
            self.cells.append([])
        elif tag == "td" and self.cells:
            self._into = self.cells[-1]
            self._into.append("")
        elif tag == "p" and given.get("class", "").startswith("answer"):
            self._into = self.big
            self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "p"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data


def check(served: Served, card: str, seed: int) -> bool:
    """False if both refuse the setting."""
    typed = drawn(card, seed)
    client = httpx.Client(base_url=served.at(""), timeout=170, follow_redirects=True)
    with client:
        client.get("/", params={"token": served.token})
        answer = client.get("/answer", params={"card": card, **typed})
        assert answer.status_code == 200
    result = Result(answer.text)
    try:
        words = arguments(load_result(card, typed))
    except FieldErrors:  # there is no command for a form that says nothing
        assert 'class="refused"' in answer.text, typed
        return False
    told = CliRunner().invoke(app, [*words, "--json"])
    if told.exit_code == 2:  # what cannot be planned is refused in both places
        assert 'class="refused"' in answer.text, (typed, told.stderr)
        return False
    stored = json.loads(told.stdout)
    chosen = stored["candidates"][stored["chosen"]]

    def number(text: str) -> float | None:
        return None if text == "inf" else float(text)

    assert number(result.data["data-expected-error"]) == chosen["expected_error"]
    assert (
        number(result.data["data-local-epsilon"])
        == stored["task"]["if_shuffler_colludes"]["epsilon"]
    )
    assert number(result.data["data-epsilon"]) == stored["task"]["guarantee"]["epsilon"]
    assert result.data["data-digest"] == stored["digest"]
    assert [(number(error), number(local)) for error, local in result.rows] == [
        (offer["expected_error"], offer["local_epsilon"]) for offer in stored["candidates"]
    ]
    plan = ms.Plan.from_json(told.stdout)
    assert [cells[:-1] for cells in result.cells] == [
        list(cells[1:]) for cells in candidate_rows(plan)
    ]
    written = [
        f"{big.number}{f' {big.unit}' if big.unit else ''}"
        for big in headline(ReportSubject.of(plan)).numbers
    ]
    assert [" ".join(text.split()) for text in result.big] == [
        " ".join(text.split()) for text in written
    ]
    return True


@pytest.mark.thorough
@pytest.mark.parametrize("card", CARDS)
def test_the_page_and_the_command_line_agree(served: Served, card: str) -> None:
    assert sum(check(served, card, seed) for seed in range(3)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS)
def test_they_agree_in_twenty_settings(served: Served, card: str) -> None:
    settings = int(os.environ.get("SETTINGS", "20"))
    planned = sum(check(served, card, 100 + seed) for seed in range(settings))
    assert 2 * planned > settings, f"only {planned} of {settings} settings can be planned"


def engineered(card: str, seed: int) -> dict[str, str]:
    """A setting of a card for engineers."""
    draw = random.Random(f"{card} {seed}")
    common = {
        "users": str(draw.choice([1000, 10_000, 100_000])),
        "honest": str(draw.choice([80, 100])),
        "delta": draw.choice(["1e-6", "1e-8"]),
    }
    if card == "amplify":
        return common | {
            "randomizer": draw.choice([*ENGINEERED["amplify"]]),
            "local_epsilon": f"{draw.uniform(0.2, 3):.3g}",
            "options": str(draw.randint(2, 40)),
            "dimensions": str(draw.randint(1, 6)),
            "keys": str(draw.randint(2, 4)),
            "items": str(draw.randint(1, 2)),
            "key_epsilon": f"{draw.uniform(0.2, 2):.3g}",
            "value_epsilon": f"{draw.uniform(0.2, 2):.3g}",
            "clusters": str(draw.randint(2, 4)),
            "leaves": str(draw.randint(2, 4)),
            "inner": draw.choice(["0.25", "0.5"]),
            "low": "0",
            "high": str(draw.choice([1, 5])),
            "rate": f"{draw.uniform(0.1, 1):.3g}",
            "distance": "1",
            "reach": str(draw.choice([1, 2, 3])),
            "rounds": draw.choice(["1", "1", "4"]),
        }
    return common | {
        "space": draw.choice(["line", "circle", "grid"]),
        "low": "0",
        "high": str(draw.randint(4, 8)),
        "width": "3",
        "height": "3",
        "epsilon": f"{draw.uniform(0.3, 2):.3g}",
        "distance": draw.choice(["1", "2"]),
    }


def check_engineered(served: Served, card: str, seed: int) -> bool:
    """The command that the page shows prints what the page shows; False if both refuse."""
    typed = engineered(card, seed)
    with httpx.Client(base_url=served.at(""), timeout=170, follow_redirects=True) as client:
        client.get("/", params={"token": served.token})
        text = client.get("/engineered", params={"card": card, **typed}).text
    options = ENGINEERED[card][typed.get("randomizer", typed.get("space", ""))]
    words = [
        word
        for name in (*options, "users", "honest", "delta")
        for word in (f"--{name.replace('_', '-')}", typed[name])
    ]
    words[words.index("--honest") + 1] += "%"
    around = ["--around"] if typed.get("space") == "circle" else []
    told = CliRunner().invoke(app, [card, *words, *around, "--json"])
    if told.exit_code == 2:
        assert 'class="refused"' in text, (typed, told.stderr)
        return False
    stored = json.loads(told.stdout)
    shown = Result(text)
    if card == "amplify":
        assert (float(shown.data["data-upper"]), float(shown.data["data-lower"])) == (
            stored["upper"]["epsilon"],
            stored["lower"]["epsilon"],
        )
        assert shown.big[0] == format_epsilon(stored["upper"]["epsilon"])
    else:
        assert [tuple(map(float, row.split())) for row in shown.data["data-rows"].split(";")] == [
            (row["distance"], row["local"], row["certified"]) for row in stored["certified"]
        ]
    return True


ENGINEERED: dict[str, dict[str, tuple[str, ...]]] = {
    "amplify": {
        name: ("randomizer", *fields, "rounds") for name, fields in RANDOMIZER_FIELDS.items()
    },
    "solve": {
        "line": ("low", "high", "epsilon", "distance"),
        "circle": ("low", "high", "epsilon", "distance"),
        "grid": ("width", "height", "epsilon", "distance"),
    },
}
"""card -> what is chosen on it -> the fields that are options of the command"""


@pytest.mark.thorough
@pytest.mark.parametrize("card", ENGINEERED)
def test_amplify_and_solve_agree(served: Served, card: str) -> None:
    assert sum(check_engineered(served, card, seed) for seed in range(3)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("card", ENGINEERED)
def test_amplify_and_solve_agree_in_twenty_settings(served: Served, card: str) -> None:
    settings = int(os.environ.get("SETTINGS", "20"))
    assert (
        2 * sum(check_engineered(served, card, 100 + seed) for seed in range(settings)) > settings
    )
