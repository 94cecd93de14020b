"""Bodies that are nearly right: one value of the wrong type or size, a key gone, bytes cut or turned."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack

MSGPACK = "application/x-msgpack"
JSON = "application/json"

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "../..",
    "a\0b",
    "\N{SNOWMAN}" * 70,
    "x" * 70_000,
    b"",
    b"\xc1",
    b"\xff" * 70_000,
    [],
    [[]],
    [None] * 3,
    ["x", 1, True],
    {},
    {"x": 1},
    {"x": {"x": [b"x", None]}},
    json.loads("[" * 200 + "]" * 200),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A body on the wire. `path` is what was changed, empty for the bytes themselves; `what` tells it to a person."""

    raw: bytes
    encoding: str
    path: tuple[Any, ...]
    what: str


def packed(body: Any, encoding: str) -> bytes:
    """A body as it travels; in JSON bytes are base64, and NaN is written all the same."""
    if encoding == MSGPACK:
        return bytes(msgpack.packb(body))
    return json.dumps(body, default=lambda data: base64.b64encode(data).decode()).encode()


def mutants(body: dict[str, Any], encoding: str, rng: random.Random, count: int) -> Iterator[Mutant]:
    """`count` of them: half changed values, a quarter missing keys and odd keys, a quarter changed bytes."""
    paths = list(_paths(body))
    whole = packed(body, encoding)
    for number in range(count):
        kind = number % 8
        if kind < 5:
            path, value = rng.choice(paths), rng.choice(VALUES)
            changed = _with(body, path, value)
            yield Mutant(packed(changed, encoding), encoding, path, f"{path} = {value!r:.60}")
        elif kind == 5:
            path = rng.choice(paths)
            yield Mutant(packed(_without(body, path), encoding), encoding, path, f"no {path}")
        elif kind == 6:
            at = rng.randrange(len(whole))
            yield Mutant(whole[:at], encoding, (), f"cut at {at}")
        else:
            at, turned = rng.randrange(len(whole)), bytearray(whole)
            turned[at] ^= 1 << rng.randrange(8)
            yield Mutant(bytes(turned), encoding, (), f"byte {at} turned")


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from _paths(part, (*at, key))


def _with(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(body)
    _holder(changed, path)[path[-1]] = value
    return changed


def _without(body: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(body)
    del _holder(changed, path)[path[-1]]
    return changed


def _holder(body: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        body = body[key]
    return body
