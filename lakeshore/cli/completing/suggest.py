"""`lakeshore completion __suggest <kind> [--url U] [--namespace N]`: names, one per line, for the shells' scripts.

Rules: it never says anything, on stderr least of all; it is answered without click. What a server knows is asked for
with one GET, within `LIMIT_S`, and kept for `FRESH_S` in `completion-<kind>.txt` in the cache directory. Beside it
`completion-<kind>.key` says for which server and namespace, and for which file exactly: neither two servers nor two
processes mix their names. A name with a control character is no candidate.
Reference: cli/completion.md, "Dynamic values".
"""

from __future__ import annotations

import os
import sys
import time

from .kinds import BY_ADMIN, GONE, LOCAL, SERVED, STATIC

TYPE_CHECKING = False  # `typing` costs more than a cached answer
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ..choice import Choice

FRESH_S = 30.0
CONNECT_S = 0.15
LIMIT_S = 0.6
"""For everything: the look-up of a name in the DNS is not limited by any socket's timeout."""


def main(arguments: Sequence[str]) -> int:
    """Print the names of the kind `arguments[0]`; 0, whatever happened."""
    before, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: SIM115  (contextlib costs more than that)
    try:
        names = _names(list(arguments))
        # At once and as bytes: a name may be in no locale's encoding.
        sys.stdout.buffer.write("".join(f"{name}\n" for name in names if name.isprintable() and name).encode())
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  (a Tab has no place for an error)
        return 0
    finally:
        sys.stderr.close()
        sys.stderr = before
    return 0


def _names(arguments: list[str]) -> Iterable[str]:
    kind = arguments.pop(0) if arguments else ""
    if kind in STATIC:
        return STATIC[kind]
    if kind in LOCAL:
        from . import local  # wall: files are read for these kinds alone

        names: list[str] = getattr(local, LOCAL[kind])()
        return names
    if kind in SERVED:
        return _served(kind, _value(arguments, "--url"), _value(arguments, "--namespace"))
    return ()


def _value(arguments: list[str], flag: str) -> str | None:
    where = arguments.index(flag) + 1 if flag in arguments else len(arguments)
    return (arguments[where] or None) if where < len(arguments) else None


def _served(kind: str, url: str | None, namespace: str | None) -> list[str]:
    from lakeshore.config.paths import auth_file, cache_dir  # wall: the other kinds have no cache

    folder = str(cache_dir())
    key = "\n".join(
        (
            url or os.environ.get("LAKESHORE_URL", ""),
            namespace or os.environ.get("LAKESHORE_NAMESPACE", ""),
            os.environ.get("LAKESHORE_ANON", ""),
            _identity(str(auth_file())),
        )
    )
    kept = _kept(folder, kind, key)
    if kept is not None:
        return kept
    found = _asked(kind, url, namespace)
    if found is None:
        return []
    try:
        _keep(folder, kind, key, found)
    except OSError:  # a full or read-only disk: then the next Tab asks again
        return found
    return found


# --- the cache


def _identity(path: str) -> str:
    """A file, in this state; the saved login is not parsed to find that nothing changed."""
    try:
        found = os.stat(path)
    except OSError:
        return path
    return f"{path} {found.st_ino} {found.st_mtime_ns} {found.st_size}"


def _kept(folder: str, kind: str, key: str) -> list[str] | None:
    path = f"{folder}/completion-{kind}.txt"
    try:
        age = time.time() - os.stat(path).st_mtime
        if not 0 <= age < FRESH_S or _read(f"{folder}/completion-{kind}.key") != f"{key}\n{_identity(path)}":
            return None
        return _read(path).splitlines()
    except OSError:
        return None


def _keep(folder: str, kind: str, key: str, names: list[str]) -> None:
    os.makedirs(folder, 0o700, exist_ok=True)
    path = f"{folder}/completion-{kind}.txt"
    fresh = _write(path, "".join(f"{name}\n" for name in names))
    identity = _identity(fresh).removeprefix(fresh)
    os.replace(_write(f"{folder}/completion-{kind}.key", f"{key}\n{path}{identity}"), f"{folder}/completion-{kind}.key")
    os.replace(fresh, path)


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, encoding="utf-8") as opened:
        return opened.read()


def _write(path: str, text: str) -> str:
    """A file beside `path` with that text, this user's alone; its name."""
    fresh = f"{path}.{os.getpid()}"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as opened:
        opened.write(text)
    return fresh


# --- the server


def _asked(kind: str, url: str | None, namespace: str | None) -> list[str] | None:
    """What the server says, None when it says nothing in time."""
    import threading  # wall: a cached answer needs none of this
    from urllib.parse import quote  # wall: as above

    from lakeshore.client.api import ApiClient  # wall: as above

    choice = _choice(kind, url, namespace)
    server = ApiClient(
        choice.url, namespace=choice.namespace, token=choice.token, timeout=LIMIT_S, connect_timeout=CONNECT_S
    )
    route, items, *names = SERVED[kind]
    got: list[Any] = []

    def ask() -> None:
        try:
            got.append(server.call("GET", route.replace("{ns}", quote(choice.namespace, safe=""))))
        except Exception:  # noqa: BLE001  (away, too old, not allowed: the same to a Tab)
            return
        finally:
            server.close()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    if not got:
        return None
    rows = got[0].get(items, ()) if isinstance(got[0], dict) else got[0]
    found = (row.get(name) for name in names for row in rows if not any(row.get(gone) for gone in GONE))
    return [name for name in dict.fromkeys(found) if isinstance(name, str) and name and name.isprintable()]


def _choice(kind: str, url: str | None, namespace: str | None) -> Choice:
    from ..choice import choose, choose_admin  # wall: a cached answer needs none of this
    from ..failures import Failure  # wall: as above

    if kind in BY_ADMIN:
        try:
            return choose_admin(url=url, namespace=namespace)
        except Failure:
            return choose(url=url, namespace=namespace)
    return choose(url=url, namespace=namespace)
