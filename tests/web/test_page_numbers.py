"""Every number on the page is the one of the command line, for settings drawn at random."""

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

from metricshuffle.cli.app import app
from metricshuffle.web.answers import answered
from metricshuffle.web.taking import arguments

CARDS = ("number", "place", "category", "items")


def drawn(card: str, seed: int) -> dict[str, str]:
    """A setting that can be planned in seconds."""
    draw = random.Random(f"{card} {seed}")
    common = {
        "epsilon": f"{draw.choice([0.5, 1, 2, 4]) * draw.uniform(0.8, 1.2):.3g}", "users": str(draw.choice([300, 1000, 5000])),
        "honest": str(draw.choice([80, 90, 100])), "delta": draw.choice(["1e-6", "1e-8"]), "rounds": draw.choice(["1", "1", "3"]),
        "trusted": draw.choice(["shuffler", "shuffler", "nobody", "curator"]),
    }  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "number": {"question": draw.choice(["mean", "sum", "histogram"]), "low": str(draw.choice([0, -20])),
                   "high": str(draw.choice([60, 200])),
                   "step": "20", "distance": str(draw.choice([20, 40])), "unit": draw.choice(["", "min"])},
        "place": {"question": draw.choice(["map", "centroid"]), "width": str(draw.randint(3, 5)), "height": str(draw.randint(2, 4)),
                  "cell": "100", "distance": "100"},
        "category": {"labels": ",".join("abcdefgh"[: draw.randint(2, 6)])},
        "items": {"question": draw.choice(["histogram", "mean"]), "high": str(draw.randint(4, 8)), "distance": "1",
                  "items": draw.choice(["", "4"])},
    }  # fmt: skip
    return common | own[card]


class Result(HTMLParser):
    """What the part of the page with the numbers holds, for machines."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.data: dict[str, str] = {}
        self.rows: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if given.get("class") == "result":
            self.data = given
        elif tag == "tr" and "data-error" in given:
            self.rows.append((given["data-error"], given["data-local"]))


def check(served: Served, card: str, seed: int) -> None:
    typed = drawn(card, seed)
    client = httpx.Client(base_url=served.at(""), timeout=170, follow_redirects=True)
    with client:
        client.get("/", params={"token": served.token})
        answer = client.get("/answer", params={"card": card, **typed})
        assert answer.status_code == 200
    result = Result(answer.text)
    told = CliRunner().invoke(app, [*arguments(answered(card, typed)), "--json"])
    if told.exit_code == 2:  # what cannot be planned is refused in both places
        assert 'class="refused"' in answer.text
        return
    stored = json.loads(told.stdout)
    chosen = stored["candidates"][stored["chosen"]]

    def number(text: str) -> float | None:
        return None if text == "inf" else float(text)

    assert number(result.data["data-expected-error"]) == chosen["expected_error"]
    assert number(result.data["data-local-epsilon"]) == stored["task"]["if_shuffler_colludes"]["epsilon"]
    assert number(result.data["data-epsilon"]) == stored["task"]["guarantee"]["epsilon"]
    assert result.data["data-digest"] == stored["digest"]
    assert [(number(error), number(local)) for error, local in result.rows] == [
        (offer["expected_error"], offer["local_epsilon"]) for offer in stored["candidates"]
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("card", CARDS)
def test_the_page_and_the_command_line_agree(served: Served, card: str) -> None:
    for seed in range(3):
        check(served, card, seed)


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS)
def test_they_agree_in_twenty_settings(served: Served, card: str) -> None:
    for seed in range(int(os.environ.get("SETTINGS", "20"))):
        check(served, card, 100 + seed)


@pytest.mark.thorough
def test_amplify_and_solve_agree(served: Served) -> None:
    with httpx.Client(base_url=served.at(""), timeout=120, follow_redirects=True) as client:
        client.get("/", params={"token": served.token})
        shown = Result(client.get("/engineered", params={"card": "amplify", "options": "7", "local_epsilon": "1.5"}).text).data
        words = "amplify --randomizer krr --local-epsilon 1.5 --options 7 --users 10000 --honest 100% --rounds 1 --delta 1e-6 --json"
        told = json.loads(CliRunner().invoke(app, words.split()).stdout)
        assert (float(shown["data-upper"]), float(shown["data-lower"])) == (told["upper"]["epsilon"], told["lower"]["epsilon"])
        shown = Result(client.get("/engineered", params={"card": "solve", "high": "6"}).text).data
        words = "solve --low 0 --high 6 --epsilon 1 --distance 1 --delta 1e-6 --users 10000 --honest 100% --json"
        rows = json.loads(CliRunner().invoke(app, words.split()).stdout)["certified"]
        assert [tuple(map(float, row.split())) for row in shown["data-rows"].split(";")] == [
            (row["distance"], row["local"], row["certified"]) for row in rows
        ]
