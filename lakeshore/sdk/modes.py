"""`_mode=` of a call: which mode it is, and which plane it goes to.

Rules: a mode of `.dreamrc` counts before one of the server with the same name, and `local` is of this machine alone. A
mode of `.dreamrc` that names a `server` sends the call there, unless the call names its plane. A file is read again
when it has changed; what a server said holds for a few seconds.
Reference: api/configuration.md; get-started/architecture.md, "Mode".
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from lakeshore.config.dispatching import run_config_of
from lakeshore.config.dreamrc import find_file, load_config, unknown_mode
from lakeshore.config.modes import DEFAULT, LOCAL, DreamRc, RunConfig
from lakeshore.config.served import mode_of
from lakeshore.wire.run_configs import over

from . import forks
from .default_plane import default_dispatch, plane_at

__all__ = ["over", "placed"]

FRESH_S = 5.0
Rows = Mapping[str, Mapping[str, Any]]
_lock = forks.leaf()
_file: tuple[tuple[object, ...], DreamRc] | None = None
_served: WeakKeyDictionary[Any, tuple[float, Rows]] = WeakKeyDictionary()


def placed(name: str, dispatch: Any | None) -> tuple[Any, dict[str, Any]]:
    """The plane of a call with this mode, and the mode's run config; `dispatch` is the plane that the call names.

    Raises ConfigError for a mode that neither the file nor the plane's server has.
    """
    rc = _config()
    mode = rc.modes.get(name)
    if mode is None and name == DEFAULT and rc.path is not None:
        mode = rc.root
    if dispatch is not None:
        plane = dispatch
    else:
        plane = plane_at(mode.server) if mode is not None and mode.server else default_dispatch()
    return plane, run_config_of(name, _of_server(name, rc, plane) if mode is None else mode)


def _of_server(name: str, rc: DreamRc, plane: Any) -> RunConfig:
    ask = getattr(plane, "modes", None)
    if ask is not None:
        rows = _rows(plane, name)
        if name in rows:
            return mode_of(rows[name])
    if name == DEFAULT:
        return rc.root
    more = ""
    if ask is not None:
        there = ", ".join(sorted(set(rows) - {LOCAL})) or "none"
        more = f"; on {plane.base_url}, namespace {plane.namespace}: {there}"
    raise unknown_mode(name, rc, more=more)


def _rows(plane: Any, name: str) -> Rows:
    """The server's modes; asked anew for a name that was not there, for it may have been added since."""
    with _lock:
        at, rows = _served.get(plane, (-FRESH_S, {}))
    if name not in rows or time.monotonic() - at > FRESH_S:
        rows = {str(row.get("name")): row for row in plane.modes()}
        with _lock:
            _served[plane] = (time.monotonic(), rows)
    return rows


def _config() -> DreamRc:
    """`load_config()`, which reads and checks a file that is in the same state only once."""
    global _file  # noqa: PLW0603  # the last file that was read is this process's
    path, source = find_file(None)
    state = (source, path, *_state(path))
    with _lock:
        if _file is not None and _file[0] == state:
            return _file[1]
    rc = load_config()
    with _lock:
        _file = (state, rc)
    return rc


def _state(path: Path | None) -> tuple[object, ...]:
    if path is None:
        return ()
    try:
        found = os.stat(path)
    except OSError:  # the reader says what is wrong
        return (object(),)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
