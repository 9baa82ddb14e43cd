"""(e) HTTP responses of the shuffler and the page: status, headers and body of every route.

Both run as processes, as `metricshuffle serve` and `metricshuffle web` start them, so that no
internal name is used here. A proxy records the requests of clients, operator and analyst to a
shuffler. Keys, tokens, digests of collections and times are masked.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from tests.golden.corpus.commands import inside, typed
from tests.golden.corpus.masks import digest, masked, parts_of_page, without_numbers
from tests.golden.corpus.recording import Fields, Items
from tests.golden.corpus.servers import Exchange, Proxy, ask, proxy, started

import metricshuffle as ms

VOLATILE = ("date", "server", "connection", "transfer-encoding", "content-length")
"""Headers of the web server, or that follow from what is masked."""
STATES_WITH_KEYS = re.compile(
    r"\b[0-9a-f]{16,}\b|(?<=\bwhy-)[0-9a-f]+|(?<=name=\"file\" "
    r"value=\")[\w-]+|(?<=\bmetricshuffle-)\d+(?==)|(?<![\w+-])[\w+-]{40,}={0,2}"
)
"""Keys and digests, fields and files named after them, and the port in the cookie's name."""
DRAWN = re.compile(r"(<svg\b)[^>]*>.*?(?=</svg>)", re.S)
ROOT = re.compile(r"/page-[0-9a-f]{24}")
TOKEN = "golden-corpus-token"  # noqa: S105 - of a page that lives for a minute
SITE = "https://survey.example"
Call = tuple[str, tuple[str, str, bytes | None, dict[str, str]]]
"""Name of a call, and its method, path, body and headers."""
CARDS = ("number", "place", "category", "items")


def _hidden(text: str) -> str:
    return STATES_WITH_KEYS.sub("<secret>", masked(ROOT.sub("/<root>", text)))


def _content(exchange: Exchange, secrets: bool, numbers: bool) -> Fields:
    """Recorded body: tags and words of a page, JSON values, else a digest or a size."""
    kind = exchange.headers.get("content-type", "").partition(";")[0]
    if kind in ("application/octet-stream", ""):
        return {"bytes": len(exchange.body)}
    text = exchange.body.decode()
    if kind in ("text/javascript", "text/css"):
        return {"sha256": digest(text)}
    text = _hidden(text) if secrets else masked(ROOT.sub("/<root>", text))
    if kind == "text/html":
        if numbers:
            return parts_of_page(text)
        return {
            name: without_numbers(part)
            for name, part in parts_of_page(DRAWN.sub(r"\1>", text)).items()
        }
    if kind == "application/json":
        content = json.loads(text)
        words = content.pop("error", None) if isinstance(content, dict) else None
        body = json.dumps(content, indent=0, sort_keys=True, ensure_ascii=False)
        return {"body": body, **({"text": words} if words is not None else {})}
    return {"text": text}


def _fields(exchange: Exchange, *, secrets: bool = True, numbers: bool = True) -> Fields:
    headers = {
        name: _hidden(value)
        for name, value in sorted(exchange.headers.items())
        if name not in VOLATILE
    }
    if "allow" in headers:  # methods in the order of a set
        headers["allow"] = ", ".join(sorted(headers["allow"].split(", ")))
    return {"status": exchange.status, "headers": headers, **_content(exchange, secrets, numbers)}


def _noted(step: str, exchanges: list[Exchange]) -> Items:
    """Exchanges of a command, each kind once; their number and order depend on the machine."""
    found: dict[str, list[Fields]] = {}
    for exchange in exchanges:
        fields = _fields(exchange)
        known = found.setdefault(
            f"{step}: {exchange.method} {_hidden(exchange.path)} {exchange.status}", []
        )
        if fields not in known:
            known.append(fields)
    return {
        f"{name} ({place})": fields
        for name, many in found.items()
        for place, fields in enumerate(many, 1)
    }


# The shuffler


