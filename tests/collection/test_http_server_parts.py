"""Undocumented parts of the HTTP server that the shuffler relies on."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from metricshuffle.collection.shuffler.server import _server

pytest.importorskip("granian", reason="the server is an extra")
ROOT = Path(__file__).parents[2]


def test_private_parts_are_as_they_are_used() -> None:
    from granian._granian import SocketHolder
    from granian.server.common import AbstractServer
    from granian.server.embed import Server

    assert [
        part.strip() for part in str(SocketHolder.__text_signature__).strip("()").split(",")
    ] == ["fd", "uds", "backlog"]
    assert "_init_shared_socket" in vars(AbstractServer)
    assert list(inspect.signature(AbstractServer._init_shared_socket).parameters) == ["self"]
    assert {"_sfd", "_ssp", "_shd"} <= set(AbstractServer._init_shared_socket.__code__.co_names)
    assert {"self"} == set(inspect.signature(Server.stop).parameters)
    assert inspect.iscoroutinefunction(Server.serve)
    wanted = {
        "uds",
        "interface",
        "http",
        "websockets",
        "backlog",
        "backpressure",
        "http1_settings",
        "log_enabled",
    }
    assert wanted <= set(inspect.signature(Server.__init__).parameters)


@pytest.mark.parametrize("unix", [False, True])
def test_it_serves_on_the_socket_that_it_is_given(tmp_path: Path, unix: bool) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def asked() -> bytes:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            listening.setblocking(False)
            where = tmp_path / "http"
            server = _server(application, where if unix else listening, 16)  # type: ignore[arg-type]
            serving = asyncio.create_task(server.serve())
            try:
                async with asyncio.timeout(20):
                    while True:
                        try:
                            connection = (
                                asyncio.open_unix_connection(where)
                                if unix
                                else asyncio.open_connection(*listening.getsockname())
                            )
                            reader, writer = await connection
                            break
                        except (FileNotFoundError, ConnectionRefusedError):
                            await asyncio.sleep(0.02)
                    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    line = await reader.readline()
                    writer.close()
            finally:
                server.stop()
                await serving
        return line

    with ThreadPoolExecutor(1) as aside:
        assert b" 204 " in aside.submit(asyncio.run, asked()).result()


def test_only_versions_that_were_tried_are_taken() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    ranges = {line for lines in extras.values() for line in lines if line.startswith("granian")}
    assert len(ranges) == 1
    bounds = re.fullmatch(r"granian>=(\d+)\.(\d+),<(\d+)\.(\d+)", ranges.pop())
    assert bounds is not None
    least = (int(bounds[1]), int(bounds[2]))
    beyond = (int(bounds[3]), int(bounds[4]))
    installed = tuple(int(part) for part in version("granian").split(".")[:2])
    assert least <= installed < beyond
    assert beyond == (installed[0], installed[1] + 1)  # the newest that was tried
