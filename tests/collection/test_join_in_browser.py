"""Join page in a real browser: mouse, keyboard, phone; one report despite reloads and kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.collection.client_tasks import collection_of, tasks
from tests.collection.javascript import browser_path, chromium
from tests.collection.running import new_tickets, running
from tests.collection.store_contents import asked
from tests.report.test_design import DARK, LIGHT, contrast

from metricshuffle.collection.client.join_page import join_page
from metricshuffle.collection.keys import AnalystKey
from metricshuffle.collection.terms import Collection, canonical
from metricshuffle.tasks.task import Task

pytestmark = pytest.mark.thorough
__all__ = ["chromium"]

SECONDS = 60_000
OPEN = {
    "opens": "2020-01-01T00:00:00Z",
    "closes": "2090-01-01T00:00:00Z",
    "extends": "2090-01-01T00:00:00Z",
}


# A shuffler that answers what it is told to, and one that is real


@dataclass
class Scripted:
    """Server of pages that answers posts with these statuses in turn and records them.

    The last status repeats. `answering` holds answers to posts back while it is not set.
    """

    statuses: list[int] = field(default_factory=lambda: [204])
    posts: list[bytes] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    phase: dict[str, str] = field(default_factory=lambda: {"phase": "open", "reason": ""})
    answering: threading.Event = field(default_factory=threading.Event)
    server: ThreadingHTTPServer = field(init=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def opened(self, task: Task, **terms: Any) -> Collection:
        """A collection at this address, with its page."""
        said = json.loads(collection_of(task).served) | OPEN | terms
        said["hops"][0]["url"] = self.url
        served = Collection(canonical(said))
        self.pages[f"/join/{served.digest}"] = join_page(served, self.url)
        return served


@contextmanager
def scripted(*statuses: int) -> Iterator[Scripted]:
    made = Scripted(list(statuses) or [204])
    made.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *words: Any) -> None:
            pass

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            made.asked.append(self.path)
            page = (
                json.dumps(made.phase)
                if self.path.endswith("/state")
                else made.pages.get(self.path)
            )
            self._answer(404 if page is None else 200, (page or "").encode())

        def do_POST(self) -> None:
            made.posts.append(self.rfile.read(int(self.headers["Content-Length"])))
            made.answering.wait(60)
            self._answer(made.statuses.pop(0) if len(made.statuses) > 1 else made.statuses[0])

    made.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def shuffler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("shuffler")
    with running(folder, f"sqlite:///{folder / 'shuffler.db'}") as started:
        yield started


@contextmanager
def visited(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    """A page in a window of its own; what it asks for, and what it complains of, are kept."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.asked = []
    page.complaints = []
    page.on("request", lambda request: page.asked.append(f"{request.method} {request.url}"))
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    try:
        page.goto(url)
        yield page
    finally:
        context.close()


def entry_of(page: Any) -> list[dict[str, Any]]:
    """All that the outbox of the site holds."""
    script = """async () => {
      const open = await new Promise((done) => { const r = indexedDB.open('metricshuffle'); r.onsuccess = () => done(r.result); });
      const store = open.transaction('reports').objectStore('reports');
      const found = await new Promise((done) => { const r = store.getAll(); r.onsuccess = () => done(r.result); });
      open.close();
      return found.map((entry) => ({ ...entry, report: entry.report && [...entry.report].length, boxes: null }));
    }"""  # noqa: E501
    found: list[dict[str, Any]] = page.evaluate(script)
    return found


def wait_until(page: Any, condition: str, seconds: float = SECONDS / 1000) -> None:
    """Wait for a condition that is asked for from outside the page.

    `page.wait_for_function` evaluates it again and again inside the page, which the page's
    content security policy forbids from the second time on.
    """
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {condition}"
        page.wait_for_timeout(50)


def reports_of(shuffler: Any, collection: Collection) -> int:
    return int(shuffler.operator.status(collection.digest)["reports"])


# Taking part