def _before_any(server: Proxy, token: dict[str, str]) -> Items:
    nobody = "0" * 64
    calls: list[Call] = [
        ("health", ("GET", "/healthz", None, {})),
        ("no such path", ("GET", "/v1/nothing", None, {})),
        ("no such method", ("POST", "/healthz", b"", {})),
        ("no such collection", ("GET", f"/v1/collections/{nobody}", None, {})),
        ("state of no collection", ("GET", f"/v1/collections/{nobody}/state", None, {})),
        ("report to no collection", ("POST", f"/v1/collections/{nobody}/reports", b"0" * 100, {})),
        ("no digest", ("GET", "/v1/collections/xyz", None, {})),
        ("script", ("GET", "/join/client.js", None, {})),
        ("join no collection", ("GET", f"/join/{nobody}", None, {})),
        ("list without a token", ("GET", "/v1/control/collections", None, {})),
        (
            "list with a wrong token",
            ("GET", "/v1/control/collections", None, {"Authorization": "Bearer wrong"}),
        ),
        ("list of none", ("GET", "/v1/control/collections", None, token)),
        ("new keys", ("POST", "/v1/control/keys", b"", token)),
        ("clock", ("GET", "/v1/control/clock", None, token)),
        ("confirm the clock", ("POST", "/v1/control/clock/confirm", b"{}", token)),
        ("correct the clock", ("POST", "/v1/control/clock/correct", b"{}", token)),
        ("open without a collection", ("POST", "/v1/control/collections", b"{}", token)),
        (
            "open something else",
            ("POST", "/v1/control/collections", b'{"collection": "{}"}', token),
        ),
        ("open without JSON", ("POST", "/v1/control/collections", b"{", token)),
    ]
    return {f"shuffler: {name}": _fields(ask(server.url, *call)) for name, call in calls}


def _while_open(server: Proxy, token: dict[str, str], collection: str, report: bytes) -> Items:
    at = f"/v1/collections/{collection}"
    control = f"/v1/control/collections/{collection}"
    page = {"Origin": SITE}
    calls: list[Call] = [
        ("collection", ("GET", at, None, {})),
        ("state", ("GET", f"{at}/state", None, {})),
        ("join page", ("GET", f"/join/{collection}", None, {})),
        ("status", ("GET", control, None, token)),
        ("list", ("GET", "/v1/control/collections", None, token)),
        ("release without a token", ("GET", f"{at}/release", None, {})),
        ("the same report again", ("POST", f"{at}/reports", report, {})),
        ("a report that is too short", ("POST", f"{at}/reports", report[:-1], {})),
        ("a report that is too long", ("POST", f"{at}/reports", report + b"0", {})),
        ("a report that does not open", ("POST", f"{at}/reports", bytes(len(report)), {})),
        ("no report", ("GET", f"{at}/reports", None, {})),
        (
            "a report from another site",
            ("POST", f"{at}/reports", report, {"Origin": "https://other.example"}),
        ),
        ("a report from the site", ("POST", f"{at}/reports", report, page)),
        (
            "may the site report",
            ("OPTIONS", f"{at}/reports", None, {**page, "Access-Control-Request-Method": "POST"}),
        ),
        ("abort without a token", ("POST", f"{control}/abort", b"{}", {})),
        ("purge what is open", ("POST", f"{control}/purge", b"{}", token)),
    ]
    return {f"open: {name}": _fields(ask(server.url, *call)) for name, call in calls}


def _after(
    name: str, server: Proxy, collection: str, report: bytes, headers: dict[str, str]
) -> Items:
    at = f"/v1/collections/{collection}"
    calls: list[Call] = [
        ("state", ("GET", f"{at}/state", None, {})),
        ("join page", ("GET", f"/join/{collection}", None, {})),
        ("report", ("POST", f"{at}/reports", report, {})),
        ("release", ("GET", f"{at}/release", None, headers)),
        ("acknowledge", ("DELETE", f"{at}/release", None, headers)),
    ]
    return {f"{name}: {asked}": _fields(ask(server.url, *call)) for asked, call in calls}


def _command(items: Items, server: Proxy, step: str, *words: str, code: int = 0) -> list[Exchange]:
    """Record the output and the requests of a command; return its exchanges.

    Its numbers depend on keys and noise, so they are masked.
    """
    server.taken()
    ended, out, err = typed(list(words), step)
    assert ended == code, f"{words}: exit code {ended}, {err}"
    exchanges = server.taken()
    items[f"command: {step}"] = {
        "exit code": ended,
        "stdout": without_numbers(_hidden(out)),
        "stderr": without_numbers(_hidden(err)),
    }
    items |= _noted(step, exchanges)
    return exchanges


def _open(items: Items, server: Proxy, name: str, closes: str, round: int, public: str) -> str:
    """Open a collection by the command; return its digest."""
    words = [
        "collection",
        "open",
        "plan.json",
        "--server",
        server.url,
        "--keys",
        "keys",
        "--analyst",
        public,
        "--closes",
        closes,
    ]
    more = ["--colluders", "0", "--round", str(round), "--output", name]
    opened = _command(items, server, f"open {name}", *words, *more)
    digests = [
        json.loads(exchange.body)["digest"]
        for exchange in opened
        if exchange.status == 201 and b"digest" in exchange.body
    ]
    return str(digests[0])


def _wait_for(state: str, server: Proxy, collection: str) -> None:
    """Wait until a collection has this state.

    The states seen before depend on the machine, so nothing is recorded.
    """
    for _ in range(480):
        seen = json.loads(ask(server.target, "GET", f"/v1/collections/{collection}/state").body)[
            "state"
        ]
        if seen == state:
            return
        assert seen != "aborted"
        time.sleep(0.5)
    raise AssertionError(f"the collection was not {state} within four minutes")


