"""The value of a secret, for what this server does with it itself.

Rules: it is opened where it is used, and let go of. It is in no answer, no log, no message and no row. A secret of
another kind than what is done needs is refused.
Reference: api/auth-and-secrets, "Secrets"; S-101, S-109, S-121, S-122.
"""

from __future__ import annotations

from .app import App
from .http import HttpError
from .rekeying import about
from .sealing import SealError


def value_of(app: App, ns: str, name: str, *, kind: str, field: str) -> str:
    """What the namespace's secret `name` holds. HttpError 422 for none, or one of another kind; 409 when nothing opens
    it. `field` is where the request, or the row, names it.
    """
    secret = app.records.secrets.get(ns, name)
    if secret is None:
        hint = f"`lakeshore secrets add {name} --kind {kind}` there, or name another one"
        raise HttpError(422, f"secret {name!r} not found in namespace {ns!r}", field, hint)
    if secret.kind != kind:
        raise HttpError(422, f"secret {name!r} is of kind {secret.kind}, not {kind}", field)
    try:
        return app.sealer.open(secret.sealed, about=about(ns, name)).decode()
    except (SealError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, SealError) else "it is not text"
        raise HttpError(409, f"secret {name!r} cannot be used: {why}", field) from error
