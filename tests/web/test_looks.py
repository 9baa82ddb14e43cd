"""How the page looks: no width at which it must be scrolled sideways, nothing serious for axe-core, light, dark and on paper.

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
    "home": "/", "number": "/?card=number", "place": "/?card=place", "category": "/?card=category", "items": "/?card=items",
    "amplify": "/engineers?card=amplify", "solve": "/engineers?card=solve", "console": "/console",
}  # fmt: skip


def arrived(page: Any, path: str) -> None:
    """Everything that follows by itself is there."""
    if "card=" in path:
        page.wait_for_selector(".result")
    if path.startswith("/?card"):
        page.wait_for_selector("#more .not-hidden")


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core, from the npm registry: needed by this test only, and no part of the package."""
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        missing("there is no npm to fetch axe-core with; install it (on Debian: apt-get install npm)")
    done = subprocess.run([str(npm), "pack", f"axe-core@{AXE}"], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        missing(f"npm could not fetch axe-core: {done.stderr.strip()[-200:]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        content = packed.extractfile("package/axe.min.js")
        assert content is not None
        return content.read().decode()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_light_and_dark_at_three_widths(window: Callable[..., Any], served: Served, axe: str, name: str, tmp_path: Path) -> None:
    """axe-core finds nothing serious, and nothing is wider than the window."""
    folder = Path(os.environ.get("LOOKS", tmp_path))
    page = window()
    page.goto(served.at(PAGES[name]))
    arrived(page, PAGES[name])
    assert not [sentence for sentence in page.locator(".wrong").all_inner_texts() if sentence]
    page.evaluate(axe)
    for scheme, width in (("light", 1400), ("dark", 1400), ("dark", 900), ("light", 400)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width != 900:
            outcome = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
            serious = [
                (rule["id"], rule["nodes"][0]["html"][:160], rule["nodes"][0]["failureSummary"][:200])
                for rule in outcome["violations"]
                if rule["impact"] in ("serious", "critical")
            ]
            assert not serious
        if "LOOKS" in os.environ:  # for eyes
            page.screenshot(path=str(folder / f"{name}-{width}-{scheme}.png"), full_page=True)


def test_paper_has_the_answer_and_not_the_form(window: Callable[..., Any], served: Served, tmp_path: Path) -> None:
    folder = Path(os.environ.get("LOOKS", tmp_path))
    page = window()
    page.goto(served.at("/?card=number"))
    arrived(page, "/?card=number")
    page.emulate_media(media="print")
    assert not page.is_visible("#question")
    assert page.is_visible(".three")
    page.pdf(path=str(folder / "number.pdf"))
    assert (folder / "number.pdf").stat().st_size > 10_000


def test_the_pictures_of_the_tutorial(window: Callable[..., Any], served: Served, tmp_path: Path) -> None:
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
