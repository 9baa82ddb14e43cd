"""Access control of the page: its token, same-origin requests, and security headers."""

from __future__ import annotations

import hashlib
import hmac
import re
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; "
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
UPLOAD_PATHS = ("/file", "/console/open")
MAX_FORM_BYTES = 2**20
"""Maximum bytes of a form, except for those of UPLOAD_PATHS, which have their own limits."""
TOKEN = "token"  # noqa: S105 - its name in the link


ROOT = re.compile(r"/page-[0-9a-f]{24}(?=/)")


def root_path(token: str) -> str:
    """Path below which all pages lie; derived from the token, which it does not reveal.

    A token that is chosen by the user gives the same path every time.
    """
    salt = b"metricshuffle page"
    return f"/page-{hashlib.scrypt(token.encode(), salt=salt, n=2**14, r=8, p=1, dklen=12).hex()}"


class AccessGuard:
    """Middleware that checks token and origin, and adds security headers to every response.

    The token of the link becomes a cookie. Requests that change anything must come from the page
    itself. The headers tell the browser to load nothing from elsewhere.

    A browser sends a cookie to every port of a machine, whichever server listens there. So all
    pages lie below a secret path, and the cookie is for that path alone; it lasts until the browser
    is closed.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, root: str, once: str = "") -> None:
        self.app = app
        self.token = token
        self.root = root
        self.once = once
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
        request = Request(scope, receive)
        response: Response | None = None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in pairs if name == TOKEN), None)
        if (
            token is not None
            and request.method == "GET"
            and (self._is_token(token) or self._use_once_token(token))
        ):
            left = urlencode([(name, value) for name, value in pairs if name != TOKEN])
            response = RedirectResponse(
                f"{self.root}/{quote(path.lstrip('/'))}{f'?{left}' if left else ''}", 303
            )
            response.set_cookie(
                self.cookie, self.token, path=f"{self.root}/", httponly=True, samesite="strict"
            )
        elif scope["path"] not in OPEN_PATHS and not (
            is_below_root and self._is_token(request.cookies.get(self.cookie, ""))
        ):
            response = PlainTextResponse(
                "This page needs the token of its link: open the link that `metricshuffle "
                "web` printed when it started.\n",
                403,
            )
        elif request.method not in ("GET", "HEAD") and not same_origin(request):
            response = PlainTextResponse(
                "This request did not come from the page itself, so nothing was done.\n", 403
            )
        elif (
            request.method not in ("GET", "HEAD")
            and scope["path"] not in UPLOAD_PATHS
            and await discard_if_larger(request, MAX_FORM_BYTES)
        ):
            response = PlainTextResponse(
                "This form is longer than the page allows, so nothing was done.\n", 413
            )
        await (response or self.app)(scope, receive, _with_headers(send))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    def _use_once_token(self, text: str) -> bool:
        """Return whether `text` is the token that opens the page a single time, and use it up."""
        if not self.once or not hmac.compare_digest(text.encode(), self.once.encode()):
            return False
        self.once = ""
        return True


def same_origin(request: Request) -> bool:
    """Whether a page of this server sent the request; False if the browser does not say."""
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    if origin is not None:
        return urlsplit(origin).netloc == host
    return request.headers.get("sec-fetch-site") == "same-origin"


def is_within_size(request: Request, size: int) -> bool:
    """Whether the request declares a body of at most `size` bytes."""
    length = request.headers.get("content-length", "")
    return length.isdecimal() and len(length) < 16 and int(length) <= size


async def discard_if_larger(request: Request, size: int) -> bool:
    """Discard a body that is larger than `size` or undeclared; return whether it was discarded.

    The body is read to its end because many clients read no response before sending everything.
    """
    from starlette.requests import ClientDisconnect

    if is_within_size(request, size):
        return False
    with suppress(ClientDisconnect):
        async for _ in request.stream():
            pass
    return True


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.decode().lower() for name, _ in message["headers"]}
            added = [
                (name.encode(), value.encode())
                for name, value in HEADERS.items()
                if name not in present
            ]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sent