def _shuffler(server: Proxy, public: str) -> Items:
    token = {"Authorization": f"Bearer {Path('keys/operator.token').read_text().strip()}"}
    items = _before_any(server, token)
    first = _open(items, server, "first.json", "1h", 1, public)
    sent = _command(
        items, server, "submit", "submit", "first.json", "--value", "5", "--outbox", "first.db"
    )
    report = next(exchange.request for exchange in sent if exchange.path.endswith("/reports"))
    items |= _while_open(server, token, first, report)
    collect = ("--analyst-key", "analyst.key", "--output", "release.json")
    early = _command(items, server, "collect too early", "collect", "first.json", *collect, code=2)
    analyst = {
        "Authorization": next(
            exchange.sent["authorization"] for exchange in early if "authorization" in exchange.sent
        )
    }
    _command(items, server, "status", "collection", "status", "first.json", "--keys", "keys")
    _command(
        items,
        server,
        "abort",
        "collection",
        "abort",
        "first.json",
        "--keys",
        "keys",
        "--reason",
        "the question was wrong",
    )
    items |= _after("aborted", server, first, report, analyst)
    _command(items, server, "purge", "collection", "purge", "first.json", "--keys", "keys")
    second = _open(items, server, "second.json", "30s", 2, public)
    Path("values.csv").write_text(
        "steps\n" + "".join(f"{person % 6}\n" for person in range(12)), encoding="utf-8"
    )
    sent = _command(
        items,
        server,
        "submit many",
        "submit",
        "second.json",
        "values.csv",
        "--column",
        "steps",
        "--outbox",
        "second.db",
    )
    report = next(exchange.request for exchange in sent if exchange.path.endswith("/reports"))
    _wait_for("released", server, second)
    items |= _after("released", server, second, report, {"Authorization": "Bearer wrong"})
    _command(items, server, "collect", "collect", "second.json", *collect)
    _wait_for("purged", server, second)
    return items | _after("collected", server, second, report, analyst)


# The page


class _Browser:
    """Client of the page with its cookie; `add` records a response under a name."""

    def __init__(self, link: str) -> None:
        self.url = link.partition("/?")[0].partition("/page-")[0]
        self.items: Items = {}
        opened = ask(self.url, "GET", f"/?token={TOKEN}")
        self.items["page: the link"] = _fields(opened)
        self.root = ROOT.findall(opened.headers["location"])[0]
        self.cookie = opened.headers["set-cookie"].partition(";")[0]

    def add(
        self,
        name: str,
        path: str,
        form: Any = None,
        *,
        secrets: bool = False,
        numbers: bool = True,
        **headers: str,
    ) -> str:
        """Record a GET, or a POST of a form (a dictionary, or bytes with their `content_type`)."""
        told = {
            "Cookie": self.cookie,
            **{key.replace("_", "-"): value for key, value in headers.items()},
        }
        body = (
            form if isinstance(form, bytes) else None if form is None else urlencode(form).encode()
        )
        if body is not None:
            told = {"Origin": self.url, "Content-Type": "application/x-www-form-urlencoded", **told}
        answer = ask(self.url, "GET" if body is None else "POST", self.root + path, body, told)
        self.items[f"page: {name}"] = _fields(answer, secrets=secrets, numbers=numbers)
        return answer.body.decode("utf-8", "replace")


def _upload(fields: dict[str, str], name: str, file: str, content: str) -> tuple[bytes, str]:
    """Form with a file, as a browser sends it, and its content type."""
    parts = [
        f'--golden\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in fields.items()
    ]
    parts.append(
        f'--golden\r\nContent-Disposition: form-data; name="{name}"; '
        f'filename="{file}"\r\n\r\n{content}\r\n--golden--\r\n'
    )
    return "".join(parts).encode(), "multipart/form-data; boundary=golden"


def _planner(page: _Browser) -> None:
    page.add("start", "/")
    for card in CARDS:
        page.add(f"{card}: all at once", f"/?card={card}&wait=1")
        page.add(f"{card}: answer", f"/answer?card={card}")
        page.add(f"{card}: too few people", f"/answer?card={card}&users=-3&epsilon=x")
        page.add(f"{card}: more", f"/more?card={card}")
        page.add(f"{card}: texts", f"/texts?card={card}")
    for name in (
        "plan.json",
        "task.json",
        "assessment.txt",
        "consent.txt",
        "plan.sh",
        "plan.py",
        "report.html",
        "nothing.txt",
    ):
        page.add(f"take {name}", f"/take/{name}?card=number")
    page.add("no such card", "/answer?card=nothing")
    start = page.add("engineers", "/engineers")
    for card in sorted(set(re.findall(r"/engineers\?card=(\w+)", start))):
        page.add(f"engineers: {card}", f"/engineers?card={card}&wait=1")
        page.add(f"engineered: {card}", f"/engineered?card={card}")
    for name in ("htmx.min.js", "web.js", "web.css", "style.css", "nothing.js"):
        page.add(f"static {name}", f"/static/{name}")
    page.add("health", "/healthz")
    page.add("no such path", "/nothing")


