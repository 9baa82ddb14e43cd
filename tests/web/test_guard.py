"""Access to the page: token, origin, policy; and vendored files are recorded."""

from __future__ import annotations

import asyncio
import hashlib
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.tables import check_all
from tests.web.conftest import Served, watched

import metricshuffle
from metricshuffle.cli.web_command import _read_token
from metricshuffle.errors import InputError
from metricshuffle.web.access_control import AccessGuard, root_path
from metricshuffle.web.application import HTMX_SHA256, HTMX_VERSION, STATIC
from metricshuffle.web.page_server import address, is_loopback_host

TOKEN = "a-token-that-was-chosen"  # noqa: S105 - of these tests
TEMPLATES = Path(metricshuffle.__file__).parent / "report" / "templates" / "web"


def test_htmx_is_the_file_that_was_recorded() -> None:
    content = (STATIC / "htmx.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == HTMX_SHA256
    assert f'version:"{HTMX_VERSION}"'.encode() in content


def test_only_loopback_comes_without_a_chosen_token() -> None:
    assert is_loopback_host("127.0.0.1")
    assert is_loopback_host("::1")
    assert not is_loopback_host("0.0.0.0")  # noqa: S104 - what is refused
    with pytest.raises(InputError, match="token"):
        address("0.0.0.0", 0, None)  # noqa: S104
    assert address("0.0.0.0", 1234, "a-long-token").port == 1234  # noqa: S104
    with pytest.raises(InputError, match="8 letters"):
        address("127.0.0.1", 0, "short")
    first = address("127.0.0.1", 0, None)
    second = address("127.0.0.1", 0, None)
    assert first.token != second.token
    assert len(first.token) >= 32


def test_templates_hold_neither_scripts_nor_styles_nor_addresses_of_others() -> None:
    for template in TEMPLATES.iterdir():
        text = template.read_text()
        assert not re.search(r"<script(?! src=\"{{ root\(\) }}/static/)", text), template.name
        assert not re.search(r"\sstyle=|\son[a-z]+=", text), template.name
        assert not re.search(r"(?:src|href|action)=\"https?:", text), template.name
        assert not re.search(r"(?:src|href|action|hx-get|hx-post)=\"/", text), (
            template.name
        )  # all is below a path of its own


async def _answered(
    guard: AccessGuard, path: str, query: str = "", cookie: str = ""
) -> tuple[int, dict[str, str]]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:1"), (b"cookie", cookie.encode())]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "scheme": "http",
        "server": ("127.0.0.1", 1),
        "http_version": "1.1",
        "root_path": "",
    }
    await guard(scope, receive, send)
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def _asked(
    guard: AccessGuard, path: str, query: str = "", cookie: str = ""
) -> tuple[int, dict[str, str]]:
    with ThreadPoolExecutor(1) as aside:  # a browser of another test may have a loop in this thread
        return aside.submit(asyncio.run, _answered(guard, path, query, cookie)).result()


async def _shown(scope: Any, receive: Any, send: Any) -> None:
    """An application that says which path it was asked for."""
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"x-path", scope["path"].encode())],
        }
    )
    await send({"type": "http.response.body", "body": b""})


def test_the_cookie_is_for_a_path_that_nobody_else_knows() -> None:
    """Browsers send cookies to every port; this one is limited to a secret path."""
    root = root_path(TOKEN)
    guard = AccessGuard(_shown, TOKEN, 1, root, "once-and-no-more")

    def ask(path: str, query: str = "", cookie: str = "") -> tuple[int, dict[str, str]]:
        return _asked(guard, path, query, cookie)

    status, headers = ask("/", f"token={TOKEN}&card=number")
    assert (status, headers["location"]) == (303, f"{root}/?card=number")
    parts = dict(part.strip().partition("=")[::2] for part in headers["set-cookie"].split(";"))
    assert (parts.pop("metricshuffle-1"), parts.pop("Path"), parts.pop("SameSite").lower()) == (
        TOKEN,
        f"{root}/",
        "strict",
    )
    assert list(parts) == ["HttpOnly"]  # neither Max-Age nor Expires: until the browser is closed
    cookie = f"metricshuffle-1={TOKEN}"
    status, headers = ask(f"{root}/console", cookie=cookie)
    assert (status, headers["x-path"]) == (200, "/console")
    for path in (
        "/",
        "/console",
        f"{root}",
        f"{root}x/console",
        f"{root_path('another-token')}/console",
    ):
        assert ask(path, cookie=cookie)[0] == 403, (
            path
        )  # also with the cookie: whoever saw it does not know the path
    assert ask(f"{root}/console")[0] == 403
    assert ask("/healthz")[0] == 200
    assert ask("/", "token=once-and-no-more")[0] == 303
    assert ask("/", "token=once-and-no-more")[0] == 403
    assert root_path(TOKEN) == root != root_path(TOKEN + "x")


