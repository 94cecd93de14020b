"""What a server may have answered instead of what is read from it: another program, a proxy, another version.

Rules: a list is where it should be and holds objects, and a next page is another one; else it is `NotLakeshore`, which
names the address. What is read of a row is not checked before: whoever reads it stumbles over what is wrong, with one
of `STUMBLES`, and whoever tells people of errors asks `misread` for the sentence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .errors import NotLakeshore

STUMBLES = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)
"""What reading raises where a key is missing, or a value is of another kind."""
HINT = "is that the address of a control plane, and of this version? `lakeshore doctor` looks"


def not_ours(where: str, what: str) -> NotLakeshore:
    """`where` is what was asked; `what` completes '… answered'."""
    return NotLakeshore(f"{where} answered {what}", status=200, hint=HINT)


def rows_in(answer: Mapping[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    """The list of objects under `name`. NotLakeshore where it is none."""
    found = answer.get(name)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise not_ours(where, f"without a list of {name}")
    return found


def page_after(answer: Mapping[str, Any], place: str | int | None, where: str) -> str | int | None:
    """Where the next page begins, None for no more. NotLakeshore for what is no place, or the same one again."""
    found = answer.get("next")
    if found is not None and (type(found) not in (str, int) or found == place):
        raise not_ours(where, "with a next page that is none")
    return found


def misread(error: Exception, where: str) -> NotLakeshore:
    """What is said of one of `STUMBLES` over what `where` had answered. It names the line, for a report."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "lakeshore" in code.co_filename:
            line = f"{os.path.basename(code.co_filename)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return not_ours(where, f"what cannot be read: {type(error).__name__}: {error!s:.200} ({line})")
