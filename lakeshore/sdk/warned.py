"""What a server warns of at a submit, passed on: each text once in a process, at the line that submitted.

Rule: a warning never undoes a submit. Where warnings are errors it is raised after the call is on the server's disk.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from .forks import leaf

_told: set[str] = set()
_untold: list[str] = []
_MOST = 1000
_lock = leaf()


class SubmitWarning(UserWarning):
    """The call was taken, and something about it is probably a mistake."""


def pass_on(answer: Mapping[str, Any]) -> None:
    """Warn of what the answer to a submit warns of, and of what was noticed before it."""
    texts = answer.get("warnings") or ()
    if _untold:
        texts = (*_taken(), *texts)
    for text in texts:
        with _lock:
            if text in _told or len(_told) >= _MOST:
                continue
            _told.add(text)
        warnings.warn(str(text), SubmitWarning, stacklevel=calls_of_ours())


def later(text: str) -> None:
    """Warn of this when the next submit is on the server's disk."""
    _untold.append(text)


def _taken() -> list[str]:
    with _lock:
        texts = _untold[:]
        _untold.clear()
    return texts


def calls_of_ours() -> int:
    """How many frames lie between a warning and the caller's own code, however the call was written."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("lakeshore.sdk"):
        frame, depth = frame.f_back, depth + 1
    return depth
