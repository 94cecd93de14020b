"""Why a wait on this machine's own plane may be in vain (DECISIONS: a saved login does not select a plane)."""

from __future__ import annotations

import os

from lakeshore.config.errors import ConfigError


def unused_login() -> str | None:
    """A sentence for who logged in somewhere and waits at the local file instead."""
    if os.environ.get("LAKESHORE_URL"):
        return None
    from lakeshore.config.auth import read_saved_login  # wall: only who waited in vain pays

    try:
        saved = read_saved_login()
    except ConfigError:
        return None
    if saved is None:
        return None
    return (
        f"this is the local plane; the login saved for {saved.server} is used only with LAKESHORE_URL={saved.server} "
        "(and LAKESHORE_CLIENT_TOKEN)"
    )
