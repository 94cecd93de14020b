"""What a launch is asked for a daemon of a group, and how one is asked for.

Rule: it may be sent again where its answer was lost, for a project's label is taken once: that it is taken is how the
second one learns that the first one came through.
Reference: get-started/compose.md, "Daemon group spec"; S-153…S-160, S-767.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.launches import Launches, is_throttled
from lakeshore.client.workers import Workers
from lakeshore.config.compose import Compose, Group
from lakeshore.net.backoff import chance, full_jitter
from lakeshore.net.errors import NetError

from .plan import Plan
from .stamp import stamp_of

_TRIES = 8
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_CAPACITY: Mapping[str, Mapping[str, str]] = {
    "GCE": {"instance_type": "machine_type", "image_id": "image"},
    "Kube": {"image_id": "image"},
    "SSH": {},
    "SLURM": {},
}
"""By launcher: what it calls the two. Any other one has them under these names."""
_SAME = {"instance_type": "instance_type", "image_id": "image_id"}


def asked_for(compose: Compose, group: Group, label: str, launcher: str) -> dict[str, Any]:
    """The body of the launch of one daemon."""
    body: dict[str, Any] = {
        "provider": group.provider,
        "name": label,
        "queues": list(group.queues),
        "tags": [stamp_of(group)],
        "compose_project": compose.project,
    }
    names = _CAPACITY.get(launcher, _SAME)
    capacity = {name: said for field, name in names.items() if (said := getattr(group, field)) is not None}
    if capacity:
        body["capacity"] = capacity
    if group.runner is not None:
        body["runners"] = [group.runner]
    if group.keep_alive_s is not None:
        body["keep_alive_s"] = group.keep_alive_s
    if group.setup:
        many = len(group.setup)
        body["setup_commands"] = [
            {"script": script, "name": f"setup {number} of {many}", "refresh_capabilities": number == many}
            for number, script in enumerate(group.setup, 1)
        ]
    if group.startup is not None:
        body["startup"] = group.startup
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The worker that a launch made, and what the server said about it."""

    id: str
    said: Sequence[str] = ()


def launched(server: ApiClient, body: Mapping[str, Any]) -> Launched | None:
    """Ask for it. None where somebody else has taken the label. ApiError, NetError."""
    lost = False
    try:
        try:
            answer = _ask(server, body)
        except NetError as error:
            if not error.sent_anything:
                raise
            lost = True
            answer = server.insist(lambda: _ask(server, body), [])
    except ApiError as error:
        if error.status != 409 or error.field != "label":
            raise
        rows = Workers(server).all(project=str(body["compose_project"])) if lost else []
        return next((Launched(id=str(row["id"])) for row in rows if row.get("label") == body["name"]), None)
    (row,) = answer["workers"]
    notes = [f"{body['name']}: {row['note']}"] if row.get("note") else []
    return Launched(id=str(row["id"]), said=[*map(str, answer["warnings"]), *notes])


def _ask(server: ApiClient, body: Mapping[str, Any]) -> dict[str, Any]:
    """Send it, and again a little later while the provider is asked too often."""
    waits = full_jitter(chance, base=_FIRST_WAIT_S, cap=_LONGEST_WAIT_S)
    for left in reversed(range(_TRIES)):
        try:
            return Launches(server).launch(body)
        except ApiError as error:
            if not left or not is_throttled(error):
                raise
            time.sleep(next(waits))
    raise AssertionError  # the last try returns or raises


def notes(plan: Plan, launchers: Mapping[str, str]) -> Iterator[str]:
    """What of the groups that are launched has no effect, or not the one that somebody might think."""
    for one in plan.groups:
        group = one.group
        if not one.launch:
            continue
        if group.mounts:
            yield f"daemons.{group.name}.mounts: nothing mounts them yet; a job reads a storage with `dls.Storage`"
        launcher = launchers[str(group.provider)]
        for field in ("instance_type", "image_id"):
            if getattr(group, field) is not None and field not in _CAPACITY.get(launcher, _SAME):
                yield f"daemons.{group.name}.{field}: says nothing to {group.provider}, which is {launcher}"
