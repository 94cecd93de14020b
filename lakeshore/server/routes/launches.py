"""What needs a launcher: trying a provider, its instances, and daemons on new machines.

No launcher is built yet: what is asked is looked at as it will be, and then answered 501. A provider that makes no
machines is a 422 that says what does it instead.
Reference: nymph/daemon-lifecycle, "Launch"; admin/happy-paths/13; S-145…S-147, S-153…S-160, S-172, S-793, S-794.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, TypedDict

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..launchers import LAUNCHERS
from ..primitives import Wrong
from ..records import ProviderRow
from ..shapes import QUEUE, SLUG, above, between, checked, longest, printable, whole
from ..structure import bad_field
from .providers import in_org, row_of
from .stated import route

_LONGEST_TEST_S: Final = 86_400.0
_LONGEST_LIST_S: Final = 300.0
_KIB: Final = 64
_MOST: Final = 100
_INSTALL: Final = "use `lakeshore daemon install <ssh-host>`"
_IMAGES: Final = ("image_id", "ami")


def _script(value: Any) -> str:
    if type(value) is not str or not value.strip():
        raise Wrong("must be the text of a script")
    if len(value) > _KIB * 1024:
        raise Wrong(f"must have at most {_KIB} KiB", status=413)
    return value


Script = Annotated[str, checked(_script, minLength=1)]
Line = Annotated[str, printable(1, 200)]


class ProviderTest(TypedDict, total=False):
    """Without a script, a small one of ours."""

    script: Script
    timeout_s: Annotated[float, above(0, _LONGEST_TEST_S, "a number of seconds")]


class InstancesQuery(TypedDict, total=False):
    """How long it may take."""

    timeout_s: Annotated[float, between(0, _LONGEST_LIST_S, "a number of seconds")]


class SetupCommand(TypedDict):
    """A script for the new machine, which its daemon runs."""

    script: Script
    name: NotRequired[Line]
    sudo: NotRequired[bool]
    refresh_capabilities: NotRequired[bool]


class Launch(TypedDict):
    """`capacity` is the launcher's, as it is; `keep_alive_s` -1 is for as long as the machine runs."""

    provider: Annotated[str, SLUG]
    name: NotRequired[Line]
    label: NotRequired[Line]
    count: NotRequired[Annotated[int, whole(1, _MOST)]]
    tags: NotRequired[Annotated[list[Line], longest(_MOST)]]
    queues: NotRequired[Annotated[list[Annotated[str, QUEUE]], longest(_MOST)]]
    runners: NotRequired[Annotated[list[Line], longest(_MOST)]]
    keep_alive_s: NotRequired[Annotated[float, between(-1, 1e9, "a number of seconds")]]
    capacity: NotRequired[dict[str, Any]]
    bootstrap_script: NotRequired[Script]
    setup_commands: NotRequired[Annotated[list[SetupCommand], longest(_MOST)]]
    compose_project: NotRequired[Annotated[str, SLUG]]
    startup: NotRequired[Line]


@route({501: dict[str, Any]}, body=ProviderTest, refuses=(404, 409, 422, 501), optional=True)
async def test(app: App, request: Request, caller: Caller, *, body: ProviderTest) -> Response:
    """POST /v1/namespaces/:ns/providers/:name/test {script?, timeout_s?}: run a script on a machine of its own."""
    row = _live(row_of(app, caller.ns, request.params["name"]))
    if row.launcher == "SLURM":
        raise HttpError(501, "not wired", hint=f"`lakeshore providers test {row.name}` runs it with srun")
    if row.launcher in ("SSH", "Kube"):
        hint = f"`lakeshore providers test {row.name}` does it"
        raise HttpError(422, f"{row.launcher} providers are tried from your machine", field="name", hint=hint)
    raise _not_built(row, "trying it on a machine of its own")


@route({501: dict[str, Any]}, query=InstancesQuery, refuses=(404, 409, 501))
async def instances(app: App, request: Request, caller: Caller, *, query: InstancesQuery) -> Response:
    """GET /v1/namespaces/:ns/providers/:name/instances?timeout_s: what its launcher runs now."""
    raise _not_built(_live(row_of(app, caller.ns, request.params["name"])), "listing instances")


@route({501: dict[str, Any]}, refuses=(404, 422, 501))
async def terminate(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/providers/:name/instances/:id: end one that EC2 or GCE runs."""
    row = row_of(app, caller.ns, request.params["name"])
    if row.launcher not in ("EC2", "GCE"):
        why = f"only instances of EC2 and GCE are terminated, and {row.name} is {row.launcher}"
        raise HttpError(422, why, field="name", hint="`lakeshore daemon kill <id>` ends a daemon")
    raise _not_built(row, "terminating instances")


@route({501: dict[str, Any]}, body=Launch, refuses=(409, 422, 501))
async def launch(app: App, request: Request, caller: Caller, *, body: Launch) -> Response:
    """POST /v1/namespaces/:ns/daemons/launch {provider, name?, label?, count?, tags?, queues?, runners?, keep_alive_s?,
    capacity?, bootstrap_script?, setup_commands?, compose_project?, startup?}: a daemon on a new machine.
    """
    row = _live(_provider(app, caller, body["provider"]))
    if not LAUNCHERS[row.launcher].launches:
        raise HttpError(
            422, "only EC2, GCE and Kube supported", field="provider", hint=f"{row.name} is {row.launcher}: {_INSTALL}"
        )
    capacity = body.get("capacity") or {}
    if row.launcher == "EC2" and not any(row.kwargs.get(name) or capacity.get(name) for name in _IMAGES):
        hint = f"`lakeshore providers update {row.name} --kwarg image_id=<ami>`"
        raise HttpError(422, "EC2 launch requires image_id", field="capacity.image_id", hint=hint)
    raise _not_built(row, "launching daemons")


def _provider(app: App, caller: Caller, wanted: str) -> ProviderRow:
    found = next((row for row in in_org(app, caller.ns) if row.name == wanted), None)
    if found is None:
        raise bad_field("provider", f"there is no provider {wanted!r}", hint="`lakeshore providers list` shows them")
    return found


def _live(row: ProviderRow) -> ProviderRow:
    if row.deleted_at is not None:
        hint = f"`lakeshore providers restore {row.plain_name}` brings it back"
        raise HttpError(409, f"provider {row.plain_name!r} was removed", field="name", hint=hint)
    return row


def _not_built(row: ProviderRow, what: str) -> HttpError:
    hint = f"{_INSTALL} for a daemon" if row.launcher in ("SSH", "SLURM") else f"until then, {_INSTALL} on the machine"
    return HttpError(501, f"not built yet: {what} through {row.launcher}", hint=hint)
