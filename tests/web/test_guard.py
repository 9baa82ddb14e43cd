"""Who may talk to the page: the token, the origin, the policy; and that nothing is vendored that was not recorded."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.conftest import Served, watched

import metricshuffle
from metricshuffle.errors import InputError
from metricshuffle.web.app import HTMX_SHA256, HTMX_VERSION, STATIC
from metricshuffle.web.serving import address, loopback

TEMPLATES = Path(metricshuffle.__file__).parent / "pages" / "templates" / "web"


def test_htmx_is_the_file_that_was_recorded() -> None:
    content = (STATIC / "htmx.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == HTMX_SHA256
    assert f'version:"{HTMX_VERSION}"'.encode() in content


def test_only_loopback_comes_without_a_chosen_token() -> None:
    assert loopback("127.0.0.1")
    assert loopback("::1")
    assert not loopback("0.0.0.0")  # noqa: S104 - what is refused
    with pytest.raises(InputError, match="token"):
        address("0.0.0.0", 0, None)  # noqa: S104
    assert address("0.0.0.0", 1234, "a-long-token").port == 1234  # noqa: S104
    with pytest.raises(InputError, match="8 letters"):
        address("127.0.0.1", 0, "short")
    first, second = address("127.0.0.1", 0, None), address("127.0.0.1", 0, None)
    assert first.token != second.token
    assert len(first.token) >= 32


def test_templates_hold_neither_scripts_nor_styles_nor_addresses_of_others() -> None:
    for template in TEMPLATES.iterdir():
        text = template.read_text()
        assert not re.search(r"<script(?! src=\"/static/)", text), template.name
        assert not re.search(r"\sstyle=|\son[a-z]+=", text), template.name
        assert not re.search(r"(?:src|href|action)=\"https?:", text), template.name


@pytest.mark.thorough
def test_without_the_token_there_is_nothing(served: Served) -> None:
    with httpx.Client(base_url=served.at("")) as client:
        for path in ("/", "/answer?card=number", "/take/plan.json?card=number", "/console", "/static/web.js", "/?token=wrong"):
            assert client.get(path).status_code == 403, path
        assert client.get("/healthz").status_code == 200
        first = client.get("/", params={"token": served.token, "card": "number"})
        assert first.status_code == 303
        assert first.headers["location"] == "/?card=number"  # the token does not stay in the address
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie


@pytest.mark.thorough
def test_what_changes_anything_must_come_from_the_page(served: Served) -> None:
    with httpx.Client(base_url=served.at(""), follow_redirects=True) as client:
        page = client.get("/", params={"token": served.token})
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for path in ("/try", "/file", "/forget", "/console/add", "/console/abort", "/console/collect", "/console/open"):
            assert client.post(path, data={"a": "b"}).status_code == 403, path
            assert client.post(path, data={"a": "b"}, headers={"origin": "http://elsewhere.example"}).status_code == 403, path
        own = {"origin": served.at("")}
        assert client.post("/forget", data={"file": "x"}, headers=own).status_code == 200
        large = client.post(
            "/file?card=number",
            content=bytes(102 * 2**20),
            headers={**own, "hx-request": "true", "content-type": "multipart/form-data; boundary=x"},
        )
        assert "too large to try here" in large.text  # also to one who does not check before, as the page does
        for path in ("/try", "/forget", "/console/add", "/console/collect"):  # forms without files are short
            assert client.post(path, content=bytes(2**20 + 1), headers=own).status_code == 413, path
            assert client.post(path, content=iter([b"x"]), headers=own).status_code == 413, path  # says not how long it is
        plan = client.post("/console/open", files={"plan": ("plan.json", bytes(10 * 2**20))}, headers=own)
        assert "too large to be a plan" in plan.text
        told = client.post("/file?card=number", files={"file": ("x.csv", b"")}, headers={**own, "hx-request": "true"})
        assert "this file is empty" in told.text


@pytest.mark.thorough
def test_the_browser_tells_what_the_policy_forbids(browser: Any, served: Served) -> None:
    """Every test of the page fails on a violation; here that it would, and that pages which only say no have none."""
    wrong: list[str] = []
    context = browser.new_context()
    watched(context, wrong)
    page = context.new_page()
    for path in ("/", "/console/release/none", "/take/nothing", "/static/nothing"):
        page.goto(served.at(path))
        page.goto(served.url)
        page.goto(served.at(path))
    assert wrong == []
    page.goto(served.at("/"))
    page.evaluate("document.body.setAttribute('style', 'color: red')")
    page.wait_for_timeout(200)
    context.close()
    assert len(wrong) == 1
    assert "style-src" in wrong[0]


@pytest.mark.thorough
def test_bad_options_are_one_sentence() -> None:
    for options, sentence in ((["--host", "0.0.0.0"], "token"), (["--port", "99999"], "--port"), (["--token", "x"], "--token")):  # noqa: S104
        done = subprocess.run(
            [sys.executable, "-m", "metricshuffle", "web", *options], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
