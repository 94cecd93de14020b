"""The file that runs, where it unpacked itself, and whether PATH leads to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from lakeshore import _self, _start
from lakeshore._bootstrap import TEMPORARY, nearest, nothing_runs
from lakeshore._version import __version__

from .finding import Asked, Finding, ok, warning

_HEADING = b"# lakeshore "
_ROOM = 64 * 2**20


def check(asked: Asked) -> Iterator[Finding]:
    """The running file, its cache, PATH."""
    archive = _self.archive()
    tree = _self.python_path()[0]
    if archive is None:
        yield ok("program", f"lakeshore {__version__}, {tree}")
    else:
        yield ok("program", f"lakeshore {__version__}, {archive}")
        yield _cache(tree)
    yield _path(archive, asked)


def _cache(tree: str) -> Finding:
    if not os.path.isdir(tree):
        return warning(
            "cache",
            f"nothing could be unpacked, so it runs from {tree} itself, without compiled modules",
            "free some space, or name a directory of your own with XDG_CACHE_HOME or TMPDIR",
        )
    if os.path.basename(tree).startswith(TEMPORARY):
        root = _start.cache_root()
        why = _why_not(os.path.dirname(root)) if root else "you have no home"
        return warning(
            "cache",
            f"unpacked to {tree} for this run alone: {why}",
            "each start unpacks again, which takes a second: mend it, or set XDG_CACHE_HOME to a directory of your own",
        )
    found = os.stat(tree)
    return ok("cache", f"{tree}, mode {found.st_mode & 0o777:o}, owned by uid {found.st_uid}")


def _why_not(base: str) -> str:
    above = nearest(base)
    problem = _start.unsafe_above(os.path.join(above, "x"))
    if problem:
        return problem
    if nothing_runs(above):
        return f"{above} is mounted noexec"
    if not os.access(above, os.W_OK):
        return f"{above} is not writable"
    if shutil.disk_usage(above).free < _ROOM:
        return f"no room in {above}"
    return f"{base} could not be used"


def _path(archive: str | None, asked: Asked) -> Finding:
    found: dict[str, str] = {}  # real path -> as PATH names it
    for folder in asked.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, "lakeshore")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            found.setdefault(os.path.realpath(path), path)
    if not found:
        if archive is None:
            return ok("path", "no lakeshore is on PATH")
        return warning("path", "no lakeshore is on PATH", f'export PATH="{os.path.dirname(archive)}:$PATH"')
    named = [f"{path} ({_version(path)})" for path in found.values()]
    first = next(iter(found))
    if archive is not None and first != os.path.realpath(archive):
        return warning("path", f"`lakeshore` is {named[0]}, not the one that runs", "remove it, or change PATH's order")
    versions = {_version(path) for path in found}
    if len(versions) > 1:
        return warning("path", f"several versions: {', '.join(named)}", "remove all but the first")
    return ok("path", ", ".join(named))


def _version(path: str) -> str:
    """What its second line says, without starting it."""
    try:
        with Path(path).open("rb") as file:
            file.readline(256)
            line = file.readline(256)
    except OSError as error:
        return error.strerror or str(error)
    if line.startswith(_HEADING):
        return line[len(_HEADING) :].decode("ascii", "replace").strip()
    return "not the one file"
