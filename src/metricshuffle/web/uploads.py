"""Uploaded files for dry runs: stored for half an hour at most, and never logged.

They are in a folder of this process, and are deleted when it ends.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from metricshuffle.errors import InputError
from metricshuffle.web.access_control import discard_if_larger
from metricshuffle.web.temp_folders import delete_folder, make_temp_folder

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_FILE_BYTES = 100 * 2**20
MAX_FILES = 8
KEPT_SECONDS = 29 * 60.0
"""Lifetime of a file; with the cleaning interval, below the half hour that the page states."""
CLEAN_INTERVAL_SECONDS = 20.0
PIECE = 2**20


@dataclass
class Uploads:
    folder: Path = field(default_factory=make_temp_folder)
    kept: dict[str, tuple[Path, float]] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Path of an uploaded file; an `InputError` if it is gone."""
        self.clean()
        if name not in self.kept:
            raise InputError("the file is no longer stored; choose it again.")
        return self.kept[name][0]

    async def keep(self, request: Request) -> str:
        """Store the file of a form, unless it is too large, whatever size the browser declares."""
        self.clean()
        if await discard_if_larger(request, MAX_FILE_BYTES + PIECE):
            raise InputError(
                f"this file is too large to try here: at most {MAX_FILE_BYTES // 2**20} "
                "MB; `metricshuffle run` takes files of any size."
            )
        async with request.form(max_files=1, max_fields=200) as form:
            upload = form.get("file")
            if upload is None or isinstance(upload, str) or not upload.filename:
                raise InputError("no file was chosen.")
            name = secrets.token_urlsafe(16)
            path = (
                self.folder
                / f"{name}{'.parquet' if str(upload.filename).endswith('.parquet') else ''}"
            )
            with path.open("wb") as target:
                while piece := await upload.read(PIECE):
                    target.write(piece)
        if path.stat().st_size == 0:
            path.unlink()
            raise InputError("this file is empty.")
        self.kept[name] = (path, monotonic())
        self.clean()
        return name

    def forget(self, name: str) -> None:
        path, _ = self.kept.pop(name, (None, 0.0))
        if path is not None:
            path.unlink(missing_ok=True)

    def clean(self) -> None:
        """Delete expired files, and the oldest if there are too many."""
        old = [name for name, (_, since) in self.kept.items() if monotonic() - since > KEPT_SECONDS]
        for name in [*old, *list(self.kept)[: max(0, len(self.kept) - MAX_FILES)]]:
            self.forget(name)

    async def delete_expired(self) -> None:
        """Background task: delete expired files even if no request arrives."""
        while True:
            await asyncio.sleep(CLEAN_INTERVAL_SECONDS)
            self.clean()

    def close(self) -> None:
        delete_folder(self.folder)
