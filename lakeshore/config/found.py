"""Which configuration files there are for whoever stands here, and who reads each: five kinds are easily confused.

Reference: api/configuration.md, the table at its top.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .dreamrc import FILE, find_file
from .paths import auth_file
from .project import find_files

_HOST = (Path("/etc/dreamlake/udf-daemon.toml"), Path("~/.config/dreamlake/udf-daemon.toml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One file. `counts` says that no nearer one of its kind stands before it."""

    path: Path
    reader: str
    counts: bool


def found_files(dreamrc: Path | str | None = None, environ: Mapping[str, str] = os.environ) -> Iterator[Found]:
    """The files that are there; `dreamrc` is one that a flag named."""
    reader = "modes and providers: calls with _mode=, lakeshore config"
    first, _source = find_file(dreamrc, environ)
    here = Path.cwd()
    home = Path(environ.get("HOME") or "~").expanduser()
    others = [directory / FILE for directory in (here, *here.parents, home)]
    named = environ.get("DREAMRC")
    given = [Path(one).expanduser() for one in (dreamrc, named) if one]
    for path in dict.fromkeys((*given, *others)):
        if path.is_file():
            yield Found(path=path, reader=reader, counts=path == first)
    for path in find_files():
        yield Found(path=path, reader="defaults of a project: lakeshore daemon launch", counts=True)
    if (compose := here / "lakeshore.yaml").is_file():
        yield Found(path=compose, reader="queues and daemons: lakeshore up, down, ps, status, logs", counts=True)
    if (login := auth_file(environ)).is_file():
        yield Found(path=login, reader="the saved login: every command that talks to a server", counts=True)
    counts = True
    told = environ.get("LAKESHORED_CONFIG") or environ.get("LAKESHORE_CONFIG")
    for path in ((Path(told),) if told else ()) + _HOST:
        if path.expanduser().is_file():
            yield Found(path=path.expanduser(), reader="the daemon of this host: lakeshore nymph", counts=counts)
            counts = False
