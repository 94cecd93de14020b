"""The commands of a poll's answer, read: what is not understood is skipped (nymph/protocol, "Command kinds").

They are followed in the order of `ORDER`, which is not that of the answer: `hibernate` is the last, so that it discards
nothing. A kind that is known with a body that does not fit is `Unknown` like one that is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from lakeshore.wire.values import value

from .. import told

Map: TypeAlias = Mapping[str, Any]

ORDER: Final = (
    *("cancel", "setup", "exec", "ota_update", "reset_backoff", "rotate_key", "run"),
    "hibernate",
)
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


@value
class Command:
    """One, understood. `body` has at least the fields that its kind needs."""

    id: str
    kind: str
    body: Map


@value
class Unknown:
    """One to skip, and why."""

    kind: str
    why: str


def read(commands: Any) -> tuple[list[Command], list[Unknown]]:
    """The commands of an answer in the order in which they are followed, and those to skip."""
    understood: list[Command] = []
    skipped: list[Unknown] = []
    for raw in told.items(commands):
        one = _read_one(raw)
        if isinstance(one, Command):
            understood.append(one)
        else:
            skipped.append(one)
    understood.sort(key=lambda command: ORDER.index(command.kind))  # stable: of one kind, as they came
    return understood, skipped


def _read_one(raw: Any) -> Command | Unknown:
    if not isinstance(raw, Mapping) or type(raw.get("kind")) is not str:
        return Unknown(kind="?", why="a command is a map with a kind")
    kind, body = raw["kind"], raw.get("body")
    fits = _FITS.get(kind)
    if fits is None:
        return Unknown(kind=kind, why="this daemon does not know it")
    if not isinstance(body, Mapping):
        if kind not in _BODILESS:
            return Unknown(kind=kind, why="its body is not a map")
        body = {}
    missing = fits(body)
    if missing:
        return Unknown(kind=kind, why=f"its body needs {missing}")
    return Command(id=str(raw.get("id") or ""), kind=kind, body=body)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _pair(body: Map) -> str | None:
    if _text(body.get("invocation_id")) and type(body.get("claim")) is int:
        return None
    return "invocation_id (a string) and claim (an integer)"


def _cancel(body: Map) -> str | None:
    return None if _text(body.get("exec_id")) else _pair(body)


def _exec(body: Map) -> str | None:
    if not _text(body.get("exec_id")):
        return "exec_id (a string)"
    inside = any(body.get(name) is not None for name in ("payload_inline", "payload_ref"))
    return None if _text(body.get("command")) or inside else "command (a string)"


def _setup(body: Map) -> str | None:
    return None if _text(body.get("script")) else "script (a string)"


def _update(body: Map) -> str | None:
    if not all(_text(body.get(name)) for name in ("version", "url", "sha256")):
        return "version, url and sha256 (strings)"
    return None if _SHA256.fullmatch(body["sha256"]) else "a sha256 of exactly 64 hex digits"


def _hibernate(body: Map) -> str | None:
    return None if told.number(body.get("until_epoch_s")) is not None else "until_epoch_s (a number)"


def _anything(_body: Map) -> str | None:
    return None


_FITS: Final[Mapping[str, Callable[[Map], str | None]]] = {
    "cancel": _cancel,
    "setup": _setup,
    "exec": _exec,
    "ota_update": _update,
    "reset_backoff": _anything,
    "rotate_key": _anything,
    "run": _pair,
    "hibernate": _hibernate,
}
_BODILESS: Final = frozenset({"reset_backoff", "rotate_key"})
