"""Hub and edges as processes, with certificates of a CA that is made for the test."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.collection.postgres_pair import free_port
from tests.collection.running import Running


def write_identities(folder: Path, names: list[str]) -> Path:
    """Write the certificate of a CA, and an identity for each name; return the former.

    A CA that is there already signs other identities of the same names.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    now = datetime.datetime.now(datetime.UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path, key_path = folder / "ca.pem", folder / "ca.key"
    text = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    authority_key = ec.generate_private_key(ec.SECP256R1())
    if path.exists():
        loaded = serialization.load_pem_private_key(key_path.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        authority_key = loaded

    def certificate(
        name: str, key: ec.EllipticCurvePrivateKey, is_authority: bool
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("lease CA"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
        )
        return builder.sign(authority_key, hashes.SHA256())

    if not path.exists():
        key_path.write_bytes(authority_key.private_bytes(text, *plain))
        path.write_bytes(certificate("lease CA", authority_key, True).public_bytes(text))
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(text, *plain)
        identity = folder / f"{name}.pem"
        identity.write_bytes(private + certificate(name, key, False).public_bytes(text))
        identity.chmod(0o600)
    return path


@dataclass
class Hosts:
    """A hub and its edges."""

    hub: Running
    edges: list[Running]

    def url(self, number: int, digest: str) -> str:
        """Address of a collection at an edge."""
        return f"{self.edges[number % len(self.edges)].url}/v1/collections/{digest}"


def hosts_of(folder: Path, store: str, edges: int, *options: str, lease: float = 60) -> Hosts:
    """Processes that are not started yet."""
    names = ["hub", *(f"edge{number}" for number in range(edges))]
    authority = write_identities(folder / "identities", names)
    port = free_port()

    def process(name: str, *words: str, has_keys: bool) -> Running:
        (folder / name).mkdir(parents=True, exist_ok=True)
        identity = str(folder / "identities" / f"{name}.pem")
        trust = ("--identity", identity, "--lease-ca", str(authority))
        return Running(folder / name, store, (*words, *trust, *options), has_keys=has_keys)

    hub_words = ("--role", "hub", "--lease-listen", f"127.0.0.1:{port}", "--lease", str(lease))
    edge_words = ("--role", "edge", "--hub", f"https://127.0.0.1:{port}", "--openers", "1")
    return Hosts(
        process("hub", *hub_words, has_keys=True),
        [process(name, *edge_words, has_keys=False) for name in names[1:]],
    )


@contextlib.contextmanager
def many_hosts(
    folder: Path, store: str, edges: int, *options: str, lease: float = 60
) -> Iterator[Hosts]:
    """Running hub and edges; none outlives the context."""
    hosts = hosts_of(folder, store, edges, *options, lease=lease)
    with contextlib.ExitStack() as stack:
        for process in (hosts.hub, *hosts.edges):
            stack.callback(end_for_good, process)
            process.start()
        yield hosts


def end_for_good(running: Running) -> None:
    import signal

    process = getattr(running, "process", None)
    if process is None:
        return
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        running.end(signal.SIGKILL)
    elif process.stdout is not None:
        process.stdout.close()
