"""What a body's exception looks like on the wire: `{type, message, traceback}`, whatever the exception is made of.

The traceback begins at the user's first frame; a refusal of the worker's own has none, for its sentence says it all,
unless code of the user's was on the way. Every text is bounded, valid Unicode, and made without trusting the
exception: a `__str__` that raises is named, not followed.
"""

from __future__ import annotations

import os
import traceback
from types import TracebackType
from typing import Any

from .brief import brief
from .errors import LakeshoreError

MESSAGE_LIMIT = 32 * 1024
TRACEBACK_LIMIT = 64 * 1024
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LOOP = os.sep + "asyncio" + os.sep


def describe(error: BaseException) -> dict[str, Any]:
    """The error map of an exception."""
    found = {"type": _clean(_name_of(error)), "message": message_of(error)}
    trace = _trace_of(error)
    if trace:
        found["traceback"] = trace
    return found


def message_of(error: BaseException) -> str:
    """The exception's text, at most 32 KiB of it."""
    if isinstance(error, SystemExit):
        return f"the body called sys.exit({_text(error.code)})"
    try:
        text = str(error)
    except BaseException as broken:  # noqa: BLE001  # a message is wanted, not the reason why there is none
        return f"(its message cannot be shown: __str__ raised {_name_of(broken)})"
    return _short(_clean(text), MESSAGE_LIMIT)


def _name_of(error: BaseException) -> str:
    return str(type.__dict__["__name__"].__get__(type(error)))  # a metaclass may say something else, or raise


def _text(code: object) -> str:
    return "" if code is None else _short(_clean(repr(code) if isinstance(code, int | str) else "..."), MESSAGE_LIMIT)


def _trace_of(error: BaseException) -> str:
    try:
        if isinstance(error, LakeshoreError):
            brief(error)
        start = _first_of_the_user(error.__traceback__)
        shown = traceback.TracebackException(type(error), error, start, compact=True)
        if start is None and shown.__cause__ is None and (shown.__context__ is None or error.__suppress_context__):
            return ""  # nothing of the user's ran
        return _short(_clean("".join(shown.format())), TRACEBACK_LIMIT)
    except BaseException as broken:  # noqa: BLE001  # an exception may lie about itself in every attribute
        return f"(no traceback: {_name_of(broken)} while it was made)"


def _first_of_the_user(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_OURS) and _LOOP not in name:
            return trace
        trace = trace.tb_next
    return None


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _short(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - limit} characters left out ...\n{text[-half:]}"
