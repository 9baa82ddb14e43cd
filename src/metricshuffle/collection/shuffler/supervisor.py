"""Messages to the supervisor that started the process (systemd, `Type=notify`)."""

from __future__ import annotations

import contextlib
import os
import socket


def notify_supervisor(state: str) -> None:
    """Send a state like READY=1, STOPPING=1 or WATCHDOG=1; without a supervisor nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):  # an abstract socket of Linux
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection,
    ):
        connection.setblocking(False)
        connection.sendto(state.encode(), address)
