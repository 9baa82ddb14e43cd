"""The console with a real shuffler: open, watch it fill, collect, see the release; abort; what is wrong is said where it was asked."""

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

import pytest
from tests.web.conftest import Served

import metricshuffle as ms

pytestmark = pytest.mark.thorough
PEOPLE = 24


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
        [*command, "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, "the shuffler ended before it was ready"
        yield Shuffling(json.loads(line)["listening"], (tmp_path / "keys" / "operator.token").read_text().strip(), tmp_path)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "metricshuffle", *words], capture_output=True, text=True, timeout=120, check=False)
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


def added(page: Any, served: Served, shuffler: Shuffling) -> None:
    page.goto(served.at("/console"))
    page.fill("#add-url", shuffler.url)
    page.fill("#add-token", shuffler.token)
    page.click("button:text-is('Add')")
    page.wait_for_selector("#open-plan")


def opened(page: Any, shuffler: Shuffling, plan_file: Path, public: str, closes: str) -> str:
    page.select_option("#open-url", shuffler.url)
    page.set_input_files("#open-plan", str(plan_file))
    page.fill("#open-analyst", public)
    page.fill("#open-closes", closes)
    page.click("section:has(#open-title) button:text-is('Open')")
    page.wait_for_selector("article.collection")
    return str(page.get_attribute("article.collection", "data-digest"))


@pytest.mark.slow
def test_a_collection_from_its_opening_to_its_release(
    window: Callable[..., Any], served: Served, shuffler: Shuffling, plan_file: Path, tmp_path: Path
) -> None:
    key = tmp_path / "analyst.key"
    public = run("analyst", "key", "--output", str(key)).strip()
    page = window()
    added(page, served, shuffler)
    digest = opened(page, shuffler, plan_file, public, "25s")
    assert "0 of at least 24 reports" in page.inner_text("article.collection")
    assert "round 1 of 2; 1 left after it" in page.inner_text("article.collection")
    page.click("text=Link and QR code for people")
    assert page.inner_text("#join-link") == f"{shuffler.url}/join/{digest}"
    assert page.locator(".qr svg").bounding_box()["width"] > 100
    values = tmp_path / "values.csv"
    values.write_text("minutes\n" + "\n".join(str(4 * person) for person in range(PEOPLE)))
    run("submit", f"{shuffler.url}/v1/collections/{digest}", str(values), "--column", "minutes", "--outbox", str(tmp_path / "outbox.db"))
    page.goto(served.at("/console"))
    page.locator("section:has(#collections-title)").screenshot(path=str(Path(os.environ.get("SCREENSHOTS", tmp_path)) / "page-console.png"))
    article = page.locator("article.collection")
    until = time.monotonic() + 60
    while article.get_attribute("data-state") != "released":
        assert time.monotonic() < until, article.inner_text()
        page.wait_for_timeout(500)  # the page asks again by itself
    assert article.get_attribute("data-reports") == str(PEOPLE)
    page.click("article.collection summary:text('Collect')")
    page.fill("input[name=key]", str(tmp_path / "no.key"))
    page.click("text=Collect: this is the analyst's part")
    assert "cannot read the analyst's key" in page.inner_text("main")
    page.click("article.collection summary:text('Collect')")
    page.fill("input[name=key]", str(key))
    page.click("text=Collect: this is the analyst's part")
    page.click("text=The release")
    page.wait_for_selector("svg.chart", state="attached")
    with page.expect_download() as download:
        page.click("text=release.json")
    release = json.loads(Path(download.value.path()).read_text())
    assert abs(release["value"] - 46.0) < 60
    assert f"{release['value']:.0f}"[:1] in page.inner_text("main")
    page.screenshot(path=str(tmp_path / "release.png"), full_page=True)


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
    assert "choose the plan or the task" in page.inner_text("section:has(#open-title) .wrong")
    public = run("analyst", "key", "--output", str(tmp_path / "analyst.key")).strip()
    page.fill("#open-colluders", "99")
    page.select_option("#open-url", shuffler.url)
    page.set_input_files("#open-plan", str(plan_file))
    page.fill("#open-analyst", public)
    page.click("section:has(#open-title) button:text-is('Open')")
    assert "99 colluders" in page.inner_text("section:has(#open-title) .wrong")
    assert page.input_value("#open-analyst") == public
    page.fill("#open-colluders", "0")
    opened(page, shuffler, plan_file, public, "1h")
    assert not page.is_visible("text=Abort for good")
    page.click("article.collection summary:text('Abort')")
    page.fill("input[name=reason]", "a test")
    page.click("text=Abort for good")
    page.wait_for_selector("article[data-state=aborted]")
    assert "a test" in page.inner_text("article.collection")