def test_a_number_from_the_field_to_the_shuffler(chromium: Any, shuffler: Any) -> None:
    analyst = AnalystKey.new()
    collection = shuffler.opened(tasks()["whole numbers"], analyst=analyst)
    join = f"{shuffler.url}/join/{collection.digest}"
    with visited(chromium, join) as page:
        page.fill("#value", "5000")
        page.click("#make")
        page.wait_for_selector("#wrong:visible")
        assert "from -20 to 980 g" in page.inner_text("#wrong")
        page.fill("#value", "480")
        page.click("#make")
        page.wait_for_selector("#ready:visible", timeout=SECONDS)
        assert page.locator("#messages li").count() == 10
        shown = page.locator("#messages li").all_inner_texts()
        modulus = collection.task.protocol.modulus or 1
        total = sum(map(int, shown)) % modulus
        assert min(abs(total - 500), modulus - abs(total - 500)) < 2000
        assert reports_of(shuffler, collection) == 0  # nothing is sent before it was seen
        assert entry_of(page)[0]["state"] == "made"
        page.click("#send")
        page.wait_for_selector("#done:visible", timeout=SECONDS)
        assert page.evaluate("document.activeElement.textContent") == "Done"
        page.reload()
        page.wait_for_selector("#before:visible")
        assert not page.is_visible("#answer")
        assert [
            {name: value for name, value in entry.items() if name not in ("due", "at")}
            for entry in entry_of(page)
        ] == [{"collection": collection.digest, "state": "sent", "report": None, "boxes": None}]
        posts = [line for line in page.asked if line.startswith("POST")]
        assert posts == [f"POST {collection.url}/reports"]
        assert {line.split()[1] for line in page.asked} <= {
            join,
            f"{collection.url}/reports",
            f"{collection.url}/state",
            f"{shuffler.url}/favicon.ico",
        }
        assert [
            line for line in page.complaints if "favicon" not in line and "404" not in line
        ] == []
    assert reports_of(shuffler, collection) == 1


def test_the_page_may_not_send_anything_elsewhere(chromium: Any, shuffler: Any) -> None:
    """Not even an injected script: the policy names the only script and its target."""
    collection = shuffler.opened(tasks()["k-ary"])
    with scripted() as other, visited(chromium, f"{shuffler.url}/join/{collection.digest}") as page:
        tried = f"""async () => {{
          const image = new Image();
          image.src = '{other.url}/image';
          const script = document.createElement('script');
          script.textContent = 'globalThis.smuggled = true';
          document.body.append(script);
          const form = Object.assign(document.createElement('form'), {{ action: '{other.url}/form', method: 'post' }});
          document.body.append(form);
          form.submit();
          return fetch('{other.url}/fetch', {{ method: 'POST', mode: 'no-cors' }}).then(() => 'sent', () => 'refused');
        }}"""  # noqa: E501
        assert page.evaluate(tried) == "refused"
        page.wait_for_timeout(500)
        assert page.evaluate("globalThis.smuggled") is None
        assert (other.asked, other.posts) == ([], [])
        answer = page.request.get(f"{shuffler.url}/join/{collection.digest}")
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_by_keyboard_alone(chromium: Any, shuffler: Any) -> None:
    collection = shuffler.opened(tasks()["labels as vectors"])
    with visited(chromium, f"{shuffler.url}/join/{collection.digest}") as page:
        page.wait_for_selector("#make:enabled")
        keys = page.keyboard

        def tab_to(selector: str) -> None:
            for _ in range(20):
                keys.press("Tab")
                if page.evaluate(f"document.activeElement.matches({selector!r})"):
                    return
            raise AssertionError(f"{selector} cannot be reached")

        keys.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        tab_to("input[type=radio]")
        keys.press("Space")
        keys.press("ArrowDown")
        assert page.evaluate("document.querySelector(':checked').value") == "1"
        keys.press("Enter")
        page.wait_for_selector("#ready:visible", timeout=SECONDS)
        assert page.evaluate("document.activeElement.textContent") == "What will be sent"
        tab_to("#send")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        keys.press("Enter")
        page.wait_for_selector("#done:visible", timeout=SECONDS)
    assert reports_of(shuffler, collection) == 1


