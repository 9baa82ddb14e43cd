"""A page whose site has a report already asks nothing again: no form, and nothing that it could send a second answer with."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.client_tasks import tasks
from tests.service.javascript import chromium
from tests.service.test_join_in_browser import SECONDS, entry_of, made_ready, scripted, visited

pytestmark = pytest.mark.thorough
__all__ = ["chromium"]


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
            page.wait_for_selector(f"#{(stages | {'sent': 'before'})[state]}:visible", timeout=SECONDS)
            page.wait_for_function("performance.getEntriesByType('resource').some((entry) => entry.name.endsWith('/state'))")
            assert page.evaluate("document.getElementById('form').hidden")
            assert page.is_disabled("#make")
            assert not page.is_visible("#value")
            # a script that sends the form all the same (or a browser that restores the page) finds nobody who listens
            page.evaluate("document.getElementById('value').value = '7'")
            asked = len(page.asked)
            page.evaluate("document.getElementById('form').dispatchEvent(new Event('submit', { cancelable: true }))")
            page.wait_for_timeout(300)
            assert entry_of(page) == before
            assert len(page.asked) == asked
            assert not page.is_visible("#drawn")
