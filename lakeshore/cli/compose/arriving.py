"""`lakeshore up --wait`: until each daemon has come up, one of them cannot any more, or the time is over.

A server that is away is asked again. One that came up and left again, for it was idle, has come up.
Reference: get-started/compose.md; C-340, C-921.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from lakeshore.client.api import ApiClient
from lakeshore.client.workers import Workers
from lakeshore.config.compose import Compose
from lakeshore.net.errors import NetError, ProtocolViolation

from ..failures import Failure
from ..numbers import Length
from ..output import plain, say
from .file import owned
from .plan import SERVES, Member, members

WAIT_S = 600.0
POLL_S = 1.0
_OVER = frozenset({"stopping", "stopped", "terminated"})
"""States of a machine on which nothing comes up any more."""
_ABSENT = "absent"


def arrived(
    server: ApiClient,
    compose: Compose,
    wanted: Sequence[str],
    states: dict[str, str],
    *,
    known: Iterable[str],
    limit_s: float,
) -> None:
    """Wait for these labels; `states` has those that they are in, also when it fails. `known` were there already: one
    of them that is absent now has gone. Failure.
    """
    deadline, told, away = time.monotonic() + limit_s, "", False
    seen, late = set(known), list(wanted)
    while True:
        try:
            found = _by_label(server, compose)
            away = False
        except ProtocolViolation:
            raise
        except NetError as error:
            if not away:
                say(f"the server is away, asking again: {error}")
            away = True
        else:
            states.update((label, _state(found.get(label))) for label in wanted)
            late = [label for label in wanted if not _came(found.get(label))]
            seen |= found.keys()
            if not late:
                say(f"all {len(wanted)} daemon(s) are up")
                return
            if lost := [
                label for label in late if states[label] == "gone" or (states[label] == _ABSENT and label in seen)
            ]:
                raise Failure(f"{', '.join(lost)}: gone before it came up", hint=_look_at(lost[0]))
            words = ", ".join(f"{label} {states[label]}" for label in late)
            if words != told:
                say(f"{len(wanted) - len(late)} of {len(wanted)} daemon(s) are up; {words}")
                told = words
        if time.monotonic() >= deadline:
            still = ", ".join(f"{label} ({states.get(label, 'nobody knows')})" for label in late)
            raise Failure(f"not up within {Length.text(limit_s)}: {still}", hint=_look_at(late[0]))
        time.sleep(min(POLL_S, max(deadline - time.monotonic(), 0.0)))


def check_setups(server: ApiClient, launched: Iterable[tuple[str, str]]) -> None:
    """Failure where a setup script of one of these, (label, id), has failed."""
    failed = [
        f"{label}: {plain(one.get('name'))} (exit {plain(one.get('exitCode'))})"
        for label, id_ in launched
        for one in Workers(server).show(id_).get("setups") or ()
        if one.get("state") == "failed"
    ]
    if failed:
        label = failed[0].split(":")[0]
        hint = f"`lakeshore daemon show {label}` has what it printed; the daemon takes jobs all the same"
        raise Failure(f"setup failed on {'; '.join(failed)}", hint=hint)


def _by_label(server: ApiClient, compose: Compose) -> dict[str, Member]:
    """Who lives hides who has gone under the same label."""
    found = members(owned(server, compose))
    return {one.label: one for one in sorted(found, key=lambda one: not one.is_gone)}


def _came(one: Member | None) -> bool:
    return one is not None and (one.state in SERVES or (one.state == "gone" and one.row.get("lastSeenAt") is not None))


def _state(one: Member | None) -> str:
    if one is None:
        return _ABSENT
    return "gone" if one.state not in SERVES and one.row.get("hostStatus") in _OVER else one.state


def _look_at(label: str) -> str:
    return f"`lakeshore logs {plain(label)}` shows its console; `lakeshore up` launches what is gone anew"