@check_all(
    "path",
    [
        "//evil.example/",
        "//evil.example/%2e%2e",
        "///evil.example",
        "/\\\\evil.example/",
        "/\r\nX: y",
    ],
)
def test_the_token_leads_nowhere_else(path: str) -> None:
    root = root_path(TOKEN)
    status, headers = _asked(AccessGuard(_shown, TOKEN, 1, root), path, f"token={TOKEN}")
    assert status == 303
    assert headers["location"].startswith(f"{root}/")
    assert not re.search(r"[\r\n\\]", headers["location"])


def test_where_the_token_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file of its owner, in the environment, or on the command line, where others see it."""
    monkeypatch.delenv("METRICSHUFFLE_WEB_TOKEN", raising=False)
    file = tmp_path / "token"
    file.write_text("a-token-of-mine\n")
    file.chmod(0o600)
    assert _read_token(None, None) is None
    assert _read_token(None, file) == "a-token-of-mine"
    assert _read_token("on-the-line", None) == "on-the-line"
    monkeypatch.setenv("METRICSHUFFLE_WEB_TOKEN", "in-the-environment")
    assert _read_token(None, None) == "in-the-environment"
    with pytest.raises(InputError, match="not both"):
        _read_token("on-the-line", file)
    file.chmod(0o644)
    with pytest.raises(InputError, match="others on this machine can read it"):
        _read_token(None, file)


@pytest.mark.thorough
def test_a_server_at_another_port_gets_no_cookie(browser: Any, served: Served) -> None:
    received: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers.get("cookie"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        context = browser.new_context()
        page = context.new_page()
        page.goto(served.url)
        assert page.url.startswith(served.at("/"))
        assert page.is_visible("nav")
        for path in ("/", "/console", "/page-"):
            page.goto(f"http://127.0.0.1:{other.server_port}{path}")
        context.close()
        other.shutdown()
    assert received
    assert set(received) == {None}


@pytest.mark.thorough
def test_without_the_token_there_is_nothing(served: Served) -> None:
    with httpx.Client(base_url=served.at("")) as client:
        for path in (
            "/",
            "/answer?card=number",
            "/take/plan.json?card=number",
            "/console",
            "/static/web.js",
            "/?token=wrong",
        ):
            assert client.get(path).status_code == 403, path
        assert client.get("/healthz").status_code == 200
        first = client.get("/", params={"token": served.token, "card": "number"})
        assert first.status_code == 303
        assert (
            first.headers["location"] == f"{served.root}/?card=number"
        )  # the token does not stay in the address
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
        for path in (
            "/try",
            "/file",
            "/forget",
            "/console/add",
            "/console/abort",
            "/console/collect",
            "/console/open",
        ):
            assert client.post(path, data={"a": "b"}).status_code == 403, path
            assert (
                client.post(
                    path, data={"a": "b"}, headers={"origin": "http://elsewhere.example"}
                ).status_code
                == 403
            ), path
        own = {"origin": served.at("")}
        assert client.post("/forget", data={"file": "x"}, headers=own).status_code == 200
        large = client.post(
            "/file?card=number",
            content=bytes(102 * 2**20),
            headers={
                **own,
                "hx-request": "true",
                "content-type": "multipart/form-data; boundary=x",
            },
        )
        assert (
            "too large to try here" in large.text
        )  # also to one who does not check before, as the page does
        for path in (
            "/try",
            "/forget",
            "/console/add",
            "/console/collect",
        ):  # forms without files are short
            assert client.post(path, content=bytes(2**20 + 1), headers=own).status_code == 413, path
            assert client.post(path, content=iter([b"x"]), headers=own).status_code == 413, (
                path
            )  # says not how long it is
        plan = client.post(
            "/console/open", files={"plan": ("plan.json", bytes(10 * 2**20))}, headers=own
        )
        assert "too large to be a plan" in plan.text
        told = client.post(
            "/file?card=number",
            files={"file": ("x.csv", b"")},
            headers={**own, "hx-request": "true"},
        )
        assert "this file is empty" in told.text


@pytest.mark.thorough
def test_the_browser_tells_what_the_policy_forbids(browser: Any, served: Served) -> None:
    """Violations fail every test of the page; pages that only reject have none."""
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
    for options, sentence in (
        (["--host", "0.0.0.0"], "token"),  # noqa: S104
        (["--port", "99999"], "--port"),
        (["--token", "x"], "--token"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "metricshuffle", "web", *options],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
