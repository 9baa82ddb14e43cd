"""Budget on the join page in a real browser: what was answered, limits that ask, old databases."""

from __future__ import annotations

from typing import Any

import pytest
from tests.collection.client_tasks import tasks
from tests.collection.javascript import chromium
from tests.collection.test_join_in_browser import (
    SECONDS,
    entry_of,
    made_ready,
    scripted,
    visited,
    wait_until,
)

pytestmark = pytest.mark.thorough
__all__ = ["chromium"]

LEDGER = """async () => {
  const open = await new Promise((done) => { const r = indexedDB.open('metricshuffle'); r.onsuccess = () => done(r.result); });
  const store = open.transaction('ledger').objectStore('ledger');
  const found = await new Promise((done) => { const r = store.getAll(); r.onsuccess = () => done(r.result); });
  open.close();
  return { version: open.version, spent: found.filter((record) => record.task) };
}"""  # noqa: E501
OF_VERSION_1 = """async (key) => {
  const open = await new Promise((done) => {
    const request = indexedDB.open('metricshuffle', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('reports');
    request.onsuccess = () => done(request.result);
  });
  const transaction = open.transaction('reports', 'readwrite');
  transaction.objectStore('reports').put({ collection: 'c', state: 'sent', report: null, boxes: null, due: 0, at: 5 }, key);
  await new Promise((done) => (transaction.oncomplete = done));
  open.close();
}"""  # noqa: E501
ADDED = """async (spent) => {
  const open = await new Promise((done) => { const r = indexedDB.open('metricshuffle'); r.onsuccess = () => done(r.result); });
  const transaction = open.transaction('ledger', 'readwrite');
  transaction.objectStore('ledger').put(spent, JSON.stringify([spent.task, spent.round, '']));
  await new Promise((done) => (transaction.oncomplete = done));
  open.close();
}"""  # noqa: E501


def words_of(page: Any) -> str:
    return " ".join(page.inner_text("#budget").split())


def set_limit(page: Any, epsilon: str, distance: str, *, honest: bool = False) -> None:
    page.fill("#limit-epsilon", epsilon)
    page.fill("#limit-distance", distance)
    if honest:
        page.check("#limit-honest")
    page.click("#limit-form button")
    page.wait_for_selector("#limits li")


def test_what_was_answered_is_counted_with_the_report(chromium: Any) -> None:
    with scripted() as site:
        task = tasks()["whole numbers"]
        collection = site.opened(task)
        with visited(chromium, f"{site.url}/join/{collection.digest}") as page:
            page.wait_for_selector("#none-answered:visible")
            made_ready(page, "10")
            stored = page.evaluate(LEDGER)
            (spent,) = stored["spent"]
            assert stored["version"] == 2
            assert "spent" not in entry_of(page)[0]
            claimed = task.if_shuffler_colludes
            assert spent["local"] == {
                "epsilon": claimed.epsilon,
                "delta": claimed.delta,
                "distance": claimed.distance,
                "shape": claimed.shape,
            }
            assert (spent["honest"], spent["unit"]) == (task.honest, task.guarantee.unit)
            page.click("#decline")
            page.wait_for_selector("#declined:visible")
            page.reload()
            page.wait_for_selector("#answered li")
            assert "declined: asked by" in words_of(page)
            assert page.evaluate(LEDGER)["spent"] == [spent]
            assert page.complaints == []


def test_at_a_limit_the_page_asks_and_makes_nothing_without_a_yes(chromium: Any) -> None:
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        with visited(chromium, f"{site.url}/join/{collection.digest}") as page:
            page.wait_for_selector("#make:enabled")
            set_limit(page, "0.0001", "1")
            page.fill("#value", "10")
            page.click("#make")
            page.wait_for_selector("#over:visible", timeout=SECONDS)
            told = page.inner_text("#wrong")
            assert "your limit is 0.0001 at 1" in told
            assert "Nothing was made or sent" in told
            assert (entry_of(page), page.evaluate(LEDGER)["spent"]) == ([], [])
            page.check("#agree")
            page.click("#make")
            page.wait_for_selector("#ready:visible", timeout=SECONDS)
            page.click("#send")
            page.wait_for_selector("#done:visible", timeout=SECONDS)
            assert len(page.evaluate(LEDGER)["spent"]) == 1
        assert len(site.posts) == 1


def test_without_its_entry_no_report_is_stored(chromium: Any) -> None:
    """Both are written in one transaction: where the second fails, the first is undone."""
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        context = chromium.new_context()
        context.add_init_script("""
            const put = IDBObjectStore.prototype.put;
            IDBObjectStore.prototype.put = function (value, key) {
              if (value.task) throw new Error('no room');
              return put.call(this, value, key);
            };
        """)
        page = context.new_page()
        page.goto(f"{site.url}/join/{collection.digest}")
        page.wait_for_selector("#make:enabled")
        page.fill("#value", "10")
        page.click("#make")
        page.wait_for_selector("#wrong:visible", timeout=SECONDS)
        assert (entry_of(page), page.evaluate(LEDGER)["spent"]) == ([], [])
        context.close()
        assert site.posts == []


def test_a_database_of_the_version_before_gets_a_ledger(chromium: Any) -> None:
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        site.pages["/empty"] = "<title>empty</title>"
        with visited(chromium, f"{site.url}/empty") as page:
            page.evaluate(OF_VERSION_1, '["other",1,""]')
            page.goto(f"{site.url}/join/{collection.digest}")
            page.wait_for_selector("#known li")
            assert "Reports that are not counted here: 1." in words_of(page)
            made_ready(page, "10")
            assert len(entry_of(page)) == 2
            assert len(page.evaluate(LEDGER)["spent"]) == 1


def test_the_list_is_forgotten_and_says_so(chromium: Any) -> None:
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        with visited(chromium, f"{site.url}/join/{collection.digest}") as page:
            made_ready(page, "10")
            page.reload()
            page.wait_for_selector("#answered li")
            set_limit(page, "5", "1", honest=True)
            page.click("#forget")
            page.wait_for_selector("#forgetting:visible")
            assert "stays sent" in page.inner_text("#forgetting")
            page.click("#forget-sure")
            page.wait_for_selector("#none-answered:visible")
            assert "not counted here: 1." in words_of(page)
            assert "if honest" in page.inner_text("#limits")
            assert page.evaluate(LEDGER)["spent"] == []
            page.click("#send")
            page.wait_for_selector("#done:visible", timeout=SECONDS)
            assert page.evaluate(LEDGER)["spent"] == []  # sending does not bring it back


def test_entries_of_the_future_and_of_hostile_tasks_are_shown(chromium: Any) -> None:
    with scripted() as site:
        collection = site.opened(tasks()["whole numbers"])
        odd = {
            "user": "",
            "task": "b" * 64,
            "round": 1,
            "analyst": "<b>\u202eBo</b>",
            "unit": "kcal",
            "moves": None,
            "rounds": -3,
            "local": None,
            "shuffled": {"epsilon": "1", "delta": -1},
            "day": "2999-01-01",
        }
        with visited(chromium, f"{site.url}/join/{collection.digest}") as page:
            page.wait_for_selector("#make:enabled")
            page.evaluate(ADDED, odd)
            page.reload()
            page.wait_for_selector("#answered li")
            told = words_of(page)
            assert "behind the newest entry (2999-01-01)" in told
            assert "no limit (the shuffler and those who ask together may read" in told
            assert "<b> Bo</b>" in told
            wait_until(page, "!document.getElementById('make').disabled")
            assert page.complaints == []
