"""A library that is missing or too old is named, with what to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.tables import check_all

from metricshuffle import interop
from metricshuffle._lazy_exports import export_locations
from metricshuffle.errors import MissingExtra
from metricshuffle.interop import peer_packages
from metricshuffle.interop.peer_packages import PEERS, Peer, release_numbers

ROOT = Path(__file__).parents[2]
HOMES = export_locations(str(interop.__file__))


@check_all("name", sorted(HOMES))
def test_a_missing_library_is_named(name: str) -> None:
    """Every exported name asks for its library first."""
    module = HOMES[name].rpartition(".")[2]
    peer = PEERS[module]
    absent = Peer(f"{peer.distribution}-that-nobody-has", peer.extra, peer.lowest, peer.below)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PEERS, module, absent)
        patch.delitem(vars(interop), name, raising=False)
        with pytest.raises(MissingExtra) as refused:
            getattr(interop, name)
    assert f"'{peer.distribution}-that-nobody-has'" in str(refused.value)
    assert f"pip install 'metricshuffle[{peer.extra}]'" in str(refused.value)


def test_a_star_brings_what_is_installed() -> None:
    """A library that is missing leaves its names out, and takes no other names along."""
    code = (
        "import importlib.metadata as metadata\n"
        "installed = {'opendp': '0.16.0', 'dp-accounting': '0.4.4'}\n"
        "def version(name):\n"
        "    if name not in installed:\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return installed[name]\n"
        "metadata.version = version\n"
        "from metricshuffle.interop import *\n"
        "from metricshuffle import interop\n"
        "print('measurement' in globals(), *interop.__all__)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed == "True measurement\n"


def test_an_unsupported_version_is_named_with_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = PEERS["opendp_measurements"]
    for installed in ("0.13.9", "0.17.0", "1.0", "unknown"):
        monkeypatch.setattr(peer_packages, "version", lambda _, text=installed: text)
        with pytest.raises(MissingExtra) as refused:
            peer.check()
        assert str(refused.value) == (
            f"opendp {installed} is installed, but the adapter supports versions from 0.14 to "
            "before 0.17; install one with: pip install 'metricshuffle[opendp]'"
        )
    for installed in ("0.14", "0.14.1", "0.16.3.dev1"):
        monkeypatch.setattr(peer_packages, "version", lambda _, text=installed: text)
        peer.check()


def test_the_versions_are_those_of_the_project() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for peer in PEERS.values():
        written = next(
            line
            for line in extras[peer.extra]
            if re.match(r"[\w-]+", line)[0] == peer.distribution  # type: ignore[index]
        )
        low, high = (".".join(map(str, numbers)) for numbers in (peer.lowest, peer.below))
        assert written == f"{peer.distribution}>={low},<{high}"


def test_numbers_of_versions() -> None:
    assert release_numbers("1.2.3rc1") == (1, 2, 3)
    assert release_numbers("v1") == ()


def test_every_module_with_a_library_exports_something() -> None:
    assert {home.rpartition(".")[2] for home in HOMES.values()} == set(PEERS)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = interop.nothing_of_the_kind  # type: ignore[attr-defined]
    assert set(interop.__all__) <= set(HOMES) <= set(dir(interop))
