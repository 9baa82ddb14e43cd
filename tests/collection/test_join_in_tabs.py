"""Join page in several windows, and closed collections: the page says what happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.collection.client_tasks import tasks
from tests.collection.javascript import chromium
from tests.collection.running import running
from tests.collection.test_join_in_browser import (
    SECONDS,
    entry_of,
    made_ready,
    post_report,
    scripted,
    visited,
)

pytestmark = pytest.mark.thorough
__all__ = ["chromium"]


@contextmanager
def two_tabs(chromium: Any, url: str) -> Iterator[tuple[Any, Any]]:
    context = chromium.new_context()
    try:
        tabs = context.new_page(), context.new_page()
        for tab in tabs:
            tab.goto(url)
        yield tabs
    finally:
        context.close()


# Declined in one window while another one sends


def test_declined_while_another_tab_waits_for_its_moment(chromium: Any) -> None:
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"], delay=86_400)
        with two_tabs(chromium, f"{site.url}/join/{collection.digest}") as (sender, other):
            sender.clock.install()
            sender.reload()
            made_ready(sender, "10")
            (entry,) = entry_of(sender)
            assert entry["due"] - 1000 * time.time() > 100_000, (
                "the one in a thousand whose moment comes at once"
            )
            other.reload()
            other.wait_for_selector("#ready:visible", timeout=SECONDS)
            sender.click("#send")
            sender.get_by_text("Waiting for a random moment").wait_for(timeout=SECONDS)
            other.click("#decline")
            other.wait_for_selector("#declined:visible", timeout=SECONDS)
            sender.clock.fast_forward(86_400_000)
            assert "Nothing was sent" in other.inner_text("#declined")
            sender.wait_for_selector("#declined:visible", timeout=SECONDS)
            (entry,) = entry_of(other)
            assert (entry["state"], entry["report"]) == ("declined", None)
        assert site.posts == []


def test_declined_while_another_tab_has_sent_it_without_an_answer(chromium: Any) -> None:
    """Declining says it may have been sent; the other tab stops; a late answer counts."""
    for status, ends in ((503, "#withdrawn"), (204, "#done")):
        with scripted(status, 204) as site:
            site.answering.clear()
            collection = site.opened(tasks()["whole numbers"])
            with two_tabs(chromium, f"{site.url}/join/{collection.digest}") as (sender, other):
                made_ready(sender, "10")
                other.reload()
                other.wait_for_selector("#ready:visible", timeout=SECONDS)
                sender.click("#send")
                post_report(site, 1)
                other.click("#decline")
                other.wait_for_selector("#withdrawn:visible", timeout=SECONDS)
                assert "It may have been sent" in other.inner_text("#withdrawn")
                assert not other.is_visible("#declined")
                site.answering.set()
                sender.wait_for_selector(f"{ends}:visible", timeout=SECONDS)
                time.sleep(1.5)  # (a retry would have come by now)
                other.reload()
                other.wait_for_selector(
                    "#withdrawn:visible" if status == 503 else "#before:visible", timeout=SECONDS
                )
            assert len(site.posts) == 1


def test_declined_after_the_shuffler_was_away(chromium: Any) -> None:
    with scripted(503) as site:
        collection = site.opened(tasks()["whole numbers"])
        with visited(chromium, f"{site.url}/join/{collection.digest}") as page:
            made_ready(page, "10")
            page.click("#send")
            post_report(site, 1)
            page.click("#decline")  # while the same window is about to try again
            page.wait_for_selector("#withdrawn:visible", timeout=SECONDS)
            count = len(site.posts)
            page.reload()
            page.wait_for_selector("#withdrawn:visible", timeout=SECONDS)
            assert len(site.posts) == count


# Another answer


def test_another_answer_in_another_tab_is_not_sent_and_that_is_said(chromium: Any) -> None:
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        with two_tabs(chromium, f"{site.url}/join/{collection.digest}") as (first, second):
            second.wait_for_selector("#make:enabled")
            made_ready(first, "71")
            first.click("#send")
            first.wait_for_selector("#done:visible", timeout=SECONDS)
            second.fill("#value", "99")
            second.click("#make")
            for tab in (second, first):
                tab.wait_for_selector("#before:visible", timeout=SECONDS)
                words = tab.inner_text("#before")
                assert "Nothing is sent now" in words
                assert "20" in tab.inner_text("#when")
                assert "All windows of this browser count as one person" in words
                assert not tab.is_visible("#done")
                first.reload()
        assert len(site.posts) == 1


def test_entries_of_an_older_page_are_understood(chromium: Any) -> None:
    """They do not say whether sending had begun: so nothing is claimed about that."""
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        with visited(chromium, f"{site.url}/join/{collection.digest}") as page:
            made_ready(page, "10")
            age = """async ([state]) => {
              const opening = indexedDB.open('metricshuffle');
              const open = await new Promise((done) => { opening.onsuccess = () => done(opening.result); });
              const store = open.transaction('reports', 'readwrite').objectStore('reports');
              const key = await new Promise((done) => { const r = store.getAllKeys(); r.onsuccess = () => done(r.result[0]); });
              const entry = await new Promise((done) => { const r = store.get(key); r.onsuccess = () => done(r.result); });
              delete entry.at;
              const over = state === 'waiting' ? {} : { report: null, boxes: null };
              await new Promise((done) => { store.put({ ...entry, ...over, state }, key).onsuccess = done; });
              open.close();
            }"""  # noqa: E501
            for state, stage in (
                ("waiting", "#ready"),
                ("declined", "#withdrawn"),
                ("sent", "#before"),
            ):
                page.evaluate(age, [state])
                page.reload()
                page.wait_for_selector(f"{stage}:visible", timeout=SECONDS)
            assert "when was not noted" in page.inner_text("#before")
        assert site.posts == []


# Collections that take no reports


PHASES = {
    "not open yet": "is not open yet.",
    "closed": "is closed.",
    "aborted": "is aborted (the laptop was stolen).",
    "gone": "is gone.",
}


@pytest.mark.parametrize("phase", PHASES)
def test_nothing_is_drawn_for_a_collection_that_is_over(chromium: Any, phase: str) -> None:
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        said = {"phase": phase, "reason": "the laptop was stolen" if phase == "aborted" else ""}
        with two_tabs(chromium, f"{site.url}/join/{collection.digest}") as (early, late):
            early.wait_for_selector("#make:enabled")
            site.phase = said
            early.fill("#value", "10")
            early.click("#make")
            early.wait_for_selector("#wrong:visible", timeout=SECONDS)
            assert f"This collection {PHASES[phase]} Nothing is drawn" in early.inner_text("#wrong")
            late.reload()
            late.wait_for_selector("#notice:visible", timeout=SECONDS)
            assert f"This collection {PHASES[phase]}" in late.inner_text("#notice")
            assert not late.is_visible("#form")
            assert "open until" not in late.inner_text("body")
            assert entry_of(late) == []
        assert site.posts == []


def test_a_real_shuffler_says_how_its_collections_stand(chromium: Any, tmp_path: Path) -> None:
    """Open, and aborted while somebody has the page before them."""
    with running(tmp_path / "s", f"sqlite:///{tmp_path / 's.db'}") as started:
        collection = started.opened(tasks()["whole numbers"])
        with visited(chromium, f"{started.url}/join/{collection.digest}") as page:
            page.wait_for_selector("#make:enabled")
            started.operator.abort(collection.digest, "a test")
            page.fill("#value", "10")
            page.click("#make")
            page.wait_for_selector("#wrong:visible", timeout=SECONDS)
            assert (
                "This collection is aborted (by its operator: a test). Nothing is drawn"
                in page.inner_text("#wrong")
            )
            page.reload()
            page.wait_for_selector("#notice:visible", timeout=SECONDS)
            assert not page.is_visible("#form")