def test_a_place_by_clicks_by_arrows_and_in_degrees(chromium: Any, shuffler: Any) -> None:
    from playwright.sync_api import expect

    task = tasks()["places"]
    grid: Any = task.query.values_in
    collection = shuffler.opened(task)
    position = {"latitude": 46.95, "longitude": 7.44}
    options = {"geolocation": position, "permissions": ["geolocation"]}
    with visited(chromium, f"{shuffler.url}/join/{collection.digest}", **options) as page:
        page.wait_for_selector("#make:enabled")

        def chosen() -> tuple[int, int]:
            return int(page.input_value("#column")) - 1, int(page.input_value("#row")) - 1

        box = page.locator("#map").bounding_box()
        page.click(
            "#map",
            position={
                "x": box["width"] * 3.5 / grid.width,
                "y": box["height"] * (1.0 - 2.5 / grid.height),
            },
        )
        assert chosen() == (3, 2)
        page.focus("#map")
        for key in (
            "ArrowUp",
            "ArrowRight",
            "ArrowRight",
            "ArrowDown",
            "ArrowDown",
            "ArrowDown",
            "ArrowDown",
        ):
            page.keyboard.press(key)
        assert chosen() == (5, 0)
        for latitude, longitude in ((46.9123, 7.4001), (46.9899, 7.3555), (46.901, 7.519)):
            page.fill("#latitude", str(latitude))
            page.fill("#longitude", str(longitude))
            assert chosen() == tuple(grid.cells_at([latitude], [longitude])[0])
        page.fill("#longitude", "9")
        assert "longitude from 7.35 to 7.52" in page.inner_text("#wrong")
        page.click("#here")
        expect(page.locator("#longitude")).to_have_value("7.44")
        assert chosen() == tuple(grid.cells_at([46.95], [7.44])[0])
        assert page.is_visible("#chosen")
        page.click("#make")
        page.wait_for_selector("#ready:visible", timeout=SECONDS)
        page.click("#send")
        page.wait_for_selector("#done:visible", timeout=SECONDS)
    assert reports_of(shuffler, collection) == 1


def test_records_and_trips_are_filled_in(chromium: Any) -> None:
    """The first attempt of each is refused in a sentence; the second becomes a report."""
    steps: dict[str, tuple[list[tuple[str, ...]], str, list[tuple[str, ...]]]] = {
        "means of whole columns": (
            [("fill", "#part-0", "30")],
            "size: Enter a number from -5 to 40.",
            [("fill", "#part-1", "-5")],
        ),
        "sets": (
            [("check", f"input[value='{place}']") for place in range(4)],
            "Choose up to 3 different ones.",
            [("uncheck", "input[value='2']")],
        ),
        "keys with numbers": (
            [("fill", "#part-1", "2.5")],
            "<b>bread</b>: Enter a number from 0 to 2 h.",
            [("fill", "#part-1", "1.5"), ("fill", "#part-3", "0")],
        ),
        "flows": (
            [("check", "input[name=from][value='4']")],
            "Choose an answer.",
            [("check", "input[name=to][value='4']")],
        ),
    }
    with scripted() as shuffler:
        for name, (first, sentence, then) in steps.items():
            collection = shuffler.opened(tasks()[name])
            with visited(chromium, f"{shuffler.url}/join/{collection.digest}") as page:
                page.wait_for_selector("#make:enabled")
                for verb, *place in first:
                    getattr(page, verb)(*place)
                page.click("#make")
                page.wait_for_selector("#wrong:visible")
                assert page.inner_text("#wrong") == sentence
                for verb, *place in then:
                    getattr(page, verb)(*place)
                page.click("#make")
                page.wait_for_selector("#ready:visible", timeout=SECONDS)
                page.click("#send")
                page.wait_for_selector("#done:visible", timeout=SECONDS)
        assert len(shuffler.posts) == len(steps)


