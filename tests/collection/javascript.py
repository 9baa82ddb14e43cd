"""JavaScript client for tests: built from its lock file, in Node and in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.collection.conftest import missing

from metricshuffle.files import locked

CLIENT = Path(__file__).parents[2] / "clients" / "js"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def run(*words: str, cwd: Path, seconds: float = 300.0) -> str:
    """Output of a command; its failure fails the test."""
    done = subprocess.run(
        words,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built_client(shared: Path) -> Path:
    """Built copy of the client with its packages, shared by the workers of one run."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            missing(f"these tests need {tool} (on Debian: apt-get install nodejs npm).")
    folder = shared / "javascript"
    done = shared / "javascript.done"
    with locked(done, 300.0):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
            try:
                run("npm", "ci", "--ignore-scripts", cwd=folder)
            except AssertionError as wrong:
                missing(f"the packages of the JavaScript client cannot be installed: {wrong}")
            run("npm", "run", "build", cwd=folder)
            done.touch()
    return folder


def asked(folder: Path, scratch: Path, *requests: dict[str, Any]) -> list[Any]:
    """Answers of test/draws.mjs to these requests."""
    file = scratch / "request.json"
    file.write_text(json.dumps(requests), encoding="utf-8")
    answers: list[Any] = json.loads(
        run("node", "--no-warnings", str(folder / "test" / "draws.mjs"), str(file), cwd=folder)
    )
    return answers


def browser_path() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        missing("these tests need Chromium (on Debian: apt-get install chromium).")
    assert found is not None
    return found


@contextmanager
def browser(**options: Any) -> Iterator[Any]:
    """Real headless browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("these tests need playwright: pip install playwright")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=browser_path(), args=["--no-sandbox"], **options
        )
        try:
            yield running
        finally:
            running.close()


@pytest.fixture(scope="session")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return built_client(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as running:
        yield running
