"""Calls of edges to the hub over mutual TLS: the server at the hub, and its client.

An edge is known by the subject of its certificate, which the lease CA signed, so that a lease goes
on when the certificate is replaced. Calls are POST with a JSON body: /v1/open (collections),
/v1/leases (grant), /v1/leases/<id>/keys, /renew and /return; for mixers /v1/mixing (grant),
/v1/leases/<id>/mixing-secret and /renew-mixing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from metricshuffle.collection.hub.lease_office import LeaseDenied, LeaseOffice, TooManyEdges
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.shuffler.log_events import Log, LogEvent
from metricshuffle.collection.shuffler.output_files import do_nothing
from metricshuffle.collection.store.records import StoreError
from metricshuffle.errors import InputError, MetricShuffleError
from metricshuffle.files import check_private

CALL_SECONDS = 10.0
MAX_CALL_BYTES = 4096
MAX_ANSWER_BYTES = 64 * 2**20
STOP_SECONDS = 2.0
"""Time limit for running work when the hub stops; the next start repeats unfinished work."""
MAX_CONNECTIONS_OPEN = 1024
"""Maximum number of connections of edges, each of which has a thread."""


@dataclass(frozen=True)
class LeaseIdentity:
    """Certificate and key of an edge or hub in one file, and the CA that signs all certificates."""

    identity: Path
    authority: Path

    def context(self, *, is_server: bool) -> ssl.SSLContext:
        purpose = ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_cert_chain(self.identity)
            context.load_verify_locations(self.authority)
        except (OSError, ssl.SSLError) as error:
            raise InputError(
                f"cannot use --identity {self.identity} with --lease-ca {self.authority}: {error}; "
                "both must be PEM, and the identity has a certificate and its key."
            ) from None
        check_private(self.identity, "the identity")
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass
class ReloadedContext:
    """TLS context of an identity whose files may be replaced."""

    identity: LeaseIdentity
    is_server: bool
    context: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        self.context = self.identity.context(is_server=self.is_server)

    def reload(self, log: Log) -> None:
        """Read the files again; if they cannot be used, the previous context stays in use."""
        try:
            self.context = self.identity.context(is_server=self.is_server)
        except InputError as error:
            log(LogEvent(f"The identity from before is used: {error}", "trouble"))
        else:
            log(LogEvent("The identity was reloaded.", "certificate"))


class LeaseServer(ThreadingHTTPServer):
    """Server of the hub for its edges.

    Connections are limited. If there is no room, the connection with the longest unfinished
    handshake is closed, so that connections without a certificate keep no edge out.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self, address: tuple[str, int], identity: LeaseIdentity, office: LeaseOffice
    ) -> None:
        self.office = office
        self.certificate = ReloadedContext(identity, is_server=True)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._arriving: OrderedDict[socket.socket, None] = OrderedDict()
        """Connections without a finished handshake, the oldest first."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, LeaseHandler)

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = self.socket.accept()
        connection.settimeout(CALL_SECONDS)
        secured = self.certificate.context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        return secured, address

    def verify_request(self, request: object, client_address: object) -> bool:
        """Return whether there is room for a connection."""
        if not isinstance(request, ssl.SSLSocket):
            return False
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS_OPEN:
                if not self._arriving:
                    return False
                oldest, _ = self._arriving.popitem(last=False)
                self._open.discard(oldest)
                with contextlib.suppress(OSError):
                    # Not the method of SSLSocket: another thread uses it, and now ends.
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._open.add(request)
            self._arriving[request] = None
        return True

    def finish_request(self, request: object, client_address: object) -> None:
        """Do the handshake in the thread of the connection, so that it delays no other."""
        if not isinstance(request, ssl.SSLSocket):
            return
        try:
            with contextlib.suppress(OSError):
                request.do_handshake()
                with self._lock:
                    self._arriving.pop(request, None)
                super().finish_request(request, client_address)
        finally:
            with self._lock:
                self._open.discard(request)
                self._arriving.pop(request, None)

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # nothing of a call is logged

    @property
    def url(self) -> str:
        return f"https://{self.server_name}:{self.server_port}"


class LeaseHandler(BaseHTTPRequestHandler):
    """Handler of one call."""

    protocol_version = "HTTP/1.1"
    server: LeaseServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        try:
            status, content = 200, self._answer()
        except LeaseDenied as denied:
            status, content = {"closed": 410}.get(denied.reason, 404), {"error": denied.reason}
        except (ValueError, KeyError, InputError, RecursionError):
            status, content = 400, {"error": "this is no call of an edge."}
        except TooManyEdges as error:
            status, content = 429, {"error": str(error)}
        except MetricShuffleError:
            status, content = 503, {"error": "no lease now."}
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> JsonObject:
        size = int(self.headers.get("Content-Length", "-1"))
        if not 0 <= size <= MAX_CALL_BYTES:
            raise ValueError(size)
        content = json.loads(self.rfile.read(size) or b"{}")
        if not isinstance(content, dict):
            raise ValueError(content)
        edge = self._edge()
        office = self.server.office
        parts = self.path.strip("/").split("/")
        if parts == ["v1", "open"]:
            return {"open": office.open_collections()}
        if parts == ["v1", "leases"]:
            grant = office.grant(str(content["digest"]), edge)
            return {
                "lease": grant.lease.hex(),
                "seconds": grant.seconds,
                "until": grant.until,
                "served": grant.served.decode(),
            }
        if parts == ["v1", "mixing"]:
            grant = office.grant_mixing(str(content["digest"]), edge)
            return {"lease": grant.lease.hex(), "seconds": grant.seconds}
        [*prefix, number, call] = parts
        if prefix != ["v1", "leases"]:
            raise ValueError(self.path)
        lease = bytes.fromhex(number)
        if call == "keys":
            return dict(office.keys(lease, edge).to_json())
        if call == "renew":
            until, room = office.renew(lease, edge)
            return {"until": until, "room": room}
        if call == "mixing-secret":
            key, secret = office.mixing_secret(lease, edge)
            return {"key": key, "secret": secret.hex()}
        if call == "renew-mixing":
            office.renew_mixing(lease, edge)
            return {}
        if call == "return":
            office.give_back(lease, edge)
            return {}
        raise ValueError(call)

    def _edge(self) -> str:
        """Subject of the certificate, like CN=edge1,O=example."""
        connection = self.connection
        certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
        subject = (certificate or {}).get("subject", ())
        pairs = [pair for part in subject for pair in part]
        edge = ",".join("=".join(map(str, pair)) for pair in pairs)
        if not edge:
            raise ValueError("a certificate of an edge names a subject.")
        return edge


class HubUnreachable(StoreError):
    """The hub does not answer, or cannot do so now."""


@dataclass
class HubLink:
    """Client of an edge for its calls to the hub.

    The files of the identity are read for each call. If they cannot be used, for example while they
    are replaced, the previous context stays in use.
    """

    url: str
    identity: LeaseIdentity
    _certificate: ReloadedContext = field(init=False)

    def __post_init__(self) -> None:
        self._certificate = ReloadedContext(self.identity, is_server=False)

    def check_identity(self, log: Log) -> None:
        """Log whether the files of the identity can be used."""
        self._certificate.reload(log)

    def call(self, path: str, content: JsonObject) -> JsonObject:
        """Make a call.

        Raises: LeaseDenied, or HubUnreachable whenever the outcome is not known.
        """
        self._certificate.reload(do_nothing)
        parts = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            parts.hostname or "",
            parts.port or 443,
            timeout=CALL_SECONDS,
            context=self._certificate.context,
        )
        try:
            connection.request("POST", path, json.dumps(content))
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES)
            if answer.status in (404, 410):
                raise LeaseDenied("closed" if answer.status == 410 else "unknown")
            document = json.loads(data)
            if answer.status == 429:
                raise HubUnreachable(str(document["error"]))
            if answer.status != 200:
                raise HubUnreachable("the hub gives no lease now.")
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise HubUnreachable(f"the hub does not answer: {type(error).__name__}.") from None
        finally:
            connection.close()
        if not isinstance(document, dict):
            raise HubUnreachable("the hub answers something else.")
        return document


@contextlib.contextmanager
def leasing(
    office: LeaseOffice,
    address: tuple[str, int],
    identity: LeaseIdentity,
    log: Callable[[str], None],
) -> Iterator[LeaseServer]:
    """Serve edges, and expire leases, inside the context."""
    try:
        server = LeaseServer(address, identity, office)
    except OSError as error:
        raise InputError(
            f"cannot listen on --lease-listen {address[0]}:{address[1]}: {error.strerror}."
        ) from None
    stop = threading.Event()
    threads = [
        threading.Thread(target=server.serve_forever, name="leases", daemon=True),
        threading.Thread(target=office.run, args=(stop,), name="lease ends", daemon=True),
    ]
    for thread in threads:
        thread.start()
    log(f"Edges lease keys at port {server.server_port}.")
    try:
        yield server
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join(STOP_SECONDS)
