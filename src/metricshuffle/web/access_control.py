"""Who may talk to the page: whoever holds the token, from the page itself, and nobody else in the browser."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
OPEN_PATHS = ("/healthz", "/favicon.ico")
UPLOAD_PATHS, MAX_FORM_BYTES = ("/file", "/console/open"), 2**20
"""Forms that carry files, and bound them themselves; and the most bytes of every other one."""
TOKEN = "token"  # noqa: S105 - the name of it in the link


ROOT = re.compile(r"/page-[0-9a-f]{24}(?=/)")


def root_path(token: str) -> str:
    """The path below which everything is: the same for a token that was chosen, whenever it is used, and saying nothing of it."""
    return f"/page-{hashlib.scrypt(token.encode(), salt=b'metricshuffle page', n=2**14, r=8, p=1, dklen=12).hex()}"


class AccessGuard:
    """Around the whole application: the token of the link becomes a cookie, what changes anything must come from the page itself, and every
    answer tells the browser to load nothing from elsewhere.

    A browser sends a cookie to every port of a machine, whoever listens there. So everything lies below a path that nobody else knows, and
    the cookie is for that path alone; it lasts as long as the browser is open.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, root: str, once: str = "") -> None:
        self.app, self.token, self.root, self.once = app, token, root, once
        self.cookie = f"metricshuffle-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse, RedirectResponse, Response

        is_below_root = scope["path"].startswith(f"{self.root}/")
        path = ROOT.sub("", scope["path"], count=1)
        if is_below_root:
            scope = {**scope, "path": path, "raw_path": quote(path).encode()}
        request = Request(scope)
        response: Response | None = None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in pairs if name == TOKEN), None)
        if token is not None and request.method == "GET" and (self._is_token(token) or self._use_once_token(token)):
            left = urlencode([(name, value) for name, value in pairs if name != TOKEN])
            response = RedirectResponse(f"{self.root}/{quote(path.lstrip('/'))}{f'?{left}' if left else ''}", 303)
            response.set_cookie(self.cookie, self.token, path=f"{self.root}/", httponly=True, samesite="strict")
        elif scope["path"] not in OPEN_PATHS and not (is_below_root and self._is_token(request.cookies.get(self.cookie, ""))):
            response = PlainTextResponse(
                "This page needs the token of its link: open the link that `metricshuffle web` printed when it started.\n", 403
            )
        elif request.method not in ("GET", "HEAD") and not same_origin(request):
            response = PlainTextResponse("This was not asked by the page itself, so nothing was done.\n", 403)
        elif request.method not in ("GET", "HEAD") and scope["path"] not in UPLOAD_PATHS and not is_within_size(request, MAX_FORM_BYTES):
            await _drain_body(receive)
            response = PlainTextResponse("This is longer than any form of this page can be, so nothing was done.\n", 413)
        await (response or self.app)(scope, receive, _with_headers(send))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    def _use_once_token(self, text: str) -> bool:
        """Whether it is the word that opens the page a single time; then it does so no more."""
        if not self.once or not hmac.compare_digest(text.encode(), self.once.encode()):
            return False
        self.once = ""
        return True


def same_origin(request: object) -> bool:
    """Whether a page of this very server sent the request, as the browser tells; what does not tell is refused."""
    from starlette.requests import Request

    assert isinstance(request, Request)  # noqa: S101 - typed loosely, so that starlette is imported late
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None:
        return urlsplit(origin).netloc == host
    return request.headers.get("sec-fetch-site") == "same-origin"


def is_within_size(request: object, size: int) -> bool:
    """Whether what is sent says how long it is, and is no longer than that."""
    from starlette.requests import Request

    assert isinstance(request, Request)  # noqa: S101 - as above
    length = request.headers.get("content-length", "")
    return length.isdecimal() and len(length) < 16 and int(length) <= size


async def _drain_body(receive: Receive) -> None:
    """Hear somebody out and keep nothing: most clients read an answer only when they have said everything."""
    while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
        pass


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.decode().lower() for name, _ in message["headers"]}
            added = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sent
