"""Which file a new machine runs: the namespace's target version, else the very file that serves, else the newest one
that was pushed. The file that serves becomes a release when it is first asked for.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import trio

from ... import _self, _version
from ..http import HttpError
from ..launchers.contract import Program
from ..records import Records, ReleaseRow
from ..releases import ANY_TARGET, Releases, version_of

_BLOCK: Final = 1 << 20


class Programs:
    """The program of one server's machines."""

    def __init__(self, records: Records, releases: Releases) -> None:
        self._records, self._releases = records, releases
        self._own: tuple[tuple[str, int, int], str] | None = None
        self._turn = trio.Lock()

    async def of(self, ns: str) -> Program:
        """HttpError 409 where there is none."""
        row = self._target(ns) or await self._served() or next(iter(self._releases.all()), None)
        if row is None:
            raise HttpError(
                409,
                "there is no program for a new machine: this server was not started from the one file",
                field="provider",
                hint="`lakeshore nymph push <file>` gives it one, or start the server from the one file "
                "(python3 build_pyz.py makes dist/lakeshore)",
            )
        return Program(path=self._releases.path(row), sha256=row.sha256, url=self._releases.url(row))

    def _target(self, ns: str) -> ReleaseRow | None:
        namespace = self._records.namespace(ns)
        wanted = None if namespace is None else namespace.target_version
        return None if wanted is None else self._releases.find(wanted)

    async def _served(self) -> ReleaseRow | None:
        async with self._turn:
            found = await trio.to_thread.run_sync(_own_file)
            if found is None:
                return None
            path, identity = found
            if self._own is None or self._own[0] != identity:
                row, _is_new = await self._releases.receive(
                    _blocks(path),
                    label=f"served-{_version.__version__}",
                    target=ANY_TARGET,
                    version=None,
                    sha256=None,
                    actor="<server>",
                )
                self._own = identity, row.sha256
            return self._releases.find(self._own[1])


def _own_file() -> tuple[Path, tuple[str, int, int]] | None:
    """The one file that runs, or the checkout's, when it is of this version."""
    named = _self.archive()
    path = Path(named) if named is not None else Path(_self.python_path()[0]) / "dist" / "lakeshore"
    try:
        about = os.stat(path)
    except OSError:
        return None
    if named is None and version_of(path) != _version.__version__:
        return None
    return path, (str(path), about.st_size, about.st_mtime_ns)


async def _blocks(path: Path) -> AsyncGenerator[bytes, None]:
    async with await trio.open_file(path, "rb") as file:
        while block := await file.read(_BLOCK):
            yield block
