"""What a control plane keeps of modes and providers, as a `DreamRc`.

Rules: a mode called `default` is the root. Providers with a launcher that this version does not know are left out.
`backend` and `runner` may be any word: the server keeps what it was given.
Reference: api/configuration.md, "Resolution order", "Server-stored modes".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .modes import DEFAULT, FIELDS, KNOWN_PROVIDER_TAGS, LOCAL, DreamRc, Provider, RunConfig, Source

EXTRAS = "__extras"
"""The key of `resources` below which a server keeps what it does not know."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """What a server answered: rows of modes and of providers."""

    modes: tuple[Row, ...] = ()
    providers: tuple[Row, ...] = ()


def flat(row: Row) -> dict[str, Any]:
    """A server's mode as a file has it: its fields that say something, and what it does not know beside them."""
    resources = dict(_map(row.get("resources")))
    extras = _map(resources.pop(EXTRAS, None))
    found = {name: row.get(name) for name in FIELDS} | {"resources": resources}
    return {name: value for name, value in found.items() if value not in (None, {}, [])} | dict(extras)


def mode_of(row: Row) -> RunConfig:
    """A server's mode."""
    found = flat(row)
    fields = {name: found.pop(name) for name in FIELDS if name in found}
    return RunConfig(**fields, extras=found, written=frozenset(fields))


def composed(pulled: Pulled, *, path: Path | None = None, source: Source = "server") -> DreamRc:
    """Both together."""
    modes = {str(row["name"]): mode_of(row) for row in pulled.modes if isinstance(row.get("name"), str)}
    root = modes.pop(DEFAULT, RunConfig())
    modes.setdefault(LOCAL, RunConfig())
    providers = {one.name: one for one in _providers(pulled.providers)}
    return DreamRc(modes=modes, providers=providers, root=root, path=path, source=source)


def _providers(rows: Iterable[Row]) -> Iterable[Provider]:
    for row in rows:
        name, launcher = row.get("name"), row.get("launcher")
        if isinstance(name, str) and launcher in KNOWN_PROVIDER_TAGS and not row.get("deletedAt"):
            one = Provider(name=name, kind=str(launcher), kwargs=dict(_map(row.get("kwargs"))))
            told = row.get("dispatch")
            if told in ("direct", "daemon") and told != one.dispatch:
                one = Provider(name=name, kind=one.kind, kwargs={**one.kwargs, "dispatch": told})
            yield one


def _map(value: object) -> Row:
    return value if isinstance(value, Mapping) else {}
