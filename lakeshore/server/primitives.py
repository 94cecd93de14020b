"""Single values of a body, judged without coercion: a string is not a number, a number is not a string, true is not 1.

`structure.py` reads the wire's dataclasses with them, `shapes.py` the resources' TypedDicts.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

import msgpack

_LARGEST_INT: Final = 2**63 - 1


class Wrong(ValueError):
    """The message is for the caller. `below` is where in the value it is, `status` another than the route's."""

    def __init__(self, why: str, *, status: int | None = None, below: str = "", hint: str | None = None) -> None:
        super().__init__(why)
        self.status, self.below, self.hint = status, below, hint


def a_str(value: Any, _: Any = None) -> str:
    """Text that UTF-8 has."""
    if type(value) is not str:
        raise Wrong(f"must be a string (got {name_of(value)})")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Wrong("must be Unicode text (got a lone surrogate)") from None
    return value


def an_int(value: Any, _: Any = None) -> int:
    """An integer of 64 bits."""
    if type(value) is not int:
        raise Wrong(f"must be an integer (got {name_of(value)})")
    if not -_LARGEST_INT <= value <= _LARGEST_INT:
        raise Wrong("must fit into 64 bits")
    return value


def a_float(value: Any, _: Any = None) -> float:
    """A finite number."""
    if type(value) is not float and type(value) is not int:
        raise Wrong(f"must be a number (got {name_of(value)})")
    if not abs(value) <= 1e18:  # nor is NaN
        raise Wrong("must be a finite number")
    return float(value)


def a_bool(value: Any, _: Any = None) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise Wrong(f"must be true or false (got {name_of(value)})")
    return value


def some_bytes(value: Any, _: Any = None) -> bytes:
    """Bytes, as msgpack has them."""
    if type(value) is not bytes:
        raise Wrong(f"must be bytes (got {name_of(value)})")
    return value


def some_base64(value: Any, _: Any = None) -> bytes:
    """Bytes, as JSON has them."""
    if type(value) is not str:
        raise Wrong(f"must be a base64 string (got {name_of(value)})")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Wrong("is not base64") from None


def a_map(value: Any, _: Any = None) -> dict[str, Any]:
    """A map with keys of text."""
    if type(value) is not dict:
        raise Wrong(f"must be a map (got {name_of(value)})")
    for key in value:
        if type(key) is not str:
            raise Wrong(f"must have string keys (got {name_of(key)})")
    return value


def a_str_map(value: Any, _: Any = None) -> dict[str, str]:
    """A map of text to text."""
    return {a_str(key): a_str(inner) for key, inner in a_map(value).items()}


def text_or_number(value: Any, _: Any = None) -> str | float | None:
    """Text, a number, or nothing."""
    return value if value is None else a_str(value) if type(value) is str else a_float(value)


def size_as_json(value: Any) -> int:
    """How many bytes a tree has as JSON. Wrong for one that an answer could not carry, in JSON or in msgpack."""
    try:
        msgpack.packb(value)
        return len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Wrong(f"must be what JSON and msgpack can say: {error}"[:200]) from error


_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    bytes: "bytes",
    list: "an array",
    dict: "a map",
}


def name_of(value: Any) -> str:
    """What a value is called in a refusal."""
    return _NAMES.get(type(value), type(value).__name__)
