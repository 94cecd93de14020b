"""What a mode may say, and what becomes of what is sent.

Rules: `backend` and `runner` may be any word; one that nothing here knows is warned of. A key that is no field of a
mode is kept below `resources.__extras`, and null takes it away. What a field is not given it keeps, or has by default.
A reference to a secret stays one.
Reference: api/configuration, "Server-stored modes"; S-182…S-186, S-770.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..config.modes import BACKENDS, RUNNERS
from ..config.served import EXTRAS
from .http import HttpError
from .references import MARKER
from .structure import bad_field

Config = dict[str, Any]
DEFAULTS: Final[Mapping[str, Any]] = {
    "backend": "fabric",
    "runner": "process",
    "image": None,
    "tags": [],
    "resources": {},
    "env": {},
    "timeout_s": None,
    "provider": None,
}
SHOWN: Final = frozenset({"name", "namespace", "revision", "createdAt", "updatedAt", "warnings"})
"""What an answer has beside the config: who sends it back means nothing by it."""
_LONGEST: Final = 200
_MOST_TAGS: Final = 100


def assembled(before: Config | None, sent: Mapping[str, Any]) -> Config:
    """What a mode says once `sent` was put into what it said `before`; `before` is left as it is. HttpError 422."""
    config = dict(DEFAULTS if before is None else before)
    resources = dict(config["resources"])
    extras = dict(resources.pop(EXTRAS, {}))
    if "resources" in sent:
        resources = dict(_map(sent["resources"] or {}, "resources"))
        if EXTRAS in resources:
            extras = dict(_map(resources.pop(EXTRAS) or {}, f"resources.{EXTRAS}"))
            for key in extras:
                if key in DEFAULTS or key in SHOWN:
                    raise bad_field(f"resources.{EXTRAS}.{key}", f"is a key of the mode itself: send it as {key}")
    if MARKER in sent:
        raise bad_field(MARKER, "stands for a value within a mode, not for a whole one", status=400)
    for key, value in sent.items():
        if key == "resources" or key in SHOWN:
            continue
        if key in _CHECKS:
            config[key] = DEFAULTS[key] if value is None else _CHECKS[key](value, key)
        elif value is None:
            extras.pop(key, None)
        else:
            extras[key] = value
    if extras.get("server") is not None:
        _word(extras["server"], "server")
    config["resources"] = {**resources, EXTRAS: extras} if extras else resources
    return config


def warnings_of(config: Config, *, has_provider: Callable[[str], bool]) -> list[str]:
    """What is probably a mistake, though it is stored."""
    found = []
    for field, known in (("backend", BACKENDS), ("runner", (*RUNNERS, "subprocess"))):
        if config[field] not in known:
            found.append(f"{field}: {config[field]!r} is none of {', '.join(known)}; it is stored as it is")
    provider = config["provider"]
    if provider is not None and not has_provider(provider):
        found.append(f"provider: there is no provider {provider!r} yet")
    return found


def _word(value: Any, field: str) -> str:
    if type(value) is not str or not 0 < len(value) <= _LONGEST or not value.isprintable():
        raise bad_field(field, f"must be a string of 1 to {_LONGEST} printable characters")
    return value


def _tags(value: Any, field: str) -> list[str]:
    if type(value) is not list or len(value) > _MOST_TAGS:
        raise bad_field(field, f"must be an array of at most {_MOST_TAGS} strings")
    return [_word(tag, f"{field}[{index}]") for index, tag in enumerate(value)]


def _map(value: Any, field: str) -> dict[str, Any]:
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise bad_field(field, "must be a map with keys of text")
    return value


def _environment(value: Any, field: str) -> dict[str, Any]:
    return {name: _variable(said, f"{field}.{name}") for name, said in _map(value, field).items()}


def _variable(value: Any, field: str) -> Any:
    """Text; a number or a truth value as a file would write it; a reference to a secret as it is."""
    if type(value) is dict and MARKER in value:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, float):
        return str(value)
    if type(value) is not str or "\0" in value:
        raise bad_field(field, "must be a string")
    return value


def _seconds(value: Any, field: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
        raise bad_field(field, "must be a number of seconds above 0")
    seconds: float = value
    return seconds


_CHECKS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "backend": _word,
    "runner": _word,
    "image": _word,
    "tags": _tags,
    "env": _environment,
    "timeout_s": _seconds,
    "provider": _word,
}


def changed_meanwhile(name: str, revision: int) -> HttpError:
    """Somebody else was faster."""
    return HttpError(
        409,
        f"the mode {name!r} has changed meanwhile",
        field="revision",
        hint="read it again, and make the change to what it says now",
        revision=revision,
    )
