"""What the options of a submit may be. Each mistake is named by the option, before anything is packed or sent."""

from __future__ import annotations

import os
from typing import Any


def check_key(key: object, option: str) -> None:
    """TypeError unless it is a str or None."""
    if key is not None and not isinstance(key, str):
        raise TypeError(f"{option} takes a str, got {type(key).__name__}: {option}=str(…) makes one of it")


def check_number(number: Any, option: str) -> None:
    """TypeError unless it is a number, numpy's too, or None."""
    if number is None or type(number) is float:
        return
    try:
        float(number)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{option} takes a number, got {number!r}") from None


def check_plane(plane: object, option: str) -> None:
    """TypeError for a URL or a path in a plane's place."""
    if isinstance(plane, str | os.PathLike):
        name = os.fspath(plane)
        made = "HttpDispatch" if str(name).startswith(("http://", "https://")) else "Dispatch"
        raise TypeError(f"{option} takes a plane, got {name!r}: write {option}=dls.{made}({name!r})")
