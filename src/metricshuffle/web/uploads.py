"""Files that were given to try a plan on: in a folder of this process, for half an hour, never logged, and gone when it ends."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from metricshuffle.errors import InputError
from metricshuffle.web.access_control import is_within_size
from metricshuffle.web.temp_folders import delete_folder, make_temp_folder

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_FILE_BYTES = 100 * 2**20
MAX_FILES = 8
KEPT_SECONDS, CLEAN_INTERVAL_SECONDS = 29 * 60.0, 20.0
"""Seconds: how long a file is kept, and how often somebody looks; together less than the half hour that the page tells."""
PIECE = 2**20


@dataclass
class Uploads:
    folder: Path = field(default_factory=make_temp_folder)
    kept: dict[str, tuple[Path, float]] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Of a file that was given; a sentence if it is gone."""
        self.clean()
        if name not in self.kept:
            raise InputError("the file is not kept any more; choose it again.")
        return self.kept[name][0]

    async def keep(self, request: Request) -> str:
        """Take the file of a form; larger ones than allowed are refused, whatever the browser said about them."""
        self.clean()
        if not is_within_size(request, MAX_FILE_BYTES + PIECE):
            async for _ in request.stream():  # a browser listens only when it has said everything
                pass
            raise InputError(
                f"this file is too large to try here: at most {MAX_FILE_BYTES // 2**20} MB; `metricshuffle run` takes files of any size."
            )
        async with request.form(max_files=1, max_fields=200) as form:
            upload: Any = form.get("file")
            if upload is None or isinstance(upload, str) or not upload.filename:
                raise InputError("no file was chosen.")
            name = secrets.token_urlsafe(16)
            path = self.folder / f"{name}{'.parquet' if str(upload.filename).endswith('.parquet') else ''}"
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
        """Delete what is old, and the oldest if there are many."""
        old = [name for name, (_, since) in self.kept.items() if monotonic() - since > KEPT_SECONDS]
        for name in [*old, *list(self.kept)[: max(0, len(self.kept) - MAX_FILES)]]:
            self.forget(name)

    async def delete_expired(self) -> None:
        """Delete what is old also if nobody asks for anything any more."""
        while True:
            await asyncio.sleep(CLEAN_INTERVAL_SECONDS)
            self.clean()

    def close(self) -> None:
        delete_folder(self.folder)
