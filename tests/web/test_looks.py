"""Layout of the page: no sideways scrolling, axe-core, light, dark and print.

The pictures of docs/tutorial-page.md are made here too: SCREENSHOTS=docs writes them there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import Served, missing

pytestmark = pytest.mark.thorough
AXE = "4.14.0"
PAGES = {
    "home": "/",
    "number": "/?card=number",
    "place": "/?card=place",
    "category": "/?card=category",
    "items": "/?card=items",
    "table of items": "/?card=items&question=table&similar_to=name,x,y%0Ahot,1,2",
    "amplify": "/engineers?card=amplify",
    "solve": "/engineers?card=solve",
    "console": "/console",
}


def arrived(page: Any, path: str) -> None:
    """Everything that follows by itself is there."""
    if "card=" in path:
        page.wait_for_selector(".result")
    if path.startswith("/?card"):
        page.wait_for_selector("#more .not-hidden", state="attached")


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core, from the npm registry: needed by this test only, and no part of the package."""
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        missing(
            "there is no npm to fetch axe-core with; install it (on Debian: apt-get install npm)"
        )
    done = subprocess.run(
        [str(npm), "pack", f"axe-core@{AXE}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        missing(f"npm could not fetch axe-core: {done.stderr.strip()[-200:]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        content = packed.extractfile("package/axe.min.js")
        assert content is not None
        return content.read().decode()


SCREENS = 6
"""Screens of a phone that a page may be long."""
PHONE = {"width": 400, "height": 800}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_light_and_dark_at_three_widths(
    window: Callable[..., Any], served: Served, axe: str, name: str, tmp_path: Path
) -> None:
    """axe-core finds nothing, nothing is wider than the window, and no page is long on a phone."""
    folder = Path(os.environ.get("LOOKS", tmp_path))
    page = window(viewport=PHONE)
    page.goto(served.at(PAGES[name]))
    arrived(page, PAGES[name])
    assert not [sentence for sentence in page.locator(".wrong").all_inner_texts() if sentence]
    assert page.evaluate("document.documentElement.scrollHeight") <= SCREENS * PHONE["height"]
    page.evaluate(axe)
    for width in (400, 900, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            outcome = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
            assert not [
                (
                    rule["id"],
                    rule["nodes"][0]["html"][:160],
                    rule["nodes"][0]["failureSummary"][:200],
                )
                for rule in outcome["violations"]
            ]
            if "LOOKS" in os.environ:  # for eyes
                page.screenshot(path=str(folder / f"{name}-{width}-{scheme}.png"), full_page=True)


def test_a_phone_shows_the_slider_and_the_numbers_at_once(
    window: Callable[..., Any], served: Served
) -> None:
    page = window(viewport=PHONE, reduced_motion="reduce")
    page.goto(served.at("/?card=number"))
    arrived(page, "/?card=number")
    visible = """(selector) => {
        const box = document.querySelector(selector).getBoundingClientRect();
        return box.top >= 0 && box.bottom <= innerHeight && box.height > 0; }"""
    for slider in page.locator(".slider:visible").all():
        field = slider.get_attribute("data-for")
        page.evaluate("(name) => document.getElementById(name).focus()", field)
        slider.focus()
        assert page.evaluate(visible, f'.slider[data-for="{field}"]'), field
        assert page.evaluate(visible, ".glance"), field
    shown = page.locator(".glance b").all_inner_texts()
    assert shown[:2] == [
        " ".join(text.split()) for text in page.locator(".three .answer").all_inner_texts()[:2]
    ]


def test_an_arrow_key_moves_a_slider_to_another_number(
    window: Callable[..., Any], served: Served
) -> None:
    page = window()
    page.goto(served.at("/?card=number"))
    arrived(page, "/?card=number")
    for slider in page.locator(".slider:visible").all():
        field = page.locator(f"#{slider.get_attribute('data-for')}")
        before = field.input_value()
        slider.focus()
        page.keyboard.press("ArrowRight")
        higher = field.input_value()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        lower = field.input_value()
        # A slider at the end of its range moves one way only.
        assert (float(lower) < float(higher) and before in (lower, higher)) or (
            float(lower) < float(before) < float(higher)
        )


def test_what_a_phone_folds_opens_and_stays_open(
    window: Callable[..., Any], served: Served
) -> None:
    page = window(viewport=PHONE)
    page.goto(served.at("/?card=number"))
    arrived(page, "/?card=number")
    assert not page.is_visible(".offers")
    page.click("text=Protocols that keep this promise")
    assert page.is_visible(".offers")
    digest = page.get_attribute(".result", "data-digest")
    page.locator('.slider[data-for="field-epsilon"]').focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f'.result:not([data-digest="{digest}"])')
    assert page.is_visible(".offers")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.wait_for_selector("#try-file")
    assert page.is_visible("#try-file")


def test_paper_has_the_answer_and_not_the_form(
    window: Callable[..., Any], served: Served, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("LOOKS", tmp_path))
    page = window()
    page.goto(served.at("/?card=number"))
    arrived(page, "/?card=number")
    page.emulate_media(media="print")
    assert not page.is_visible("#question")
    assert page.is_visible(".three")
    page.pdf(path=str(folder / "number.pdf"))
    assert (folder / "number.pdf").stat().st_size > 10_000


def test_the_pictures_of_the_tutorial(
    window: Callable[..., Any], served: Served, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    page = window(viewport={"width": 1180, "height": 860})
    page.goto(served.at("/?card=number"))
    arrived(page, "/?card=number")
    page.screenshot(path=str(folder / "page-number.png"))
    page.goto(served.at("/?card=place"))
    page.wait_for_selector(".result")
    page.click("text=Invent people")
    page.wait_for_selector("#trial .sides svg", state="attached")
    page.locator("#try").screenshot(path=str(folder / "page-try.png"))
    for name in ("page-number.png", "page-try.png"):
        assert 10_000 < (folder / name).stat().st_size < 400_000
