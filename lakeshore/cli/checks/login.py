"""The saved login."""

from __future__ import annotations

from collections.abc import Iterator

from lakeshore.config.auth import read_saved_login
from lakeshore.config.errors import ConfigError
from lakeshore.config.paths import auth_file

from .finding import Asked, Finding, failure, ok


def check(asked: Asked) -> Iterator[Finding]:
    """Whether it can be used, and what it is for."""
    try:
        saved = read_saved_login(asked.environ)
    except ConfigError as error:
        yield failure("login", str(error), "or: lakeshore auth logout, and log in again")
        return
    if saved is None:
        yield ok("login", f"none is saved ({auth_file(asked.environ)})")
    else:
        with_token = "with a token" if saved.token else "without a token"
        seen = f"{saved.server}, namespace {saved.namespace}, {with_token} ({saved.path})"
        if not asked.environ.get("LAKESHORE_URL"):
            seen += "; commands use it, your programs' calls want LAKESHORE_URL"
        yield ok("login", seen)
