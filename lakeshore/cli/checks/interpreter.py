"""The Python that runs this: its version, and what it was built with."""

from __future__ import annotations

import importlib
import platform
import sqlite3
import sys
from collections.abc import Iterator

from lakeshore.plane.database import FLOOR

from .finding import Asked, Finding, failure, ok, warning

_THREADS = {0: "single-threaded", 1: "multi-threaded", 3: "serialized"}


def check(_asked: Asked) -> Iterator[Finding]:
    """Version, TLS, SQLite, compiled modules."""
    yield ok("python", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}")
    try:
        ssl = importlib.import_module("ssl")
    except ImportError as error:
        yield warning(
            "tls", f"this Python has no ssl ({error})", "https servers cannot be reached: install a Python with ssl"
        )
    else:
        yield ok("tls", ssl.OPENSSL_VERSION)
    yield _sqlite()
    yield _msgpack()


def _sqlite() -> Finding:
    version, threads = sqlite3.sqlite_version, sqlite3.threadsafety
    seen = f"{version}, {_THREADS.get(threads, threads)}"
    if sqlite3.sqlite_version_info < FLOOR:
        floor = ".".join(map(str, FLOOR))
        return failure("sqlite", seen, f"{floor} or newer is needed: use a newer Python, or one with a newer SQLite")
    if threads == 0:
        return failure("sqlite", seen, "this SQLite was built without threads: use another Python")
    return ok("sqlite", seen)


def _msgpack() -> Finding:
    packer = importlib.import_module("msgpack").Packer
    here = f"{sys.implementation.cache_tag} on {platform.machine()}"
    if packer.__module__ == "msgpack._cmsgpack":
        return ok("msgpack", f"compiled, for {here}")
    return warning(
        "msgpack",
        f"pure Python: there is no compiled one for {here}",
        "all works, small calls cost more; CPython on Linux (with glibc) or macOS has compiled ones",
    )
