"""A `DreamRc` as the text of a `.dreamrc`: what is read back from it is the same."""

from __future__ import annotations

from typing import Any

import yaml

from .modes import FIELDS, TAG, DreamRc, Provider, RunConfig

_ALWAYS = ("backend", "runner")
_WIDE = 10_000


def to_yaml(rc: DreamRc) -> str:
    """Its default mode, its root where it says something, its providers and its modes, each with its extras."""
    told: dict[str, Any] = {"default_mode": rc.default_mode}
    if rc.root != RunConfig():
        told |= _mode(rc.root)
    told["providers"] = {name: _Tagged(provider) for name, provider in rc.providers.items()}
    told["modes"] = {name: _mode(mode) for name, mode in rc.modes.items()}
    return yaml.dump(told, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDE)


def plain(rc: DreamRc) -> dict[str, Any]:
    """The same for JSON; a provider's tag is its `kind`."""
    return {
        "source": rc.source,
        "path": None if rc.path is None else str(rc.path),
        "default_mode": rc.default_mode,
        "root": None if rc.root == RunConfig() else _mode(rc.root),
        "providers": {name: {"kind": one.kind, "kwargs": one.kwargs} for name, one in rc.providers.items()},
        "modes": {name: _mode(mode) for name, mode in rc.modes.items()},
    }


class _Tagged:
    def __init__(self, provider: Provider) -> None:
        self.provider = provider


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        """Two modes that share a list are written twice: people read this."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Between double quotes where a character is not to be seen: what breaks a line in one style is lost there."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _text)
_Dumper.add_representer(
    _Tagged, lambda dumper, one: dumper.represent_mapping(TAG + one.provider.kind, one.provider.kwargs)
)


def _mode(mode: RunConfig) -> dict[str, Any]:
    told = {name: getattr(mode, name) for name in FIELDS}
    said = {name: value for name, value in told.items() if name in _ALWAYS or value not in (None, {}, [])}
    return said | mode.extras
