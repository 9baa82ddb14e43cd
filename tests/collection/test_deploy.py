"""Files of deploy/: options that exist, files that exist, a lock file that is the repository's."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from tests.collection.conftest import missing
from tools.service_lock import needed, service_lock
from typer.testing import CliRunner

from metricshuffle.cli.command_group import app
from metricshuffle.collection.hub.lease_server import LeaseIdentity

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = ("metricshuffle@.service", "metricshuffle-edge@.service", "metricshuffle-hub.service")
OF_ROLES = {
    "": {"--keys"},
    "edge": {"--hub", "--identity", "--lease-ca"},
    "hub": {"--keys", "--lease-listen", "--identity", "--lease-ca"},
}
"""Options that each role needs, beside those of all."""


def known_options(command: str = "serve") -> set[str]:
    shown = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [command, "--help"])
    return set(re.findall(r"--[a-z-]+", shown.output))


@pytest.mark.parametrize("name", [*UNITS, "Containerfile", "compose.yaml", "compose-edges.yaml"])
def test_every_option_of_serve_exists(name: str) -> None:
    text = (DEPLOY / name).read_text()
    commands = re.findall(r'(?s)\bserve[" ,].*?--log[" ,]+json', text)
    assert commands
    for command in commands:
        options = set(re.findall(r"--[a-z-]+", command))
        role = "".join(re.findall(r"--role (\w+)", command))
        assert {"--store", "--listen", "--drain", *OF_ROLES[role]} <= options <= known_options()
        assert not options & (set.union(*OF_ROLES.values()) - OF_ROLES[role])


def test_units_differ_only_in_what_they_run() -> None:
    """Hardening that is added to one of them belongs to all."""
    first, *others = [(DEPLOY / name).read_text().partition("Restart=always")[2] for name in UNITS]
    assert "MemorySwapMax=0" in first
    assert others == [first, first]


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        missing("this needs systemd-analyze (on Debian: apt-get install systemd).")
    for name in UNITS:
        text = (DEPLOY / name).read_text()
        text = text.replace("/opt/metricshuffle/bin/metricshuffle", "/bin/sh")
        path = tmp_path / name.replace("@", "@8461")
        path.write_text(text)
        words = ["systemd-analyze", "verify", str(path)]
        shown = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert (shown.returncode, shown.stderr) == (0, ""), name


def test_the_lock_file_is_that_of_the_repository() -> None:
    assert (DEPLOY / "requirements.lock").read_text() == service_lock()
    assert {"granian", "psycopg-binary", "cryptography", "numba"} <= needed()
    assert "pytest" not in needed()


@pytest.mark.parametrize(
    ("suffix", "names"),
    [
        ("", ["first", "second"]),
        ("-edges", ["edge1", "edge2"]),
    ],
)
def test_the_ports_of_the_proxy_are_those_of_the_processes(suffix: str, names: list[str]) -> None:
    services = yaml.safe_load((DEPLOY / f"compose{suffix}.yaml").read_text())["services"]
    proxy = (DEPLOY / f"nginx{suffix}.conf").read_text()
    hubs = re.findall(r"upstream hub { server (\S+); }", proxy)
    for name, ports in ((names, re.findall(r"server (\S+) max_fails=0;", proxy)), (["hub"], hubs)):
        listening = [
            re.findall(r"--listen (\S+)", services[each]["command"])[0]
            for each in name
            if each in services
        ]
        assert listening == ports
    for name in services.keys() & {*names, "hub"}:
        assert services[name]["read_only"]
        [port] = re.findall(r"--listen 127.0.0.1:(\d+)", services[name]["command"])
        assert services[name]["environment"]["PORT"] == port  # of the check of its health
        assert set(services[name]["secrets"]) >= set(
            re.findall(r"/run/secrets/(\S+)", services[name]["command"])
        )
    for name in services.keys() & {"database", "primary", "standby"}:
        command = services[name]["command"]
        text = command if isinstance(command, str) else " ".join(command)
        assert "log_min_duration_statement=-1" in text
        assert "checkpoint_timeout=30min" in text


def test_edges_have_a_database_user_that_owns_nothing() -> None:
    """Its rights are those that `migrate --edge-role` grants, before any of them starts."""
    services = yaml.safe_load((DEPLOY / "compose-edges.yaml").read_text())["services"]
    users = {
        name: re.findall(r"--store postgresql://(\w+)@", service.get("command") or "")
        for name, service in services.items()
        if name in ("migrate", "hub", "edge1", "edge2")
    }
    owner = [services["primary"]["environment"]["POSTGRES_USER"]]
    assert users == {"migrate": owner, "hub": owner, "edge1": ["edge"], "edge2": ["edge"]}
    for name in users:
        secret = "edge-pgpass" if name.startswith("edge") else "pgpass"
        assert services[name]["environment"]["PGPASSFILE"] == f"/run/secrets/{secret}"
        assert {"pgpass", "edge-pgpass"} & set(services[name]["secrets"]) == {secret}
        if name != "migrate":
            assert services[name]["depends_on"] == {
                "migrate": {"condition": "service_completed_successfully"}
            }
    command = services["migrate"]["command"]
    assert set(re.findall(r"--[a-z-]+", command)) <= known_options("migrate")
    [role] = re.findall(r"--edge-role (\w+)", command)
    assert [role] == users["edge1"]
    mounted = services["primary"]["volumes"]
    assert "./edge-role.sql:/docker-entrypoint-initdb.d/edge-role.sql:ro" in mounted
    assert "edge-password" in services["primary"]["secrets"]
    assert f"CREATE ROLE {role} LOGIN PASSWORD" in (DEPLOY / "edge-role.sql").read_text()


def test_standbys_are_named_and_no_copy_has_such_a_name() -> None:
    """A copy that is being made would count as a standby."""
    services = yaml.safe_load((DEPLOY / "compose-edges.yaml").read_text())["services"]
    commands = [str(services[name]["command"]) for name in ("primary", "standby")]
    names = [re.findall(r"cluster_name=(\w+)", command) for command in commands]
    assert names == [["primary"], ["standby"]]
    assert "application_name" not in "".join(commands)
    setting = (DEPLOY / "primary.sql").read_text()
    assert "= 'FIRST 1 (primary, standby)';" in setting


def test_the_proxy_of_edges_differs_only_in_its_hub() -> None:
    def lines(name: str) -> list[str]:
        return [
            line
            for line in (DEPLOY / name).read_text().splitlines()
            if line.strip() and not line.startswith("#")
        ]

    changes = list(difflib.ndiff(lines("nginx.conf"), lines("nginx-edges.conf")))
    assert not [line for line in changes if line.startswith("-")]
    assert len([line for line in changes if line.startswith("+")]) == 7


def test_identities_are_of_their_ca_and_can_sign_no_others(tmp_path: Path) -> None:
    from cryptography import x509

    if shutil.which("openssl") is None:
        missing("this needs openssl.")
    for name in ("hub", "edge1", "edge1"):
        words = ["sh", str(DEPLOY / "lease-identity.sh"), name, "IP:127.0.0.1"]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert {path.name for path in tmp_path.iterdir()} == {
        "lease-ca.key",
        "lease-ca.pem",
        "hub.pem",
        "edge1.pem",
    }
    authority = x509.load_pem_x509_certificate((tmp_path / "lease-ca.pem").read_bytes())
    for name in ("hub", "edge1"):
        identity = LeaseIdentity(tmp_path / f"{name}.pem", tmp_path / "lease-ca.pem")
        identity.context(is_server=True)
        certificate = x509.load_pem_x509_certificate(identity.identity.read_bytes())
        certificate.verify_directly_issued_by(authority)
        assert certificate.subject.rfc4514_string() == f"CN={name}"
        limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert not limits.value.ca
        assert os.stat(identity.identity).st_mode & 0o077 == 0