def test_a_true_place_in_degrees(chromium: Any, shuffler: Any) -> None:
    from playwright.sync_api import expect

    collection = shuffler.opened(tasks()["degrees"])
    options = {
        "geolocation": {"latitude": 46.95, "longitude": 7.44},
        "permissions": ["geolocation"],
    }
    with visited(chromium, f"{shuffler.url}/join/{collection.digest}", **options) as page:
        page.wait_for_selector("#make:enabled")
        assert "latitude from 46.9 to 46.99" in page.inner_text("#field-words")
        assert "at most 1,000 m apart on the ground" in page.inner_text("body")
        page.click("#make")  # nothing is entered yet
        page.wait_for_selector("#wrong:visible")
        for latitude, longitude in (("46.95", ""), ("46.95", "9"), ("47", "7.44")):
            page.fill("#latitude", latitude)
            page.fill("#longitude", longitude)
            page.click("#make")
            expect(page.locator("#wrong")).to_contain_text("longitude from 7.35 to 7.52")
        page.click("#here")
        expect(page.locator("#longitude")).to_have_value("7.44")
        page.click("#make")
        page.wait_for_selector("#ready:visible", timeout=SECONDS)
        page.click("#send")
        page.wait_for_selector("#done:visible", timeout=SECONDS)
    assert reports_of(shuffler, collection) == 1


def test_items_are_added_and_taken_away(chromium: Any, shuffler: Any) -> None:
    collection = shuffler.opened(tasks()["items as vectors"])
    with visited(chromium, f"{shuffler.url}/join/{collection.digest}") as page:
        page.wait_for_selector("#make:enabled")
        page.click("#add")
        assert "Choose an answer" in page.inner_text("#wrong")
        for label in ("cheese", "none", "cheese", "<b>bread</b>"):
            page.get_by_label(label, exact=True).check()
            page.click("#add")
        assert page.inner_text("#count") == "4"
        page.click("#make")
        page.wait_for_selector("#wrong:visible")
        assert "exactly 3 items" in page.inner_text("#wrong")
        page.get_by_role("button", name="Remove none").click()
        assert page.locator("#items li").all_inner_texts() == [
            "cheese Remove",
            "cheese Remove",
            "<b>bread</b> Remove",
        ]
        page.click("#make")
        page.wait_for_selector("#ready:visible", timeout=SECONDS)
        assert re.fullmatch(
            r"1: \d+, \d+, \d+, \d+", page.locator("#messages li").first.inner_text()
        )
        page.click("#send")
        page.wait_for_selector("#done:visible", timeout=SECONDS)
    assert reports_of(shuffler, collection) == 1


def test_a_wrong_ticket_can_be_corrected(chromium: Any, shuffler: Any) -> None:
    tickets = new_tickets(50)
    collection = shuffler.opened(tasks()["rows"], tickets=tickets)
    with visited(chromium, f"{shuffler.url}/join/{collection.digest}") as page:
        page.wait_for_selector("#make:enabled")
        page.get_by_label("cheese").check()
        page.click("#make")
        page.wait_for_selector("#wrong:visible")
        assert "A ticket is 32" in page.inner_text("#wrong")
        page.get_by_label("Your ticket").fill("ab" * 16)
        page.click("#make")
        page.wait_for_selector("#ready:visible", timeout=SECONDS)
        drawn = page.locator("#messages li").all_inner_texts()
        page.click("#send")
        page.get_by_label("Another ticket").wait_for(timeout=SECONDS)
        assert "does not know this ticket" in page.inner_text("#sending")
        page.get_by_label("Another ticket").fill(tickets[7].hex().upper())
        page.click("#send")
        page.wait_for_selector("#done:visible", timeout=SECONDS)
        assert page.locator("#messages li").all_inner_texts() == drawn
    assert reports_of(shuffler, collection) == 1


