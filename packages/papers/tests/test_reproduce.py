"""`metricshuffle reproduce`: names, files, the page, and errors."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from metricshuffle.citations import PAPERS
from metricshuffle_papers import reproduction
from metricshuffle_papers.cli.reproduce import COLUMNS
from metricshuffle_papers.reproduction import (
    NOT_AT_HAND,
    Chart,
    Item,
    Reproduction,
    Row,
    Settings,
    items,
)


def good(settings: Settings) -> Reproduction:
    settings.progress("halfway [bold]")
    spec = {
        "data": {"values": [{"a": 1, "b": 2}]},
        "mark": "point",
        "encoding": {"x": {"field": "a", "type": "quantitative"}},
    }
    rows = (
        Row(
            "a <b>",
            published=2.0,
            as_published=2.5,
            ours=3.0,
            verdict="impossible",
            standard_error=0.25,
            note='bound "4", so',
        ),
        Row("nothing printed", ours=float("inf")),
    )
    return Reproduction(
        (f"Seed {settings.seed}, runs {settings.runs}.", "More <script>."),
        rows,
        (Chart("Dots", spec, "One & only."),),
    )


def bad(settings: Settings) -> Reproduction:
    raise ArithmeticError("no <digits>\nleft")


def stopped(settings: Settings) -> Reproduction:
    raise KeyboardInterrupt


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def use(*runs: Callable[[Settings], Reproduction]) -> None:
        made = [
            Item(f"item-{index}", "Athanasiou25", f"Table {index}", "A title", run)
            for index, run in enumerate(runs)
        ]
        monkeypatch.setattr(reproduction, "items", lambda: {one.name: one for one in made})

    return use


def test_the_list_names_every_item(terminal: Terminal) -> None:
    told = json.loads(terminal("reproduce", "list", "--json").stdout)
    assert [one["name"] for one in told] == list(items())
    assert {"Table 2", "Table 3", "Figure 5", "Figures 9 to 12"} <= {
        one["label"] for one in told if one["paper"] == "Athanasiou25"
    }
    plain = terminal("reproduce", "list").stdout
    assert all(name in plain for name in items())


def test_items_are_well_formed() -> None:
    for name, item in items().items():
        assert name == item.name
        assert name == name.lower()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert item.paper in PAPERS
        assert item.paper in NOT_AT_HAND, "what of this paper was not at hand?"
        assert item.label
        assert item.title


def test_which_items_take_places() -> None:
    assert [name for name, item in items().items() if item.places] == [
        f"shuffler-figure-{number}" for number in (5, *range(22, 30))
    ]


def test_all_takes_places_for_the_items_that_use_them(
    terminal: Terminal, known: Callable[..., None], values: Path
) -> None:
    known(good)
    assert terminal("reproduce", "all", "--output", "out", "--csv", values.name).exit_code == 0
    assert "uses no places" in terminal.refused("reproduce", "item-0", "--csv", values.name)


def test_one_item_in_the_terminal(terminal: Terminal) -> None:
    result = terminal("reproduce", "shuffler-figure-2")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Figure 2: ")
    line = next(line for line in result.stdout.splitlines() if "P[SGDL(10, 0.5) = 0]" in line)
    assert line.split()[-4:] == ["0.065", "0.06582", "1.01", "reproduced"]


def test_one_item_as_json(terminal: Terminal, known: Callable[..., None]) -> None:
    known(good)
    result = terminal("reproduce", "item-0", "--json", "--seed", "7", "--runs", "12", "--quick")
    told = json.loads(result.stdout)
    assert told["words"][0] == "Seed 7, runs 12."
    assert told["settings"] == {"quick": True, "runs": 12, "seed": 7, "csv": None}
    assert set(told["rows"][0]) == set(COLUMNS)
    assert told["rows"][0]["ratio"] == 1.5
    assert told["rows"][1]["ours"] is None, "JSON has no infinity"
    assert terminal.files() == {}


def test_one_item_can_write_its_files(terminal: Terminal, known: Callable[..., None]) -> None:
    known(good)
    assert terminal("reproduce", "item-0", "--output", "made/here").exit_code == 0
    assert set(terminal.files()) == {"made/here/item-0.json", "made/here/item-0.csv"}


def test_all_writes_a_page_and_two_files_an_item(
    terminal: Terminal, known: Callable[..., None], tmp_path: Path
) -> None:
    known(good, good)
    result = terminal("reproduce", "all", "--output", "out", "--quick", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["items"] == ["item-0", "item-1"]
    assert told["verdicts"] == {"impossible": 2, "ours": 2}
    files = {name: text.decode() for name, text in terminal.files().items()}
    assert set(files) == {
        "out/index.html",
        *(f"out/item-{i}.{kind}" for i in (0, 1) for kind in ("json", "csv")),
    }
    first, second = csv.DictReader(StringIO(files["out/item-0.csv"]))
    assert tuple(first) == COLUMNS
    assert first == {
        "label": "a <b>",
        "published": "2.0",
        "as_published": "2.5",
        "ours": "3.0",
        "ratio": "1.5",
        "verdict": "impossible",
        "standard_error": "0.25",
        "note": 'bound "4", so',
    }
    assert second["ours"] == "inf"
    assert second["published"] == ""
    page = files["out/index.html"]
    assert "a &lt;b&gt;" in page
    assert page.count("<script>") == 1  # the filter
    assert page.count('<svg class="chart"') == 2
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "default-src 'none'" in page
    assert NOT_AT_HAND["Athanasiou25"] in page.replace("&#x27;", "'")
    assert '<a href="#item-1">Table 1</a>' in page
    assert 'id="item-1"' in page


def test_a_failing_item_does_not_lose_the_others(
    terminal: Terminal, known: Callable[..., None]
) -> None:
    known(good, good, good)
    assert terminal("reproduce", "all", "--output", "out").exit_code == 0
    known(good, bad, good)
    result = terminal("reproduce", "all", "--output", "out")
    assert result.exit_code == 1
    assert "item-1 failed: ArithmeticError: no <digits> left" in result.stderr
    assert "2 of 3 items" in result.stdout
    files = terminal.files()
    assert {"out/item-0.json", "out/item-2.csv", "out/index.html"} <= set(files)
    assert not {"out/item-1.json", "out/item-1.csv"} & set(files), "nor what an earlier run left"
    assert "no &lt;digits&gt; left" in files["out/index.html"].decode()


def test_what_was_finished_is_kept_when_somebody_stops_it(
    terminal: Terminal, known: Callable[..., None]
) -> None:
    known(good, stopped, good)
    result = terminal("reproduce", "all", "--output", "out")
    assert result.exit_code == 130
    assert "out holds the 1 item that was finished" in result.stderr
    assert set(terminal.files()) == {"out/item-0.json", "out/item-0.csv", "out/index.html"}
    assert "2 items were not reached" in terminal.files()["out/index.html"].decode()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("shuffler-tabel-2", "did you mean shuffler-table-2"),
        ("everything", "reproduce list"),
        ("all", "--output FOLDER"),
        ("shuffler-figure-22 --csv nowhere.csv", "there is no such file"),
        ("shuffler-figure-22 --csv values.csv", "columns named east and north"),
        ("shuffler-figure-2 --csv values.csv", "shuffler-figure-2 uses no places"),
        ("shuffler-figure-4 --runs 1", "whole number >= 2"),
        ("all --output values.csv", "a file has that name"),
    ],
)
def test_wrong_input_gets_a_sentence(
    terminal: Terminal, values: Path, line: str, told: str
) -> None:
    assert told in terminal.refused("reproduce", *line.split())


def test_the_seed_decides_a_simulation(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # RR-Shuffle's calibration takes most of the time and is not simulated.
    monkeypatch.setattr(
        "metricshuffle_papers.enhancing_metric_privacy.location.needed_response",
        lambda *asked: None,
    )
    (tmp_path / "homes.csv").write_text(
        "east,north\n" + "".join(f"{7 * i},{5 * i}\n" for i in range(50))
    )

    def simulated(seed: int) -> list[float]:
        line = f"reproduce shuffler-figure-24 --quick --runs 5 --seed {seed} --csv homes.csv --json"
        told = json.loads(terminal.typed(line).stdout)
        assert any("50 places in homes.csv" in words for words in told["words"])
        return [row["ours"] for row in told["rows"]]

    assert simulated(1) == simulated(1) != simulated(2)
