"""A kubectl configuration that came from somebody, made harmless: what it says of servers, users and contexts, inline.

Such a file may name programs to run and files to read (`exec`, `tokenFile`, `client-key`), which kubectl would do with
this server's rights. So it is read here, and written anew with the keys that are known to do neither. One that leads
to no server is refused: kubectl takes the service account of the pod that it runs in then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_MOST: Final = 64 * 1024
_KEPT: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "clusters": ("cluster", ("server", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name")),
    "users": ("user", ("token", "client-certificate-data", "client-key-data", "username", "password")),
    "contexts": ("context", ("cluster", "user", "namespace")),
}
_BESIDES: Final = ("extensions", "disable-compression")
_MINIFY: Final = "`kubectl config view --raw --flatten --minify` writes one that leads to one cluster"


class Unusable(Exception):
    """`str()` says what of it cannot be used."""


def harmless(text: str, context: str | None = None) -> str:
    """The same as JSON, which kubectl reads as well. `context` goes before its own. Some 100 ms for a large one: for a
    thread. Raises Unusable.
    """
    import yaml  # wall: 30 ms of a server's start, and only who has pods needs it

    if len(text) > _MOST:
        raise Unusable(f"has more than {_MOST // 1024} KiB")
    try:
        whole = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # the last for what is no date
        raise Unusable("is no YAML") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("clusters"), list):
        raise Unusable("is no kubectl configuration: it has no clusters")
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    for name, (inner, keys) in _KEPT.items():
        made[name] = [_entry(name, row, inner, keys) for row in _rows(whole.get(name))]
    said = context or whole.get("current-context")
    _check_leads(made, said if isinstance(said, str) else "")
    return json.dumps({**made, "current-context": said})


def _check_leads(made: Mapping[str, Any], context: str) -> None:
    """Raises Unusable unless the context leads to a server."""
    names = {row["name"]: row["context"].get("cluster") for row in made["contexts"]}
    if not names.get(context):
        raise Unusable(f"has no context {context!r:.80} that names a cluster: {_MINIFY}")
    servers = [row["cluster"].get("server") for row in made["clusters"] if row["name"] == names[context]]
    if len(servers) != 1 or not servers[0]:
        raise Unusable(f"has no server for its context {context!r:.80}: {_MINIFY}")


def _entry(name: str, row: Mapping[str, Any], inner: str, keys: tuple[str, ...]) -> dict[str, Any]:
    said = row.get(inner)
    said = said if isinstance(said, dict) else {}
    for key in said:
        if key not in keys and key not in _BESIDES:
            raise Unusable(
                f"has {name}[{row.get('name')}].{key}, which no server does for others: it needs certificates and "
                "a token inline (`kubectl config view --raw --flatten --minify`, and a service account's token)"
            )
        if not isinstance(said[key], str | bool) and key in keys:
            raise Unusable(f"has {name}[{row.get('name')}].{key} that is no text")
    return {"name": str(row.get("name")), inner: {key: said[key] for key in keys if key in said}}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
