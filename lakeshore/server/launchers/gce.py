"""Machines of Google's Compute Engine. The worker's id makes the request's id and the machine's name, so that
asking again makes no second one.

The bearer is asked for first: what keeps us from Google at all has made nothing. What is asked becomes an operation,
whose errors (a quota, say) are the launch's.
Reference: admin/happy-paths/13; S-150.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ..google import Account, Google, GoogleError
from ..http import HttpError
from .contract import WORKER_TAG, Instance, LaunchFailed, LaunchUnknown, Machine, Means, Resolved, Unsupported, tags_of

DEFAULT_TYPE: Final = "e2-medium"
DEFAULT_IMAGE: Final = "projects/debian-cloud/global/images/family/debian-12"
"""It has a Python that the daemon can use."""
_STATES: Final = {
    "PROVISIONING": "starting",
    "STAGING": "starting",
    "RUNNING": "running",
    "REPAIRING": "starting",
    "STOPPING": "stopping",
    "SUSPENDING": "stopping",
    "SUSPENDED": "stopped",
    "TERMINATED": "stopped",
}
_NAMESPACE: Final = uuid.UUID("5b0f4a8e-6f0c-4d55-9a0e-2f1f4f3c7f11")
_UNFIT: Final = re.compile(r"[^a-z0-9]+")
_UNFIT_LABEL: Final = re.compile(r"[^a-z0-9_-]+")
_LOOKS, _BETWEEN_S = 40, 1.0

T = TypeVar("T")


def make(provider: Resolved, means: Means) -> Gce:
    """HttpError 422 for a provider that does not say where, or has no key."""
    for name in ("service_account_json", "zone"):
        if not provider.kwargs.get(name):
            hint = f"`lakeshore providers update {provider.name} --kwarg {name}=…`"
            raise HttpError(422, f"GCE launch requires {name}", field="provider", hint=hint)
    return Gce(provider, means.google)


class Gce:
    """One provider of the kind GCE."""

    def __init__(self, provider: Resolved, google: Google) -> None:
        self._provider, self._google = provider, google
        self._kwargs = provider.kwargs
        self._zone = str(provider.kwargs["zone"])

    async def launch(self, machine: Machine) -> str | None:
        """As the contract says; its name is its id."""
        name = _name(machine)
        await self._ask(lambda account: account.call("GET", self._at(account)))
        body = self._wanted(machine, name)
        token = str(uuid.uuid5(_NAMESPACE, machine.worker))
        for again in (True, False):
            try:
                await self._ask(lambda account: _made(account, self._at(account), body, token))
            except _Lost as error:
                if not again:
                    raise LaunchUnknown(str(error), code=error.code, hint=error.hint) from error
                continue
            except LaunchFailed as error:
                if error.code != "alreadyExists":  # asked before, and this name is this worker's alone
                    raise
            break
        return name

    async def instances(self) -> list[Instance]:
        """Of the zone."""
        return await self._ask(lambda account: _instances(account, self._at(account)))

    async def terminate(self, instance_id: str) -> None:
        """As the contract says."""
        try:
            await self._ask(
                lambda account: account.call("DELETE", f"{self._at(account)}/instances/{_part(instance_id)}")
            )
        except LaunchFailed as error:
            if error.code != "notFound":
                raise

    async def console(self, instance_id: str, *, latest: bool = True) -> str:
        """EC2's alone."""
        raise Unsupported("launch log not supported for GCE")

    # --- inside

    def _at(self, account: Account) -> str:
        project = str(self._kwargs.get("project_id") or account.project)
        return f"projects/{_part(project)}/zones/{_part(self._zone)}"

    def _wanted(self, machine: Machine, name: str) -> dict[str, Any]:
        kwargs = self._kwargs
        disk: dict[str, Any] = {"sourceImage": kwargs.get("image") or DEFAULT_IMAGE}
        if kwargs.get("root_volume_size_gb") is not None:
            disk["diskSizeGb"] = str(int(kwargs["root_volume_size_gb"]))
        labels = {**machine.cloud_tags, **tags_of(machine)}
        return {
            "name": name,
            "description": machine.name or machine.label,
            "machineType": f"zones/{self._zone}/machineTypes/{kwargs.get('machine_type') or DEFAULT_TYPE}",
            "labels": {_label(key): _label(value) for key, value in labels.items()},
            "disks": [{"boot": True, "autoDelete": True, "initializeParams": disk}],
            "networkInterfaces": [
                {
                    "network": "global/networks/default",
                    "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}],
                }
            ],
            "metadata": {"items": [{"key": "startup-script", "value": machine.userdata}]},
        }

    async def _ask(self, work: Callable[[Account], T]) -> T:
        key = self._kwargs["service_account_json"]
        try:
            return await self._google.ask(self._provider.ns, lambda: work(self._google.account(key)))
        except GoogleError as error:
            if error.status != 502:
                raise HttpError(error.status, error.message, "provider", error.hint) from error
            raise (_Lost if error.asked else LaunchFailed)(error.message, code=error.code, hint=error.hint) from error


class _Lost(LaunchFailed):
    """It may have had its effect."""


def _made(account: Account, at: str, body: Mapping[str, Any], token: str) -> None:
    """Ask for it, and wait a while for how that goes: what is refused is said by the operation."""
    told = account.call("POST", f"{at}/instances", body, requestId=token)
    for _ in range(_LOOKS):
        failed = next(iter((told.get("error") or {}).get("errors") or ()), None)
        if failed is not None:
            code = str(failed.get("code") or "unknown")
            raise GoogleError(f"{code}: {failed.get('message') or 'it says no more'}", code=code)
        if told.get("status") == "DONE" or not told.get("name"):
            return
        time.sleep(_BETWEEN_S)
        told = account.call("GET", f"{at}/operations/{_part(str(told['name']))}")


def _instances(account: Account, at: str) -> list[Instance]:
    found: list[Instance] = []
    page: dict[str, str] = {}
    while True:
        told = account.call("GET", f"{at}/instances", maxResults="500", **page)
        found += [_instance(row) for row in told.get("items") or ()]
        if not told.get("nextPageToken"):
            return found
        page = {"pageToken": str(told["nextPageToken"])}


def _instance(row: Mapping[str, Any]) -> Instance:
    first: Mapping[str, Any] = next(iter(row.get("networkInterfaces") or ()), {})
    outside: Mapping[str, Any] = next(iter(first.get("accessConfigs") or ()), {})
    return Instance(
        id=str(row.get("name")),
        state=_STATES.get(str(row.get("status")), "unknown"),
        name=row.get("description") or row.get("name"),
        type=str(row.get("machineType") or "").rpartition("/")[2] or None,
        address=outside.get("natIP") or first.get("networkIP"),
        since=row.get("lastStartTimestamp") or row.get("creationTimestamp"),
        worker=(row.get("labels") or {}).get(WORKER_TAG),
    )


def _name(machine: Machine) -> str:
    """Letters, digits and dashes, at most 63, unlike every other worker's."""
    said = _UNFIT.sub("-", (machine.name or machine.label).lower()).strip("-")[:37].strip("-")
    return f"{said if said[:1].isalpha() else f'd-{said}'.rstrip('-')}-{machine.worker}"[:63]


def _label(text: str) -> str:
    return _UNFIT_LABEL.sub("-", text.lower())[:63]


def _part(text: str) -> str:
    """One step of a path. HttpError 422 for what leads elsewhere."""
    if not re.fullmatch(r"[A-Za-z0-9.:_-]{1,100}", text) or set(text) == {"."}:
        raise GoogleError(f"{text!r:.60} is no name of Google's", status=422)
    return text