def test_from_another_site_if_the_shuffler_allows_it(chromium: Any, tmp_path: Path) -> None:
    with (
        scripted() as site,
        running(tmp_path / "s", f"sqlite:///{tmp_path / 's.db'}", "--origin", site.url) as started,
    ):
        collection = started.opened(tasks()["k-ary"])
        site.pages["/index.html"] = join_page(collection, site.url)
        with visited(chromium, f"{site.url}/index.html#{collection.digest}") as page:
            page.wait_for_selector("#make:enabled")
            assert page.inner_text("#origin") == site.url
            assert page.is_hidden("#clock")
            page.get_by_label("none").check()
            page.click("#make")
            page.wait_for_selector("#ready:visible", timeout=SECONDS)
            page.click("#send")
            page.wait_for_selector("#done:visible", timeout=SECONDS)
            assert {line.split()[1].split("#")[0] for line in page.asked} <= {
                f"{site.url}/index.html",
                f"{site.url}/favicon.ico",
                f"{collection.url}/reports",
                f"{collection.url}/state",
            }
        assert reports_of(started, collection) == 1
        with visited(chromium, f"{site.url}/index.html#{'0' * 64}") as page:
            page.wait_for_selector("#notice:visible")
            assert "digests differ" in page.inner_text("#notice")
            assert page.is_disabled("#make")
        asked(started.store, "UPDATE collection SET clock = 'The operator confirmed the clock.'")
        for address in (f"{site.url}/index.html", f"{started.url}/join/{collection.digest}"):
            with visited(chromium, address) as page:
                page.wait_for_selector("#clock:visible")
                assert (
                    page.inner_text("#clock")
                    == "About the clock of the shuffler: The operator confirmed the clock."
                )


# One report, whatever happens


def made_ready(page: Any, value: str) -> None:
    page.wait_for_selector("#make:enabled")
    page.fill("#value", value)
    page.click("#make")
    page.wait_for_selector("#ready:visible", timeout=SECONDS)


def post_report(site: Scripted, count: int) -> None:
    """Wait until so many posts have come."""
    deadline = time.monotonic() + 60
    while len(site.posts) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(site.posts) >= count


def test_two_tabs_two_failures_and_a_reload_are_one_report(chromium: Any) -> None:
    with scripted(503, 503, 204) as site:
        collection = site.opened(
            tasks()["line as vectors"]
        )  # (many messages, so that both tabs seal at the same time)
        context = chromium.new_context()
        try:
            first = context.new_page()
            second = context.new_page()
            for page, value in ((first, "3"), (second, "29")):
                page.goto(f"{site.url}/join/{collection.digest}")
                page.wait_for_selector("#make:enabled")
                page.fill("#value", value)
            for page in (first, second):
                page.evaluate("document.getElementById('make').click()")
            for page in (first, second):
                page.wait_for_selector("#ready:visible", timeout=SECONDS)
            assert sorted(page.is_visible("#drawn") for page in (first, second)) == [False, True]
            assert sorted(page.is_visible("#waits") for page in (first, second)) == [False, True]
            assert len(entry_of(first)) == 1
            first.click("#send")
            post_report(site, 2)
            first.reload()
            first.wait_for_selector("#ready:visible")
            first.click("#send")
            first.wait_for_selector("#done:visible", timeout=SECONDS)
            second.click("#send")  # it was sent already
            second.wait_for_selector("#done:visible", timeout=SECONDS)
            assert len(site.posts) == 3
            assert len(set(site.posts)) == 1
            assert len(site.posts[0]) == collection.sealing.report_size
            assert len(entry_of(first)) == 1
        finally:
            context.close()


def test_what_is_declined_is_gone(chromium: Any) -> None:
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        with visited(chromium, f"{site.url}/join/{collection.digest}") as page:
            made_ready(page, "10")
            page.click("#decline")
            page.wait_for_selector("#declined:visible")
            page.reload()
            page.wait_for_selector("#declined:visible")
            (entry,) = entry_of(page)
            assert (entry["state"], entry["report"]) == ("declined", None)
        assert site.posts == []


