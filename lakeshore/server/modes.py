"""What a mode may say, and what becomes of what is sent.

Rules: `backend` and `runner` may be any word; one that nothing here knows is warned of. A key that is no field of a
mode is kept below `resources.__extras`, and null takes it away. What a field is not given it keeps, or has by default.
A reference to a secret stays one.
Reference: api/configuration, "Server-stored modes"; S-182…S-186, S-770.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias, TypedDict

from ..config.modes import BACKENDS, RUNNERS
from ..config.served import EXTRAS
from ..wire.run_configs import BadAsk, needs_of
from .http import HttpError
from .primitives import Wrong
from .references import MARKER
from .shapes import above, checked, longest, printable
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


def _variable(value: Any) -> Any:
    """Text; a number or a truth value as a file would write it; a reference to a secret as it is."""
    if type(value) is dict and MARKER in value:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, float):
        return str(value)
    if type(value) is not str or "\0" in value:
        raise Wrong("must be a string")
    return value


_Word: TypeAlias = Annotated[str, printable(1, _LONGEST)]
_Variable: TypeAlias = Annotated[Any, checked(_variable, type=["string", "number", "boolean", "object"])]


class ModeFields(TypedDict, total=False):
    """What a mode may say; null is what it has by default."""

    backend: _Word | None
    runner: _Word | None
    image: _Word | None
    tags: Annotated[list[_Word], longest(_MOST_TAGS)] | None
    resources: dict[str, Any] | None
    env: dict[str, _Variable] | None
    timeout_s: Annotated[float, above(0, 1e9, "a number of seconds")] | None
    provider: _Word | None
    server: _Word | None


def assembled(before: Config | None, sent: Mapping[str, Any]) -> Config:
    """What a mode says once `sent`, which `ModeFields` has read, was put into what it said `before`. HttpError 422."""
    config = dict(DEFAULTS if before is None else before)
    resources = dict(config["resources"])
    extras = dict(resources.pop(EXTRAS, {}))
    if "resources" in sent:
        resources = dict(sent["resources"] or {})
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
        if key in DEFAULTS:
            config[key] = DEFAULTS[key] if value is None else value
        elif value is None:
            extras.pop(key, None)
        else:
            extras[key] = value
    try:
        needs_of({"match": extras.get("match")}, "")
    except BadAsk as error:
        raise bad_field(error.field.removeprefix("."), error.problem) from None
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


def _map(value: Any, field: str) -> dict[str, Any]:
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise bad_field(field, "must be a map with keys of text")
    return value


def changed_meanwhile(name: str, revision: int) -> HttpError:
    """Somebody else was faster."""
    return HttpError(
        409,
        f"the mode {name!r} has changed meanwhile",
        field="revision",
        hint="read it again, and make the change to what it says now",
        revision=revision,
    )
