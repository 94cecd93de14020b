"""The `.dreamrc` of a command: the nearest file, else what the server keeps, else what it kept when last asked.

    --dreamrc explicit · $DREAMRC env · ./.dreamrc and upwards workspace · ~/.dreamrc home
    the server's modes and providers server · their copy of the last time cache · nothing none

Rules: the first of these is all there is, nothing merges. Who asks the server is injected: `fetch` raises `Away` when
it cannot. The copy names the server and the namespace that it is of, and counts for no other. Directories are 0700,
files 0600: a provider's arguments are nobody else's business.
Reference: api/configuration.md, "Resolution order".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from .auth import same_server
from .dreamrc import find_file
from .dreamrc_file import parse, read
from .dreamrc_text import to_yaml
from .errors import ConfigError
from .modes import DreamRc
from .paths import cache_dir
from .private_files import write_private
from .served import Pulled, composed

FILE = "dreamrc.yml"
_HEAD = "# lakeshore: "


class Away(Exception):
    """The server could not be asked. The message says why, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A control plane that keeps modes and providers for a namespace. `fetch` raises Away."""

    url: str
    namespace: str
    fetch: Callable[[], Pulled]


def resolve_config(
    path: Path | str | None,
    server: Server | None,
    *,
    tell: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> DreamRc:
    """The configuration by the rules above; `tell` gets what a person must know. Raises ConfigError for a file that was
    named and is not there, and for one that makes no sense.
    """
    found, source = find_file(path, environ)
    if found is not None:
        return read(found, source)
    if server is None:
        return DreamRc()
    try:
        rc = composed(server.fetch())
    except Away as away:
        kept = cached(server, environ)
        if kept is None:
            tell(f"⚠ {away}, and there is no copy of its config")
            return DreamRc()
        rc, at = kept
        tell(f"⚠ {away}, using cached config from {at}")
        return rc
    try:
        keep(server, rc, environ)
    except ConfigError as error:
        tell(f"note: {error}")
    return rc


def keep(server: Server, rc: DreamRc, environ: Mapping[str, str] = os.environ) -> Path:
    """Make `rc` the copy of what the server keeps; where it lies. Raises ConfigError when it cannot be written."""
    place = cache_file(server, environ)
    head = {"server": server.url, "namespace": server.namespace, "at": _now()}
    try:
        _make(place.parent, cache_dir(environ))
        write_private(place, f"{_HEAD}{json.dumps(head)}\n{to_yaml(rc)}", beside=f".{FILE}.{os.getpid()}.part")
    except OSError as error:
        raise ConfigError(
            f"cannot write {place}: {error.strerror or error}; XDG_CACHE_HOME names another place"
        ) from error
    return place


def cached(server: Server, environ: Mapping[str, str] = os.environ) -> tuple[DreamRc, str] | None:
    """The copy of the last time, and when that was; None when there is none of this server and namespace."""
    place = cache_file(server, environ)
    try:
        text = place.read_text("utf-8")
        head = json.loads(text.partition("\n")[0].removeprefix(_HEAD))
        ours = same_server(str(head["server"]), server.url) and head["namespace"] == server.namespace
        return (parse(text, place, "cache"), str(head["at"])) if ours else None
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        ConfigError,
    ):  # torn, or of another version: as if it were gone
        return None


def cache_file(server: Server, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the copy of a server's namespace lies."""
    parts = urlsplit(server.url)
    return cache_dir(environ) / _slug(parts.netloc + parts.path) / _slug(server.namespace) / FILE


def _slug(text: str) -> str:
    """As the name of a directory."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "none"


def _make(directory: Path, root: Path) -> None:
    """Make a directory, and those above it down from `root`, for their owner alone."""
    root.parent.mkdir(parents=True, exist_ok=True)
    for one in (root, *(above for above in reversed(directory.parents) if root in above.parents), directory):
        one.mkdir(mode=0o700, exist_ok=True)
        if one.stat().st_mode & 0o077:
            one.chmod(0o700)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
