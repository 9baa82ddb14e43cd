"""Real server in a separate process, and a real browser that may connect only to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from metricshuffle.web.access_control import root_path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SLIDE = """([field, value]) => new Promise((done, failed) => {
  const start = performance.now(), before = document.querySelector('.result').dataset.digest;
  setTimeout(() => failed(new Error('no new numbers')), 15000);
  const look = setInterval(() => {
    const result = document.querySelector('.result');
    if (result && result.dataset.digest !== before) { clearInterval(look); done(performance.now() - start); }
  }, 2);
  const slider = document.querySelector(`.slider[data-for=field-${field}]`);
  slider.value = value;
  slider.dispatchEvent(new Event('input', { bubbles: true }));
})"""  # noqa: E501
"""Script that moves a slider and returns the milliseconds until the new plan's numbers appear."""


def missing(what: str) -> None:
    """Skip a test for a missing part, or fail in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@dataclass
class Served:
    """Running `metricshuffle web`."""

    process: subprocess.Popen[str]
    url: str
    port: int
    token: str

    @property
    def root(self) -> str:
        """Path below which everything is served."""
        return root_path(self.token)

    def at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{self.root}{path}"

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def started(*options: str) -> Served:
    command = [sys.executable, "-m", "metricshuffle", "web", "--no-browser", "--json", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.kill()
        process.wait()
        pytest.fail("the server ended before it was ready")
    told = json.loads(line)
    token = re.search(r"token=(.*)$", told["url"])
    assert token is not None
    return Served(process, told["url"], told["port"], token[1])


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    server = started()
    try:
        yield server
    finally:
        server.end()


@contextmanager
def launched() -> Iterator[Any]:
    """Browser of the machine, or a reason why there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed; pip install playwright")
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        missing(
            "there is no browser to look at the page with; install Chromium (on Debian: "
            "apt-get install chromium)"
        )
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with launched() as opened:
        yield opened


VIOLATED = """addEventListener('securitypolicyviolation', (event) => policyViolated(
  `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber} ${event.sample} at ${location}`))"""  # noqa: E501


def watched(context: Any, wrong: list[str]) -> None:
    """Record requests that leave this machine, script errors, and policy violations of a page."""
    context.on(
        "request", lambda request: wrong.append(request.url) if not _own(request.url) else None
    )
    context.on("weberror", lambda error: wrong.append(f"script: {error.error}"))
    context.expose_binding("policyViolated", lambda _, told: wrong.append(f"policy: {told}"))
    context.add_init_script(VIOLATED)


@pytest.fixture
def window(browser: Any, served: Served) -> Iterator[Callable[..., Any]]:
    """Open pages that may connect to this machine only; `watched` records fail the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def opened(**settings: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        contexts.append(context)
        watched(context, wrong)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(served.url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong, wrong


def _own(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))
