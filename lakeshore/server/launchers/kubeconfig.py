"""A kubectl configuration that came from somebody, made harmless: what it says of servers, users and contexts, inline.

Such a file may name programs to run and files to read (`exec`, `tokenFile`, `client-key`), which kubectl would do with
this server's rights. So it is read here, and written anew with the keys that are known to do neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

_MOST: Final = 256 * 1024
_KEPT: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "clusters": ("cluster", ("server", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name")),
    "users": ("user", ("token", "client-certificate-data", "client-key-data", "username", "password")),
    "contexts": ("context", ("cluster", "user", "namespace")),
}
_BESIDES: Final = ("extensions", "disable-compression")


class Unusable(Exception):
    """`str()` says what of it cannot be used."""


def harmless(text: str) -> str:
    """The same as JSON, which kubectl reads as well. Raises Unusable."""
    if len(text) > _MOST:
        raise Unusable(f"has more than {_MOST // 1024} KiB")
    try:
        whole = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise Unusable("is no YAML") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("clusters"), list):
        raise Unusable("is no kubectl configuration: it has no clusters")
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    for name, (inner, keys) in _KEPT.items():
        made[name] = [_entry(name, row, inner, keys) for row in _rows(whole.get(name))]
    if isinstance(whole.get("current-context"), str):
        made["current-context"] = whole["current-context"]
    return json.dumps(made)


def _entry(name: str, row: Mapping[str, Any], inner: str, keys: tuple[str, ...]) -> dict[str, Any]:
    said = row.get(inner)
    said = said if isinstance(said, dict) else {}
    for key in said:
        if key not in keys and key not in _BESIDES:
            raise Unusable(
                f"has {name}[{row.get('name')}].{key}, which no server does for others: it needs certificates and "
                "a token inline (`kubectl config view --raw --flatten --minify`, and a service account's token)"
            )
    return {"name": str(row.get("name")), inner: {key: said[key] for key in keys if key in said}}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
