"""`.dreamrc` from Python: which file it is, and the mode of a name.

Rule: a file that was named must be there; nothing is asked of a server.
Reference: api/configuration.md, "Resolution order".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .errors import ConfigError
from .modes import DreamRc, Provider, RunConfig, Source

__all__ = ["DreamRc", "Provider", "RunConfig", "load_config", "resolve"]

FILE = ".dreamrc"


def load_config(path: Path | str | None = None, *, environ: Mapping[str, str] = os.environ) -> DreamRc:
    """The configuration from `path`, else `$DREAMRC`, else the nearest `.dreamrc` from the working directory upwards,
    else `~/.dreamrc`; an empty one when there is none of them.

    Raises ConfigError for a file that was named and is not there, and for one that cannot be read or makes no sense.
    """
    from .dreamrc_file import read  # wall: the file's reader brings YAML

    found, source = find_file(path, environ)
    return DreamRc() if found is None else read(found, source)


def resolve(name: str | None = None, rc: DreamRc | None = None) -> RunConfig:
    """The mode called `name` (None: the default one) of `rc` (None: of `load_config()`).

    Raises ConfigError for a name that is not there, with those that are.
    """
    config = load_config() if rc is None else rc
    wanted = config.default_mode if name is None else name
    if wanted in config.modes:
        return config.modes[wanted]
    if wanted == "default":
        return config.root
    raise unknown_mode(wanted, config)


def unknown_mode(name: str, rc: DreamRc, *, more: str = "") -> ConfigError:
    """The error for a mode that is not there, with those that are; `more` is who else was asked."""
    where = rc.path or f"no {FILE} was found"
    return ConfigError(f"{where}: there is no mode {name!r}; there are {', '.join(sorted(rc.modes))}{more}")


def find_file(path: Path | str | None, environ: Mapping[str, str] = os.environ) -> tuple[Path | None, Source]:
    """The file that counts, and how it was found; None and `none` when there is no file."""
    named = environ.get("DREAMRC")
    if path is not None:
        return Path(path).expanduser(), "explicit"
    if named:
        return Path(named).expanduser(), "env"
    here = Path.cwd()
    for directory in (here, *here.parents):
        if (directory / FILE).is_file():
            return directory / FILE, "workspace"
    home = Path(environ.get("HOME") or "~").expanduser() / FILE
    return (home, "home") if home.is_file() else (None, "none")