@contextmanager
def own_browser(chromium: Any, profile: Path) -> Iterator[tuple[Any, subprocess.Popen[bytes]]]:
    """A browser with a profile on the disk, in a group of processes that can be killed."""
    active = profile / "DevToolsActivePort"
    active.unlink(missing_ok=True)
    words = [
        browser_path(),
        "--headless",
        "--no-sandbox",
        f"--user-data-dir={profile}",
        "--remote-debugging-port=0",
        "about:blank",
    ]
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 60
        while not (active.exists() and active.read_text().strip()) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield (
            chromium.browser_type.connect_over_cdp(
                f"http://127.0.0.1:{active.read_text().split()[0]}"
            ),
            process,
        )
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_browser_that_is_killed_three_times_sends_one_report(
    chromium: Any, tmp_path: Path
) -> None:
    with scripted(503) as site:
        collection = site.opened(tasks()["whole numbers"])
        for kill in range(1, 4):
            with own_browser(chromium, tmp_path / "profile") as (browser, process):
                page = browser.contexts[0].new_page()
                page.goto(f"{site.url}/join/{collection.digest}")
                if kill == 1:
                    made_ready(page, "10")
                page.wait_for_selector("#ready:visible", timeout=SECONDS)
                before = len(site.posts)
                page.click("#send")
                post_report(site, before + 1)
                os.killpg(process.pid, signal.SIGKILL)
        site.statuses = [204]
        with own_browser(chromium, tmp_path / "profile") as (browser, _):
            page = browser.contexts[0].new_page()
            page.goto(f"{site.url}/join/{collection.digest}")
            page.click("#send")
            page.wait_for_selector("#done:visible", timeout=SECONDS)
        assert len(site.posts) >= 4
        assert len(set(site.posts)) == 1


# How it looks


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_it_fits_telephones_and_desks(chromium: Any, width: int, scheme: str) -> None:
    with scripted() as site:
        for name in (
            "whole numbers",
            "places",
            "degrees",
            "k-ary",
            "items",
            "map as vectors",
            "k-ary of many",
        ):
            collection = site.opened(tasks()[name])
            options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
            with visited(chromium, f"{site.url}/join/{collection.digest}", **options) as page:
                page.wait_for_selector("#make:enabled")
                if name == "map as vectors":
                    page.click("#map")
                    page.click("#make")
                    page.wait_for_selector("#ready:visible", timeout=SECONDS)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                small = page.evaluate("""() => [...document.querySelectorAll('button, input:not([type=radio], [type=checkbox]), select, .choices label')]
                    .filter((element) => element.offsetParent && !element.closest('.hint-line'))
                    .map((element) => element.getBoundingClientRect().height).filter((height) => height < 40)""")  # noqa: E501
                assert small == [], name


def test_buttons_can_be_read() -> None:
    for tokens in (LIGHT, DARK):
        assert contrast(tokens["card"], tokens["accent"]) >= 4.5


# --- pages of people who have answered ---


@pytest.mark.parametrize("state", ["made", "sent", "declined"])
def test_who_has_answered_is_not_asked_again(chromium: Any, state: str) -> None:
    stages = {"made": "ready", "sent": "done", "declined": "declined"}
    with scripted(204) as site:
        collection = site.opened(tasks()["whole numbers"])
        with visited(chromium, f"{site.url}/join/{collection.digest}") as page:
            made_ready(page, "480")
            if state != "made":
                page.click("#send" if state == "sent" else "#decline")
            page.wait_for_selector(f"#{stages[state]}:visible", timeout=SECONDS)
            before = entry_of(page)
            assert [entry["state"] for entry in before] == [state]
            page.reload()
            page.wait_for_selector(
                f"#{(stages | {'sent': 'before'})[state]}:visible", timeout=SECONDS
            )
            wait_until(
                page,
                "performance.getEntriesByType('resource').some((entry) => "
                "entry.name.endsWith('/state'))",
            )
            assert page.evaluate("document.getElementById('form').hidden")
            assert page.is_disabled("#make")
            assert not page.is_visible("#value")
            # a script that sends the form all the same (or a browser that restores the page) finds
            # nobody who listens
            page.evaluate("document.getElementById('value').value = '7'")
            asked = len(page.asked)
            page.evaluate(
                "document.getElementById('form').dispatchEvent(new Event('submit', { "
                "cancelable: true }))"
            )
            page.wait_for_timeout(300)
            assert entry_of(page) == before
            assert len(page.asked) == asked
            assert not page.is_visible("#drawn")
