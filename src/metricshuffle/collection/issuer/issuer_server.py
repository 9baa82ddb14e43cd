"""HTTP server of the demonstration issuer (RFC 9578, section 6).

    POST to the path of the issuer's address, with Authorization: Bearer TICKET (32 hexadecimal
    digits) and a request of 259 bytes: 200 and 256 bytes; 401 or 403 without a known ticket,
    409 for a ticket that was used for another request, 422 for anything else that is no request
    GET /.well-known/private-token-issuer-directory: the key

Pages of all sites may ask, because a ticket is needed, and no cookie is. Nothing is logged.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from metricshuffle.collection.admission_tokens import (
    REQUEST_BYTES,
    RESPONSE_MEDIA_TYPE,
)
from metricshuffle.collection.blind_signatures import SignatureRejected
from metricshuffle.collection.issuer.token_issuer import TicketUnknown, TicketUsed, TokenIssuer
from metricshuffle.errors import InputError

DIRECTORY_PATH = "/.well-known/private-token-issuer-directory"
DIRECTORY_MEDIA_TYPE = "application/private-token-issuer-directory"
AUTHORIZATION = re.compile("Bearer ([0-9a-f]{32})")
CALL_SECONDS = 10.0


class IssuerServer(ThreadingHTTPServer):
    """Server of a demonstration issuer."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], issuer: TokenIssuer) -> None:
        self.issuer = issuer
        super().__init__(address, IssuerHandler)

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # nothing of a call is logged

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}"


class IssuerHandler(BaseHTTPRequestHandler):
    """Handler of one call."""

    protocol_version = "HTTP/1.1"
    server_version = "metricshuffle-demonstration-issuer"
    sys_version = ""
    timeout = CALL_SECONDS
    server: IssuerServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_OPTIONS(self) -> None:
        self._reply(204, b"", "")

    def do_GET(self) -> None:
        if self.path != DIRECTORY_PATH:
            self._refuse(404, "there is nothing here.")
            return
        public = self.server.issuer.public
        key = base64.urlsafe_b64encode(bytes.fromhex(public.key)).decode()
        directory = {
            "issuer-request-uri": public.url,
            "token-keys": [{"token-type": 2, "token-key": key}],
        }
        self._reply(200, json.dumps(directory).encode(), DIRECTORY_MEDIA_TYPE)

    def do_POST(self) -> None:
        if self.path != (urlsplit(self.server.issuer.public.url).path or "/"):
            self._refuse(404, "there is nothing here.")
            return
        ticket = AUTHORIZATION.fullmatch(self.headers.get("Authorization", ""))
        if self.headers.get("Content-Length") != str(REQUEST_BYTES):
            self._refuse(422, "this is not a request for a token of this issuer's key.")
            return
        request = self.rfile.read(REQUEST_BYTES)
        if ticket is None:
            self._refuse(401, "a ticket is needed.")
            return
        try:
            answer = self.server.issuer.answer(bytes.fromhex(ticket[1]), request)
        except TicketUnknown as error:
            self._refuse(403, str(error))
        except TicketUsed as error:
            self._refuse(409, str(error))
        except SignatureRejected as error:
            self._refuse(422, str(error))
        else:
            self._reply(200, answer, RESPONSE_MEDIA_TYPE)

    def _refuse(self, status: int, sentence: str) -> None:
        self.close_connection = True  # a body may be left unread
        self._reply(status, json.dumps({"error": sentence}).encode(), "application/json")

    def _reply(self, status: int, body: bytes, media_type: str) -> None:
        self.send_response(status)
        if media_type:
            self.send_header("Content-Type", media_type)
        headers = {
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
            "Access-Control-Allow-Methods": "POST",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def serving_issuer(issuer: TokenIssuer, address: tuple[str, int]) -> Iterator[IssuerServer]:
    """Serve inside the context."""
    try:
        server = IssuerServer(address, issuer)
    except OSError as error:
        raise InputError(f"cannot listen on {address[0]}:{address[1]}: {error.strerror}.") from None
    thread = threading.Thread(target=server.serve_forever, name="issuer", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
