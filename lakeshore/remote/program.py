"""The one file that is sent to a host: this very Lakeshore.

    started from the file    that file
    `--binary`               any file of ours, and nothing else
    from a checkout          its dist/lakeshore
    else                     none: an installed package is not one file

Reference: nymph/install-remote-daemon.md, step 2; DECISIONS, "triples, musl/gnu, ELF checks".
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .. import _self
from .errors import RemoteFailure

_ENTRY = "__main__.py"
_START = "lakeshore/_start.py"
_VERSION = "lakeshore/_version.py"
_CONTENT = re.compile(rb'^CONTENT = "[0-9a-f]{8,}"$', re.MULTILINE)
_NATIVE = re.compile(r"lakeshore/_vendor/_native/([a-z]+_[a-z0-9_]+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One file that holds a whole Lakeshore. `platforms` are those that it has compiled modules for."""

    path: Path
    version: str
    size: int
    sha256: str
    platforms: frozenset[str]
    stale: bool = False
    """It was built before the checkout that it lies in was changed."""


def chosen(binary: Path | None) -> Program:
    """The file to send. Raises RemoteFailure when there is none."""
    if binary is not None:
        return look_at(binary)
    archive = _self.archive()
    if archive is not None:
        return look_at(Path(archive))
    root = Path(_self.python_path()[0])
    if not (root / "build_pyz.py").is_file():
        raise RemoteFailure(
            "this Lakeshore is an installed package, not the one file that a daemon is",
            hint="start the command from the one file (scripts/install.sh gets it), or name that file with --binary",
        )
    built = root / "dist" / "lakeshore"
    if not built.is_file():
        raise RemoteFailure(
            f"this checkout has no {built}",
            hint=f"build it: python3 {root / 'build_pyz.py'}; or name one with --binary",
        )
    return look_at(built, checkout=root)


def look_at(path: Path, *, checkout: Path | None = None) -> Program:
    """What a file is. Raises RemoteFailure when it is not one of ours."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            ours = _ENTRY in names and _START in names and _CONTENT.search(archive.read(_START)) is not None
            version = re.search(r'__version__ = "([^"]+)"', archive.read(_VERSION).decode()) if ours else None
        data = path.read_bytes() if ours else b""
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError):
        ours, version, data, names = False, None, b"", []
    except OSError as error:
        raise RemoteFailure(f"cannot read {path}: {error.strerror or error}") from error
    if not ours:
        raise RemoteFailure(
            f"--binary path does not look like the one file of Lakeshore: {path}",
            hint="dist/lakeshore of `python3 build_pyz.py`, or what scripts/install.sh installs",
        )
    return Program(
        path=path,
        version=version[1] if version else "",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        platforms=frozenset(found[1] for name in names if (found := _NATIVE.match(name))),
        stale=checkout is not None and _changed_since(checkout, path.stat().st_mtime),
    )


def _changed_since(checkout: Path, when: float) -> bool:
    sources = (path for package in ("lakeshore", "dreamlake") for path in (checkout / package).rglob("*.py"))
    return any(path.stat().st_mtime > when for path in sources)