def _trials(page: _Browser) -> None:
    """Record dry runs without numbers, since another process draws their noise."""
    page.add(
        "try on invented people", "/try", {"state": "card=number"}, secrets=True, numbers=False
    )
    rows = "kcal\n" + "".join(f"{137 * person % 1001}\n" for person in range(1000))
    body, kind = _upload({}, "file", "values.csv", rows)
    columns = page.add(
        "file", "/file?card=number", body, Content_Type=kind, secrets=True, numbers=False
    )
    name = re.findall(r'name="?file"? value="?([\w-]+)', columns)
    form = {"state": "card=number", "file": name[0] if name else "", "column": "kcal"}
    page.add("try on a file", "/try", form, secrets=True, numbers=False)
    page.add("forget", "/forget", {"file": form["file"]}, secrets=True)
    page.add("try on what is forgotten", "/try", form, secrets=True)


def _console(page: _Browser, server: Proxy, public: str) -> None:
    token = Path("keys/operator.token").read_text().strip()
    told: dict[str, Any] = {"secrets": True, "numbers": False}
    page.add("console", "/console", **told)
    page.add("console: wrong token", "/console/add", {"url": server.url, "token": "wrong"}, **told)
    page.add("console: no address", "/console/add", {"url": "nowhere", "token": "wrong"}, **told)
    page.add("console: add", "/console/add", {"url": server.url, "token": token}, **told)
    fields = {"url": server.url, "analyst": public, "closes": "2d", "colluders": "0", "round": "3"}
    for name, text in (
        ("open nothing", "{}"),
        ("open", Path("plan.json").read_text(encoding="utf-8")),
    ):
        body, kind = _upload(fields, "plan", "plan.json", text)
        page.add(f"console: {name}", "/console/open", body, Content_Type=kind, **told)
    page.add("console: collections", "/console/collections", **told)
    page.add("console: with collections", "/console", **told)
    listed = json.loads(
        ask(
            server.target,
            "GET",
            "/v1/control/collections",
            None,
            {"Authorization": f"Bearer {token}"},
        ).body
    )
    (collection,) = [row["digest"] for row in listed["collections"] if row["round"] == 3]
    at = {"url": server.url, "digest": collection}
    page.add(
        "console: join", f"/console/join/{collection}?{urlencode({'url': server.url})}", **told
    )
    page.add("console: collect too early", "/console/collect", {**at, "key": "analyst.key"}, **told)
    page.add("console: collect without a key", "/console/collect", at, **told)
    page.add("console: no release", f"/console/release/{collection}", **told)
    page.add("console: abort", "/console/abort", {**at, "reason": "a wrong question"}, **told)
    page.add("console: remove", "/console/remove", {"url": server.url}, **told)
    page.add("console: again", "/console/add", **told)


def _page(link: str, server: Proxy, public: str) -> Items:
    page = _Browser(link)
    page.items["page: without a cookie"] = _fields(ask(page.url, "GET", f"{page.root}/"))
    page.items["page: without a cookie, elsewhere"] = _fields(ask(page.url, "GET", "/console"))
    page.add("another site posts", "/forget", {"file": "x"}, Origin=SITE)
    _planner(page)
    _trials(page)
    _console(page, server, public)
    return page.items


def record() -> Items:
    with TemporaryDirectory(prefix="corpus-") as name, inside(Path(name)):
        folder = Path(name)
        ms.plan(
            ms.Sum(ms.Integers(0, 5)),
            ms.Target(1.0, 0.0, 5.0),
            100_000,
            4,
            rounds=3,
            trusted="nobody",
        ).save("plan.json")
        code, public, err = typed(["analyst", "key", "--output", "analyst.key"], "analyst")
        assert code == 0, err
        serve = (
            "serve",
            "--store",
            "sqlite:///shuffler.db",
            "--listen",
            "127.0.0.1:0",
            "--keys",
            "keys",
            "--origin",
            SITE,
        )
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        with started(folder, *serve) as ready, proxy(ready["listening"]) as server:
            items = _shuffler(server, public.strip())
            with started(folder, "web", "--no-browser", "--token-file", "token") as shown:
                return items | _page(shown["url"], server, public.strip())
