"""What is launched for a queue or pool: its template, as a launch. Pure.

    runners     `runners`, or [`runner`], or ["process"]
    capacity    `capacity`, with `instance_type` and `image_id` in it where it does not name them itself
    cloud tags  `cloudTags`
    scripts     `bootstrap_script`; `setup_scripts`, texts or {script, name, sudo, refresh_capabilities}
    others      `tags`, `keep_alive_s`, `startup`, as a launch has them

The label says who launched it, so that after a restart of the server it is still known whose machine it is.
Reference: get-started/scaling-rules, "Scale-up rules"; S-525…S-527, S-824.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..launching import LaunchSpec
from ..records import WorkerRow
from ..records.elasticity import POOL
from .units import Unit

_OURS: Final = re.compile(r"-auto-[0-9a-f]{6}$")
_SCRIPT: Final = {"script": str, "name": str, "sudo": bool, "refresh_capabilities": bool}
_FOLDED: Final = ("instance_type", "image_id")
_LONGEST_NAME: Final = 30


class CannotLaunch(Exception):
    """The queue does not say enough, or what no launch can be made of; the message says what is missing."""


def name_of(unit: Unit, nonce: str) -> str:
    """What the machine of a launch is called; `nonce` has six hex digits."""
    plain = re.sub(r"[^a-z0-9]+", "-", unit.name.removeprefix(POOL).lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return f"{plain or 'queue'}-auto-{nonce}"


def is_ours(row: WorkerRow) -> bool:
    """Whether the controller launched it."""
    return row.provider is not None and _OURS.search(row.label) is not None


def launch_of(unit: Unit, name: str) -> LaunchSpec:
    """One daemon more. Raises CannotLaunch."""
    provider, template = unit.provider, unit.first.template or {}
    if provider is None:
        raise CannotLaunch(f'queue "{unit.first.name}" has no providerRef / daemonTemplate.provider — cannot launch')
    capacity = _map(template, "capacity")
    folded = {key: said for key in _FOLDED if (said := _text(template, key)) is not None}
    runner = _text(template, "runner")
    return LaunchSpec(
        provider=provider,
        name=name,
        count=1,
        tags=_texts(template, "tags", ()),
        queues=unit.joins,
        runners=_texts(template, "runners", (runner,) if runner is not None else ("process",)),
        keep_alive_s=_seconds(template, "keep_alive_s"),
        capacity={**folded, **capacity},
        bootstrap_script=_text(template, "bootstrap_script"),
        setup_commands=_scripts(template),
        compose_project=None,
        startup=_text(template, "startup"),
        cloud_tags={name: str(said) for name, said in _map(template, "cloudTags").items()},
    )


def _bad(name: str, should: str) -> CannotLaunch:
    return CannotLaunch(f"daemonTemplate.{name} must be {should} — cannot launch")


def _text(template: Mapping[str, Any], name: str) -> str | None:
    said = template.get(name)
    if said is None or (isinstance(said, str) and said):
        return said
    raise _bad(name, "a text")


def _texts(template: Mapping[str, Any], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    said = template.get(name)
    if said is None:
        return default
    if not isinstance(said, list) or not all(isinstance(one, str) and one for one in said):
        raise _bad(name, "an array of texts")
    return tuple(said)


def _map(template: Mapping[str, Any], name: str) -> dict[str, Any]:
    said = template.get(name)
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise _bad(name, "an object")
    return said


def _seconds(template: Mapping[str, Any], name: str) -> int | None:
    said = template.get(name)
    if said is None:
        return None
    if type(said) not in (int, float) or not -1 <= said <= 1e9 or said != int(said):
        raise _bad(name, "a whole number of seconds, or -1")
    return int(said)


def _scripts(template: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    said = template.get("setup_scripts")
    if said is None:
        return ()
    made = tuple({"script": one} if isinstance(one, str) else one for one in said) if isinstance(said, list) else ()
    if not isinstance(said, list) or not all(map(_is_script, made)):
        raise _bad("setup_scripts", "an array of scripts: texts, or {script, name?, sudo?, refresh_capabilities?}")
    return made


def _is_script(said: Any) -> bool:
    if not isinstance(said, dict) or not str(said.get("script") or "").strip():
        return False
    return all(type(value) is _SCRIPT.get(name) for name, value in said.items())
