"""Where Lakeshore's own files lie, by the XDG rules.

Reference: cli/installation.md, "Environment"; api/configuration.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_CONFIG_HOME/lakeshore`, else `~/.config/lakeshore`."""
    return _base(environ.get("XDG_CONFIG_HOME", ""), "~/.config") / "lakeshore"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_CACHE_HOME/lakeshore`, else `~/.cache/lakeshore`."""
    return _base(environ.get("XDG_CACHE_HOME", ""), "~/.cache") / "lakeshore"


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_DATA_HOME/lakeshore`, else `~/.local/share/lakeshore`."""
    return _base(environ.get("XDG_DATA_HOME", ""), "~/.local/share") / "lakeshore"


def auth_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The saved login."""
    return config_dir(environ) / "auth.yml"


def _base(named: str, usual: str) -> Path:
    # The XDG rules: a relative path there is invalid and is ignored.
    return Path(named) if os.path.isabs(named) else Path(usual).expanduser()
