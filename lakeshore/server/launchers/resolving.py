"""A provider with what it needs to be used: found in its org, the values of its secrets in their places.

Rules: secrets are looked up in the provider's own namespace, whoever launches, and the error names it. What a launch
says of the machine (`capacity`) is laid over the provider's kwargs after that, so it refers to no secret, and it may
not bring credentials. The values live only in what `resolved` returns.
Reference: admin/happy-paths/13; S-105, S-122, S-775, S-809.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..http import HttpError
from ..primitives import Wrong, size_as_json
from ..records import ProviderRow, Records
from ..references import MARKER, replaced
from ..rekeying import about
from ..sealing import Keyring, SealError
from ..structure import bad_field
from .contract import Resolved
from .kinds import LAUNCHERS, check_kwargs

_LARGEST: Final = 16 * 1024


def providers_of_org(records: Records, ns: str) -> Iterator[ProviderRow]:
    """Every provider of the namespace and of its siblings, removed ones too."""
    for row in records.namespaces():
        if row.name == ns or records.siblings(row.name, ns):
            yield from records.providers.of(row.name)


def check_capacity(launcher: str, capacity: Mapping[str, Any]) -> None:
    """Refuse what a launch may not say of its machine. HttpError 413, 422."""
    try:
        size = size_as_json(capacity)
    except Wrong as error:
        raise bad_field("capacity", str(error)) from error
    if size > _LARGEST:
        raise bad_field("capacity", f"must have at most {_LARGEST // 1024} KiB as JSON", status=413)
    if MARKER in json.dumps(capacity):
        raise bad_field("capacity", "refers to no secret: that is the provider's", hint="`lakeshore providers update`")
    for name in LAUNCHERS[launcher].secrets:
        if name in capacity:
            raise bad_field(f"capacity.{name}", "credentials are the provider's", hint="`lakeshore providers update`")
    for name in LAUNCHERS[launcher].where:
        if name in capacity:
            hint = f"`lakeshore providers update <provider> --kwarg {name}=…`"
            raise bad_field(f"capacity.{name}", "where daemons go is the provider's to say", hint=hint)
    try:
        check_kwargs(launcher, capacity)
    except HttpError as error:
        field = (error.field or "").replace("kwargs", "capacity", 1)
        raise bad_field(field, str(error).partition(": ")[2] or str(error)) from error


def resolved(records: Records, keyring: Keyring, row: ProviderRow, capacity: Mapping[str, Any]) -> Resolved:
    """HttpError 409 for a secret that does not open, 422 for one that is not there."""

    def value_of(name: str) -> Any:
        secret = records.secrets.get(row.ns, name)
        if secret is None:
            raise HttpError(
                422,
                f"secret {name!r} not found in namespace {row.ns!r}",
                field="provider",
                hint=f"provider {row.name!r} refers to it: `lakeshore secrets add {name}` in that namespace",
            )
        try:
            return keyring.open(secret.sealed, about=about(row.ns, name)).decode()
        except (SealError, UnicodeDecodeError) as error:
            why = str(error) if isinstance(error, SealError) else "it is not text"
            raise HttpError(409, f"secret {name!r} cannot be used: {why}", field="provider") from error

    kwargs = replaced(row.kwargs, value_of, "kwargs")
    return Resolved(ns=row.ns, name=row.plain_name, launcher=row.launcher, kwargs={**kwargs, **capacity})
