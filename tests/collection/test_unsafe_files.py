"""Files that others could read or change, dangling links, and core dumps."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.collection.running import running
from tests.collection.test_server_processes import certificate
from tests.tables import check_all

from metricshuffle.collection.client.outbox import Outbox
from metricshuffle.collection.keys import AnalystKey, KeyFolder
from metricshuffle.collection.shuffler.listener import Listener
from metricshuffle.collection.shuffler.server import plain_hop_warning
from metricshuffle.collection.store.factory import connect_store
from metricshuffle.collection.store.records import StoreError
from metricshuffle.errors import InputError

OTHERS = (0o666, 0o644, 0o640, 0o622, 0o601)


@pytest.mark.parametrize("mode", OTHERS)
def test_secrets_that_others_can_read_or_change(tmp_path: Path, mode: int) -> None:
    """Token, analyst's key and certificate key, as ssh does; chmod is the remedy."""
    folder = KeyFolder.at(tmp_path / "keys")
    before = folder.token
    analyst = tmp_path / "analyst.key"
    AnalystKey.new().save(analyst)
    own, key = certificate(tmp_path)
    taken: list[tuple[Path, Any]] = [
        (folder.path / "operator.token", lambda: KeyFolder.at(folder.path)),
        (folder.path / "operator.token", lambda: folder.token),
        (analyst, lambda: AnalystKey.load(analyst)),
        (key, lambda: Listener.of("127.0.0.1:0", own, key)),
    ]
    for path, use in taken:
        use()
        path.chmod(mode)
        with pytest.raises(
            InputError,
            match=rf"others on this machine can (read|change) it \(its mode is {mode:03o}\)",
        ):
            use()
        path.chmod(0o600)
        use()
    assert folder.token == before


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    """E.g. an unmounted disk: no new token or database is made in its place."""
    keys = tmp_path / "keys"
    missing = tmp_path / "missing"
    keys.mkdir()
    (keys / "operator.token").symlink_to(missing)
    with pytest.raises(InputError, match=r"is a link to .*missing, which does not exist"):
        KeyFolder.at(keys)
    (tmp_path / "x.db").symlink_to(missing)
    with pytest.raises(
        (InputError, StoreError), match=r"is a link to .*missing, which does not exist"
    ):
        connect_store(f"sqlite:///{tmp_path}/x.db")
    assert not missing.exists()


def test_a_database_that_everybody_can_change(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    connect_store(f"sqlite:///{path}").close()
    path.chmod(0o666)
    with pytest.raises(StoreError, match="any user of this machine can change the database"):
        connect_store(f"sqlite:///{path}")
    path.chmod(0o600)
    connect_store(f"sqlite:///{path}").close()


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_journal_that_everybody_can_change(tmp_path: Path, ending: str) -> None:
    """SQLite's journal has the database's mode; chmod must include leftovers."""
    path = tmp_path / "x.db"
    store = connect_store(f"sqlite:///{path}")
    store.now()
    journal = path.with_name(path.name + ending)
    journal.chmod(0o666)
    with pytest.raises(
        StoreError,
        match=rf"any user of this machine can change the database .*chmod 600 {journal}",
    ):
        connect_store(f"sqlite:///{path}")
    journal.chmod(0o600)
    connect_store(f"sqlite:///{path}").close()
    store.close()


def test_an_outbox_of_others_or_one_that_is_not_there(tmp_path: Path) -> None:
    """A changed or missing outbox would allow a second report."""
    path = tmp_path / "x.outbox"
    link = tmp_path / "y.outbox"
    Outbox(path).close()
    path.chmod(0o666)
    with pytest.raises(InputError, match="any user of this machine can change the outbox"):
        Outbox(path)
    path.chmod(0o600)
    Outbox(path).close()
    link.symlink_to(tmp_path / "missing")
    with pytest.raises(InputError, match=r"is a link to .*missing, which does not exist"):
        Outbox(link)
    assert not (tmp_path / "missing").exists()


def test_a_folder_of_keys_where_everybody_could_put_files(tmp_path: Path) -> None:
    """A planted token would be known to others; readable folders are repaired."""
    (tmp_path / "keys").mkdir()
    for mode in (0o777, 0o1777, 0o702):
        (tmp_path / "keys").chmod(mode)
        with pytest.raises(
            InputError,
            match=(
                r"any user of this machine can put files into .*keys \(its mode is "
                rf"{mode & 0o777:03o}\)"
            ),
        ):
            KeyFolder.at(tmp_path / "keys")
        assert list((tmp_path / "keys").iterdir()) == []
    (tmp_path / "keys").chmod(0o755)
    before = os.umask(0)
    try:
        for name in ("keys", "new"):
            assert KeyFolder.at(tmp_path / name).path.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@check_all(
    ("after", "warned"),
    [
        (None, False),
        ("https://hop.example", False),
        ("http://127.0.0.1:8460", False),
        ("http://[::1]:8460", False),
        ("http://localhost:8460", False),
        ("http://hop.example", True),
        ("http://10.0.0.7:8460", True),
        ("http://127.example", True),
    ],
)
def test_a_hop_without_tls_is_told(after: str | None, warned: bool) -> None:
    assert bool(plain_hop_warning(after)) == warned


@pytest.mark.skipif(
    not Path("/proc/self/limits").exists(),
    reason="the limits of another process are asked of Linux",
)
def test_a_shuffler_leaves_no_memory_behind(tmp_path: Path) -> None:
    """No core file, not even piped; a hop without TLS is logged at the start."""
    asked = (
        "from metricshuffle.collection import memory; memory.forbid_memory_dumps(); import "
        "ctypes; print(ctypes.CDLL(None).prctl(3))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, check=True
        ).stdout
        == "0\n"
    )  # PR_GET_DUMPABLE
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # (what it inherits)
    try:
        with running(
            tmp_path / "s", f"sqlite:///{tmp_path}/x.db", "--after", "http://hop.example"
        ) as shuffler:
            process = Path(f"/proc/{shuffler.process.pid}")
            line = next(
                line
                for line in (process / "limits").read_text().splitlines()
                if line.startswith("Max core file size")
            )
            assert line.split()[4:6] == ["0", "0"]
            assert "is asked without TLS" in shuffler.log
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
