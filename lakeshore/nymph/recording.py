"""What happened to a daemon, as JSON lines, and the same happening again.

    {"settings": {…}}                                        the first line
    {"now": 12.5, "event": "PollAnswered", …its fields, "does": [{"do": "Poll", …}, …]}

`does` are the instructions that followed, without the lines for the log. Bytes are {"$b64": …}. What belongs to the
user (arguments, results, commands, output, environments, URLs) is hidden: {"$hidden": size}, and text as "<hidden>".
The core looks into none of it, so a recorded run replays all the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from .core.core import Core
from .core.events import EVENTS, Event
from .core.instructions import Instruction, Say
from .core.settings import Settings

HIDDEN: Final = frozenset(
    {
        *("args_blob", "payload_inline", "payload_ref", "result_blob", "result_ref", "result_inline", "run_config"),
        *("command", "script", "stdin", "env", "log", "stdout", "stderr", "stdout_tail", "tail", "error"),
        *("url", "session_token", "config"),
    }
)
"""Names of fields whose values are not written down, however deep."""
_TEXT: Final = "<hidden>"
_EVENTS: Final = {kind.__name__: kind for kind in EVENTS}


class Differs(AssertionError):
    """A replay gave other instructions than the run had."""

    def __init__(self, line: int, event: str, recorded: Any, replayed: Any) -> None:
        super().__init__(f"line {line}, {event}: recorded {recorded!r}, replayed {replayed!r}")
        self.line = line


class Hidden(bytes):
    """Bytes that were not written down; only how many they were is known."""

    size: int

    def __new__(cls, size: int) -> Hidden:
        made = super().__new__(cls, _TEXT.encode())
        made.size = size
        return made

    def __len__(self) -> int:
        return self.size


class Recorder:
    """A core whose run is written down: `write` takes one line, its end included. `handle` is the core's."""

    def __init__(self, settings: Settings, write: Callable[[str], object]) -> None:
        self.core = Core(settings)
        self._write = write
        write(_line({"settings": _map_of(settings)}))

    def handle(self, event: Event, now: float) -> tuple[Instruction, ...]:
        """What follows from an event; it is written down before anybody acts on it."""
        instructions = self.core.handle(event, now)
        told = {"now": now, "event": type(event).__name__, **_map_of(event), "does": _does(instructions)}
        self._write(_line(told))
        return instructions


def replay(lines: Iterable[str]) -> Iterator[tuple[Event, float, tuple[Instruction, ...]]]:
    """Let a recorded run happen again. Raises Differs where other instructions follow than followed then."""
    numbered = ((number, json.loads(line)) for number, line in enumerate(lines, 1) if line.strip())
    _, head = next(numbered)
    core = Core(Settings(**head["settings"]))
    for number, said in numbered:
        now, name, recorded = said.pop("now"), said.pop("event"), said.pop("does")
        event = _EVENTS[name](**{field: _shown(value) for field, value in said.items()})
        instructions = core.handle(event, now)
        replayed = json.loads(json.dumps(_does(instructions)))
        if replayed != recorded:
            raise Differs(number, name, recorded, replayed)
        yield event, now, instructions


def _does(instructions: Iterable[Instruction]) -> list[dict[str, Any]]:
    return [{"do": type(one).__name__, **_map_of(one)} for one in instructions if not isinstance(one, Say)]


def _map_of(one: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(one, field.name), field.name in HIDDEN) for field in fields(one)}


def _plain(value: Any, hide: bool) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, hide or key in HIDDEN) for key, inner in value.items()}
    if isinstance(value, Hidden):
        return {"$hidden": value.size}
    if isinstance(value, bytes):
        return {"$hidden": len(value)} if hide and value else {"$b64": base64.b64encode(value).decode()}
    if isinstance(value, str):
        return _TEXT if hide and value else value
    if isinstance(value, (list, tuple)):
        return [_plain(inner, hide) for inner in value]
    return value


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$hidden"}:
            return Hidden(value["$hidden"])
        if value.keys() == {"$b64"}:
            return base64.b64decode(value["$b64"])
        return {key: _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


def _line(told: dict[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")) + "\n"
