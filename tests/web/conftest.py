"""A real server in a process of its own, and a real browser that may talk to it and to nobody else."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
READY = 60.0


def missing(what: str) -> None:
    """Where everything must be there a missing part is a failure; elsewhere it is a reason to skip."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@dataclass
class Served:
    """`metricshuffle web`, running."""

    process: subprocess.Popen[str]
    url: str
    port: int
    token: str

    def at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
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


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed; pip install playwright")
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        missing("there is no browser to look at the page with; install Chromium (on Debian: apt-get install chromium)")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def window(browser: Any, served: Served) -> Iterator[Callable[..., Any]]:
    """Opens pages that may talk to this machine only; any error of a script, and any request elsewhere, fails the test."""
    contexts, wrong = [], []

    def opened(**settings: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        contexts.append(context)
        context.on("request", lambda request: wrong.append(request.url) if not _own(request.url) else None)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
        page.on(
            "console",
            lambda message: (
                wrong.append(f"{message.text} {message.location} {page.url}") if "Content Security Policy" in message.text else None
            ),
        )
        page.goto(served.url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong, wrong


def _own(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))
