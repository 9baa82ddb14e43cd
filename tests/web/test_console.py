"""Console with a real shuffler: open, fill, collect, release, abort, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.conftest import Served

import metricshuffle as ms
from metricshuffle.collection.terms import parse_time
from metricshuffle.planning.costs.release_ledger import Budget

pytestmark = pytest.mark.thorough
PEOPLE = 24
QR_ENDS = """() => {
  const dark = document.querySelector('.qr svg [stroke]').getBoundingClientRect();
  return [dark.left, dark.right];
}"""


@dataclass(frozen=True)
class Shuffling:
    url: str
    token: str
    folder: Path


@pytest.fixture
def shuffler(tmp_path: Path) -> Iterator[Shuffling]:
    command = [
        sys.executable,
        "-m",
        "metricshuffle",
        "serve",
        "--store",
        f"sqlite:///{tmp_path / 'shuffler.db'}",
        "--keys",
        str(tmp_path / "keys"),
    ]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, "the shuffler ended before it was ready"
        yield Shuffling(
            json.loads(line)["listening"],
            (tmp_path / "keys" / "operator.token").read_text().strip(),
            tmp_path,
        )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "metricshuffle", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    plan = ms.plan(
        ms.Mean(ms.Integers(0, 100, unit="min")),
        ms.Target(1.0, 1e-6, 20),
        PEOPLE,
        encoding="modular",
        protocols=["polya-shuffle"],
        rounds=2,
    )
    path = tmp_path / "plan.json"
    plan.save(path)
    return path


@pytest.fixture
def map_plan_file(tmp_path: Path) -> Path:
    plan = ms.plan(
        ms.Histogram(ms.Grid(4, 3, 500, "m")),
        ms.Target(4.0, 0.0, 500),
        PEOPLE,
        trusted="nobody",
        protocols=["k-ary-randomized-response"],
    )
    path = tmp_path / "map.json"
    plan.save(path)
    return path


def added(page: Any, served: Served, shuffler: Shuffling) -> None:
    page.goto(served.at("/console"))
    page.fill("#add-url", shuffler.url)
    page.fill("#add-token", shuffler.token)
    page.click("button:text-is('Add')")
    page.wait_for_selector("#open-plan")


def opened(page: Any, shuffler: Shuffling, plan_file: Path, public: str, closes: str) -> str:
    """Open a collection; its digest."""
    known = {
        article.get_attribute("data-digest") for article in page.locator("article.collection").all()
    }
    page.select_option("#open-url", shuffler.url)
    page.set_input_files("#open-plan", str(plan_file))
    page.fill("#open-analyst", public)
    page.fill("#open-closes", closes)
    page.click("section:has(#open-title) button:text-is('Open')")
    page.wait_for_selector(f"article.collection >> nth={len(known)}")
    (new,) = {
        str(article.get_attribute("data-digest"))
        for article in page.locator("article.collection").all()
    } - known
    return new


def reported(shuffler: Shuffling, digest: str, values: Path, *columns: str) -> None:
    named = [word for column in columns for word in ("--column", column)]
    run(
        "submit",
        f"{shuffler.url}/v1/collections/{digest}",
        str(values),
        *named,
        "--outbox",
        str(shuffler.folder / "outbox.db"),
    )


def article_of(page: Any, digest: str) -> Any:
    return page.locator(f"article.collection[data-digest='{digest}']")


def awaited(page: Any, digest: str, state: str) -> None:
    """The page asks again by itself."""
    article = article_of(page, digest)
    until = time.monotonic() + 60
    while article.get_attribute("data-state") != state:
        assert time.monotonic() < until, article.inner_text()
        page.wait_for_timeout(250)


def test_collections_from_their_opening_to_their_releases(
    window: Callable[..., Any],
    served: Served,
    shuffler: Shuffling,
    plan_file: Path,
    map_plan_file: Path,
    tmp_path: Path,
) -> None:
    """A number and a map; `window` fails the test on any policy violation of these pages."""
    key = tmp_path / "analyst.key"
    public = run("analyst", "key", "--output", str(key)).strip()
    page = window()
    added(page, served, shuffler)
    digest = opened(page, shuffler, plan_file, public, "30s")
    place = opened(page, shuffler, map_plan_file, public, "25s")
    article = article_of(page, digest)
    assert "0 of at least 24 reports" in article.inner_text()
    assert "round 1 of 2; 1 left after it" in article.inner_text()
    article.get_by_text("Link and QR code for people").click()
    assert page.inner_text("#join-link") == f"{shuffler.url}/join/{digest}"
    assert page.locator(".qr svg").bounding_box()["width"] > 100
    for joined in (digest, place):
        page.goto(f"{shuffler.url}/join/{joined}")
        assert "24" in page.inner_text("main")
    minutes = tmp_path / "minutes.csv"
    places = tmp_path / "places.csv"
    minutes.write_text("minutes\n" + "\n".join(str(4 * person) for person in range(PEOPLE)))
    places.write_text("x,y\n" + "\n".join(f"{person % 4},{person % 3}" for person in range(PEOPLE)))
    reported(shuffler, place, places, "x", "y")
    reported(shuffler, digest, minutes, "minutes")
    page.goto(served.at("/console"))
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    page.locator("section:has(#collections-title)").screenshot(
        path=str(folder / "page-console.png")
    )
    awaited(page, digest, "released")
    assert "Sealed at 20" in article_of(page, digest).inner_text()
    assert ", released at 20" in article_of(page, digest).inner_text()
    awaited(page, place, "released")
    assert article.get_attribute("data-reports") == str(PEOPLE)
    article.get_by_text("Collect", exact=True).click()
    article.locator("input[name=key]").fill(str(tmp_path / "no.key"))
    article.get_by_text("Collect: this is the analyst's part").click()
    assert "cannot read the analyst's key" in article.locator(".wrong").inner_text()
    collected(page, article, key)
    ledger = tmp_path / "releases.ledger"
    assert f"Recorded in {ledger}." in page.inner_text("main")
    assert "1 of 2 rounds" in page.inner_text("main")
    (recorded,) = Budget(ledger).releases
    assert (recorded.people, recorded.round) == ("everybody", 1)
    release = downloaded(page)
    assert abs(release["value"] - 46.0) < 60
    assert f"{release['value']:.0f}"[:1] in page.inner_text("main")
    page.goto(served.at("/console"))
    article_of(page, place).get_by_text("Collect", exact=True).click()
    collected(page, article_of(page, place), key)
    assert len(Budget(ledger).releases) == 2
    assert downloaded(page)["reports"] == PEOPLE
    assert page.locator("svg.chart").first.is_visible()


def collected(page: Any, article: Any, key: Path) -> None:
    """Collect with the form that is open, and look at the release."""
    article.locator("input[name=key]").fill(str(key))
    article.get_by_text("Collect: this is the analyst's part").click()
    article.get_by_text("The release").click()
    page.wait_for_selector("svg.chart", state="attached")


def downloaded(page: Any) -> dict[str, Any]:
    with page.expect_download() as download:
        page.click("text=release.json")
    release: dict[str, Any] = json.loads(Path(download.value.path()).read_text())
    return release


def test_aborting_takes_two_steps_and_mistakes_are_told(
    window: Callable[..., Any], served: Served, shuffler: Shuffling, plan_file: Path, tmp_path: Path
) -> None:
    page = window()
    page.goto(served.at("/console"))
    page.fill("#add-url", shuffler.url)
    page.fill("#add-token", "wrong-token")
    page.click("button:text-is('Add')")
    assert shuffler.url in page.inner_text("section:has(#add-title) .wrong")
    added(page, served, shuffler)
    page.click("section:has(#open-title) button:text-is('Open')")
    assert "Choose the plan or the task" in page.inner_text("#open-plan-wrong")
    public = run("analyst", "key", "--output", str(tmp_path / "analyst.key")).strip()
    page.fill("#open-colluders", "99")
    page.select_option("#open-url", shuffler.url)
    page.set_input_files("#open-plan", str(plan_file))
    page.fill("#open-analyst", public)
    page.click("section:has(#open-title) button:text-is('Open')")
    assert "99 colluders" in page.inner_text("#open-colluders-wrong")
    assert page.input_value("#open-analyst") == public
    for field, typed, sentence in (
        ("colluders", "²", "whole number"),
        ("round", "9", "from 1 to 2"),
        ("closes", "soon", "a duration like"),
        ("closes", "2001-01-01T00:00:00Z", "in the future"),
        ("analyst", "x", "starts with"),
    ):
        kept = page.input_value(f"#open-{field}")
        page.fill(f"#open-{field}", typed)
        page.fill("#open-colluders", typed if field == "colluders" else "0")
        page.set_input_files("#open-plan", str(plan_file))
        page.click("section:has(#open-title) button:text-is('Open')")
        assert sentence in page.inner_text(f"#open-{field}-wrong")
        assert page.input_value(f"#open-{field}") == typed
        page.fill(f"#open-{field}", kept)
    page.fill("#open-colluders", "0")
    opened(page, shuffler, plan_file, public, "1h")
    assert not page.is_visible("text=Abort for good")
    page.click("article.collection summary:text('Abort')")
    page.fill("input[name=reason]", "a test")
    page.click("text=Abort for good")
    page.wait_for_selector("article[data-state=aborted]")
    assert "a test" in page.inner_text("article.collection")


def test_opening_has_what_the_command_has(
    window: Callable[..., Any], served: Served, shuffler: Shuffling, plan_file: Path, tmp_path: Path
) -> None:
    public = run("analyst", "key", "--output", str(tmp_path / "analyst.key")).strip()
    page = window()
    added(page, served, shuffler)
    page.click("text=Names, times and tickets")
    typed = {
        "asked_by": "The institute",
        "run_by": "The library",
        "extends": "2h",
        "tickets": "70",
        "delay": "30s",
        "retention": "3d",
    }
    for name, words in typed.items():
        page.fill(f"#open-{name}", words)
    digest = opened(page, shuffler, plan_file, public, "1h")
    terms = httpx.get(f"{shuffler.url}/v1/collections/{digest}", timeout=20).json()
    assert "The institute" in json.dumps(terms["analyst"])
    assert "The library" in json.dumps(terms["hops"])
    closes, extends = (parse_time(terms[name]) for name in ("closes", "extends"))
    assert extends - closes == 7_200
    assert (terms["delay"], terms["retention"], terms["admission"]) == (30, 259_200, "tickets")
    with page.expect_download() as download:
        page.click("text=Its tickets")
    tickets = Path(download.value.path()).read_text().split()
    assert len(set(tickets)) == 70
    assert all(len(bytes.fromhex(ticket)) == 16 for ticket in tickets)
    page.goto(served.at(f"/console/join/{digest}?url={shuffler.url}"))
    box = page.locator(".qr svg").bounding_box()
    assert box["width"] >= 300
    drawn = page.evaluate(QR_ENDS)
    assert drawn[0] > box["x"]
    assert box["x"] + 0.85 * box["width"] < drawn[1] < box["x"] + box["width"]  # not cut off
    with page.expect_download() as download:
        page.click("text=Download the QR code")
    assert "<svg" in Path(download.value.path()).read_text()
    page.goto(served.at("/console"))
    page.set_input_files("#open-plan", str(plan_file))
    page.fill("#open-analyst", public)
    page.click("text=Names, times and tickets")
    page.fill("#open-tickets", "3")
    page.click("section:has(#open-title) button:text-is('Open')")
    assert "Tickets" in page.inner_text("#open-tickets-wrong")
