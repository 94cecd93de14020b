"""An invocation's id as people type it: all of it, or a beginning that only one id of the namespace has.

Rules: an id that exists is itself, whatever else begins with it; at least four characters are a beginning. A cut that a
screen makes (`01KB4…`) may be copied along.
"""

from __future__ import annotations

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError

from ..failures import Failure
from ..output import plain

SHORTEST = 4
MOST_NAMED = 5
_ULID = 26


def whole_id(server: ApiClient, said: str) -> str:
    """The id that `said` is or begins. Failure for none, and for several, which it names."""
    said = said.rstrip("….")
    if len(said) >= _ULID:
        return said
    try:
        return str(server.invocation(said)["id"])
    except ApiError as error:
        if error.status != 404 or error.field == "namespace":
            raise
        if len(said) < SHORTEST:
            raise Failure(str(error), hint=f"the beginning of an id is at least {SHORTEST} characters of it") from error
        found = [str(row.get("id")) for row in server.invocations_beginning(said, limit=MOST_NAMED + 1)]
        if not all(
            id_.startswith(said) for id_ in found
        ):  # an older server, that lists the newest whatever it is asked
            raise
    if not found:
        raise Failure(f"no invocation's id in namespace {server.namespace!r} is or begins with {said!r}")
    if len(found) > 1:
        named = ", ".join(plain(id_) for id_ in found[:MOST_NAMED])
        more = ", …" if len(found) > MOST_NAMED else ""
        raise Failure(f"{said!r} is the beginning of several ids: {named}{more}", hint="give more of the one you mean")
    return found[0]
