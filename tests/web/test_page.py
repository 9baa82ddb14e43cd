"""Planner page in a real browser: example to download, history, no scripts, keyboard, errors."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import SLIDE, Served, started

import metricshuffle as ms

pytestmark = pytest.mark.thorough
CARDS = ("number", "place", "category", "items")


def test_every_card_goes_from_its_example_to_files(
    window: Callable[..., Any], served: Served, tmp_path: Path
) -> None:
    page = window()
    for card in CARDS:
        page.goto(served.at("/"))
        page.click(f".kinds a[href='{served.root}/?card={card}']")
        page.wait_for_selector(".result")
        page.wait_for_selector("#more .not-hidden")
        assert page.locator("#more svg.chart").count() >= 1
        assert page.locator("#more details table").count() >= 1  # the numbers of every chart
        with page.expect_download() as download:
            page.click("text=plan.json")
        plan = ms.Plan.load(download.value.path())
        assert plan.digest == page.get_attribute(".result", "data-digest")
    with page.expect_download() as download:
        page.click("text=report.html")
    assert plan.digest in Path(download.value.path()).read_text()


def test_another_candidate_can_be_chosen_and_the_command_makes_the_same_plan(
    window: Callable[..., Any], served: Served, tmp_path: Path
) -> None:
    page = window()
    page.goto(served.at("/?card=number"))
    page.click("tr:has-text('geometric-shuffle') a[data-choose]")
    page.wait_for_selector("tr.chosen:has-text('geometric-shuffle')")
    digest = page.get_attribute(".result", "data-digest")
    page.locator("#take").scroll_into_view_if_needed()
    command = page.text_content("#text-command code")
    words = shlex.split(command.replace("\\\n", ""))
    assert words[0] == "metricshuffle"
    subprocess.run(
        [sys.executable, "-m", *words], cwd=tmp_path, check=True, capture_output=True, timeout=120
    )
    assert ms.Plan.load(tmp_path / "plan.json").digest == digest
    (tmp_path / "plan.json").unlink()
    (tmp_path / "plan.py").write_text(page.text_content("#text-python code"))
    subprocess.run(
        [sys.executable, "plan.py"], cwd=tmp_path, check=True, capture_output=True, timeout=120
    )
    assert ms.Plan.load(tmp_path / "plan.json").digest == digest
    page.reload()
    page.wait_for_selector("tr.chosen:has-text('geometric-shuffle')")
    assert page.get_attribute(".result", "data-digest") == digest


def test_a_pasted_table_is_planned_and_its_commands_make_the_same_plan(
    window: Callable[..., Any], served: Served, tmp_path: Path
) -> None:
    page = window()
    page.goto(served.at("/?card=items&question=table&high=2&items="))
    page.wait_for_selector("#table-wrong:has-text('3 lies above')")
    assert page.get_attribute("#field-table", "aria-invalid") == "true"
    table = 'number\troot "r"\tit\'s\n0\t0\t0\n1\t1\t1\n2\t1.5\t4\n'
    page.fill("#field-table", table)
    page.wait_for_selector(".result")
    digest = page.get_attribute(".result", "data-digest")
    page.reload()
    page.wait_for_selector(f".result[data-digest='{digest}']")
    assert page.input_value("#field-table") == table
    page.locator("#take").scroll_into_view_if_needed()
    commands = page.text_content("#text-command code")
    name = f"{shlex.quote(sys.executable)} -m metricshuffle"
    script = commands.replace("\nmetricshuffle ", f"\n{name} ")
    subprocess.run(
        ["/bin/sh", "-ec", script], cwd=tmp_path, check=True, capture_output=True, timeout=120
    )
    plan = ms.Plan.load(tmp_path / "plan.json")
    assert plan.digest == digest
    assert getattr(plan.query, "names") == ('root "r"', "it's")  # noqa: B009 - of its kind only


def test_back_forward_and_reload_restore_what_was_typed(
    window: Callable[..., Any], served: Served
) -> None:
    page = window()
    page.goto(served.at("/?card=number"))
    page.wait_for_selector(".result")
    first = page.get_attribute(".result", "data-digest")
    page.fill("#field-users", "3000")
    page.keyboard.press("Tab")
    page.wait_for_selector(f".result:not([data-digest='{first}'])")
    second = page.get_attribute(".result", "data-digest")
    assert "users=3000" in page.url
    page.go_back()
    page.wait_for_selector(f".result[data-digest='{first}']")
    assert page.input_value("#field-users") == "1000"
    page.go_forward()
    page.wait_for_selector(f".result[data-digest='{second}']")
    page.reload()
    page.wait_for_selector(f".result[data-digest='{second}']")
    assert page.input_value("#field-users") == "3000"
    page.fill(
        "#field-unit", ""
    )  # what was emptied stays empty, and does not become the example again
    page.keyboard.press("Tab")
    page.wait_for_selector(f".result:not([data-digest='{second}'])")
    third = page.get_attribute(".result", "data-digest")
    with page.expect_download() as download:
        page.click("text=plan.json")
    assert ms.Plan.load(download.value.path()).digest == third
    page.reload()
    assert page.input_value("#field-unit") == ""
    page.wait_for_selector(f".result[data-digest='{third}']")


BAD = [
    ("number", "low", "", "is empty"),
    ("number", "low", "ten", "must be a number"),
    ("number", "low", "nan", "must be a number"),
    ("number", "low", "5000", "must be below"),
    ("number", "high", "1e300", "Largest is too large"),
    ("number", "high", "-7", "must be above"),
    ("number", "epsilon", "-1", "must lie in (0, 1000]"),
    ("number", "epsilon", "1e9", "must lie in (0, 1000]"),
    ("number", "distance", "0.1", "less than one step"),
    ("number", "users", "1e30", "is too large"),
    ("number", "users", "1e14", "at most 1e13"),
    ("number", "users", "2.5", "whole number"),
    ("number", "honest", "150", "between 0 and 100"),
    ("number", "rounds", "0", "must be a whole number >= 1"),
    ("number", "granularity", "x", "must be a number"),
    ("place", "cell", "-3", "must be > 0"),
    ("place", "width", "", "is empty"),
    ("category", "labels", "tea", "at least two"),
    ("category", "labels", "tea,,water", "empty one"),
    ("items", "high", "-5", "must be above"),
    ("amplify", "options", "1", "must lie in 2..2^24"),
    ("amplify", "delta", "nan", "must be a number"),
    ("solve", "high", "-1", "must be above"),
    ("solve", "users", "", "is empty"),
    ("items", "items", "-1", "must be a whole number >= 1"),
]


def test_bad_input_is_told_beside_its_field_and_keeps_the_others(
    window: Callable[..., Any], served: Served
) -> None:
    page = window()
    at = ""
    for card, field, typed, sentence in BAD:
        if card != at:
            page.goto(
                served.at(
                    f"/{'engineers' if card in ('amplify', 'solve') else ''}?card={card}"
                    "&honest=80&width=3&height=3"
                )
            )
            page.wait_for_selector(".result")
            at = card
        box = f"#field-{field}"
        before = page.input_value(box)
        page.fill(box, typed)
        page.locator(f"#{field}-wrong").filter(has_text=sentence).wait_for()
        page.wait_for_selector(f"{box}[aria-invalid=true]")
        assert page.input_value("#field-honest") == (typed if field == "honest" else "80")
        page.fill(box, before)
        if card == "number":
            page.wait_for_selector(".result")
    page.goto(served.at("/?card=number&low=ten"))  # also where the page comes whole
    assert "must be a number" in page.inner_text("#low-wrong")
    assert page.input_value("#field-high") == "1000"


def test_a_slider_shows_new_numbers_in_a_blink(window: Callable[..., Any], served: Served) -> None:
    """300 ms on an idle machine; more if other processes keep the processors busy."""
    page = window()
    page.goto(served.at("/?card=number"))
    page.wait_for_selector("#more svg.chart", state="attached")
    took = [
        page.evaluate(SLIDE, ["epsilon", value])
        for value in (530, 560, 600, 640, 420, 470, 700, 380)
    ]
    print("milliseconds from the slider to the numbers:", [round(each) for each in took])
    assert min(took) < 300 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def test_without_scripts_the_form_still_answers(window: Callable[..., Any], served: Served) -> None:
    page = window(java_script_enabled=False)
    page.goto(served.at("/?card=number&wait=1"))
    assert page.locator("#more svg.chart").count() >= 1
    page.fill("#field-users", "4000")
    page.click("button:text-is('Plan')")
    assert "users=4000" in page.url
    assert "4,000 people" in page.inner_text("#answer") or page.locator("noscript").count()


def test_a_file_is_tried_and_forgotten(
    window: Callable[..., Any], served: Served, tmp_path: Path
) -> None:
    page = window()
    page.goto(served.at("/?card=number&users=200"))
    page.wait_for_selector(".result")
    values = tmp_path / "values.csv"
    values.write_text(
        "who;kcal;word\n" + "\n".join(f"{person};{(37 * person) % 1001};x" for person in range(200))
    )
    page.set_input_files("#try-file", str(values))
    page.click("text=Look at it")
    page.select_option("#pick-column", "kcal")
    page.click("text=Try it")
    page.wait_for_selector("#trial dl")
    told = page.inner_text("#trial")
    true = sum((37 * person) % 1001 for person in range(200)) / 200
    assert f"{true:.0f}" in told.replace(",", "")
    assert "Over 200 simulated releases" in told
    assert "NOT PRIVATE" in told
    assert "that nobody should be able to tell apart" in told
    assert page.locator("#trial svg").filter(has_text="the distance").count() >= 1
    page.select_option("#pick-column", "word")
    page.click("text=Try it")
    page.locator("#trial .notice").filter(has_text="'word' of your file").wait_for()
    page.locator("#pick-column-wrong").filter(has_text="'word' of your file").wait_for()
    page.evaluate("document.querySelector('#pick-column option:checked').value = 'no such column'")
    page.click("text=Try it")
    page.locator("#pick-column-wrong").filter(has_text="no such column").wait_for()
    page.click("text=Delete the file")
    page.locator("#columns").filter(has_text="was deleted").wait_for()
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    page.set_input_files("#try-file", str(tmp_path / "picture.png"))
    page.click("text=Look at it")
    page.locator("#columns .wrong").filter(has_text="not a table").wait_for()
    with (tmp_path / "huge.csv").open("wb") as huge:
        huge.truncate(200 * 2**20)
    page.set_input_files("#try-file", str(tmp_path / "huge.csv"))
    page.click("text=Look at it")
    page.locator("#file-wrong").filter(has_text="too large").wait_for()
    page.goto(served.at("/?card=number"))
    page.click("text=Invent people")
    page.wait_for_selector("#trial dl")


def test_a_lost_server_is_told_and_comes_back(browser: Any) -> None:
    server = started("--token", "lost-and-back")
    page = browser.new_context().new_page()
    page.set_default_timeout(60_000)
    try:
        page.goto(server.url)
        page.goto(server.at("/?card=number"))
        page.wait_for_selector(".result")
        digest = page.get_attribute(".result", "data-digest")
        server.process.kill()
        server.end()
        page.fill("#field-users", "2500")
        page.wait_for_selector("#lost:not([hidden])")
        server = started("--token", "lost-and-back", "--port", str(server.port))
        page.wait_for_selector(f".result:not([data-digest='{digest}'])", timeout=60_000)
        assert page.is_hidden("#lost")
        assert page.input_value("#field-users") == "2500"
    finally:
        page.context.close()
        server.end()


def test_two_windows_at_once_and_keys_alone(window: Callable[..., Any], served: Served) -> None:
    one = window()
    other = window()
    one.goto(served.at("/?card=number&users=700"))
    other.goto(served.at("/?card=number&users=800"))
    assert "700 people" in one.inner_text(".three")
    assert "800 people" in other.inner_text(".three")
    one.focus("#field-epsilon")
    one.keyboard.press("Tab")  # the slider
    assert one.evaluate("document.activeElement.className") == "slider"
    before = one.get_attribute(".result", "data-digest")
    one.keyboard.press("PageUp")
    one.wait_for_selector(f".result:not([data-digest='{before}'])")
    assert float(one.input_value("#field-epsilon")) > 1
    one.focus("a[data-choose]")
    one.keyboard.press("Enter")
    one.wait_for_selector("tr.chosen td:has-text('chosen')")


def test_what_is_shown_is_what_the_json_of_a_plan_says(
    window: Callable[..., Any], served: Served
) -> None:
    page = window()
    page.goto(served.at("/?card=number"))
    with page.expect_download() as download:
        page.click("text=plan.json")
    stored = json.loads(Path(download.value.path()).read_text())
    chosen = stored["candidates"][stored["chosen"]]
    assert float(page.get_attribute(".result", "data-expected-error")) == chosen["expected_error"]
    assert re.search(r"0\.1066\s*kcal", page.inner_text(".three"))
