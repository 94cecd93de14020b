"""Who waits for a call that no worker will take hears why after a few seconds, not only when the time is over.

Rules: the server says why, in the answer to a wait that brought nothing. It is a line of the log (on stderr where
nobody set logging up), each text once in a process. That others are before it is no news: the end of the wait tells it.
Reference: python-sdk/dispatch.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from .forks import leaf

log = logging.getLogger(__name__)

SAID_AFTER_S = 5.0
"""So long is the first poll of a wait."""
_NEWS = frozenset(("no_worker", "away", "no_match", "no_runner", "paused", "archived"))
_MOST = 1000
_told: set[str] = set()
_lock = leaf()


def tell(answer: Mapping[str, Any]) -> None:
    """Pass on why it was waited in vain, if the answer says so."""
    why = answer.get("why")
    if not why or why.get("reason") not in _NEWS:
        return
    text = str(why["message"])
    with _lock:
        if text in _told or len(_told) >= _MOST:
            return
        _told.add(text)
    log.warning("lakeshore: waiting: %s", text)


def hint(answer: Mapping[str, Any]) -> str | None:
    """Why it waits, for the error that ends the wait."""
    why = answer.get("why")
    return f"{why['message']}. The id stays valid" if why and why.get("reason") in _NEWS else None
