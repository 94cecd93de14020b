"""What needs a launcher: trying a provider, its instances, and daemons on new machines.

What a provider refuses is a 502 with its own code; a kind that makes no machines is a 422 that says what does it.
Reference: nymph/daemon-lifecycle, "Launch"; admin/happy-paths/13; S-145…S-147, S-153…S-160, S-172, S-793, S-794.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any, Final, NotRequired, TypedDict

import trio

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..launchers.contract import Instance, LaunchFailed
from ..launching import Launched, LaunchSpec, code_of, refusal
from ..primitives import Wrong
from ..records import ProviderRow
from ..render import answer
from ..shapes import QUEUE, SLUG, above, between, checked, longest, printable, whole
from ..trying import DEFAULT_S, tried
from .providers import row_of
from .stated import route
from .workers import known

_LONGEST_TEST_S: Final = 86_400.0
_LONGEST_LIST_S: Final = 300.0
_KIB: Final = 64
_MOST: Final = 100
_TRIED: Final = ("SSH", "SLURM")
"""Launchers that try the server's address from the host before they put anything there."""
_MOST_CLOUD_TAGS: Final = 40
_LIST_S: Final = 60.0


def _script(value: Any) -> str:
    if type(value) is not str or not value.strip() or "\0" in value:
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


def _cloud_tags(value: Any) -> dict[str, str]:
    if type(value) is not dict or len(value) > _MOST_CLOUD_TAGS:
        raise Wrong(f"must be a map of at most {_MOST_CLOUD_TAGS} tags")
    for name, text in value.items():
        if type(name) is not str or not 0 < len(name) <= 128 or type(text) is not str or len(text) > 256:
            raise Wrong("must be a map of names of 1 to 128 and texts of at most 256 characters")
        if name == "Name" or name.lower().startswith(("aws:", "lakeshore-")):
            raise Wrong(f"{name!r:.40} is not yours to set: --name sets the machine's name")
    return value


class ProviderTried(TypedDict):
    """How the script ended. `instanceId`: where it ran; it is on its way down."""

    exitCode: int
    stdout: str
    stderr: str
    error: str | None
    instanceId: str | None


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
    startup: NotRequired[Script]
    cloud_tags: NotRequired[Annotated[dict[str, str], checked(_cloud_tags)]]
    dry_run: NotRequired[bool]


class LaunchLogQuery(TypedDict, total=False):
    """`latest`: up to now, where the machine can tell; `tail`: so many of the last lines."""

    latest: bool
    tail: Annotated[int, whole(1, 100_000)]


class InstanceShown(TypedDict):
    """A machine as its provider tells of it. `worker`: who was launched on it."""

    id: str
    state: str
    name: str | None
    type: str | None
    address: str | None
    since: str | None
    worker: str | None


class InstanceList(TypedDict):
    """Those that have not ended."""

    instances: list[InstanceShown]
    count: int


class InstanceEnded(TypedDict):
    """It is on its way down."""

    id: str
    terminated: bool


class WorkerLaunched(TypedDict):
    """A worker whose machine comes. `instanceId`: null while its provider has not named it; `note` says why."""

    id: str
    label: str
    instanceId: str | None
    state: str
    note: NotRequired[str]


class LaunchTold(TypedDict):
    """`failed`: {label, error, hint?, awsCode?} of those that the provider refused, which left nothing behind."""

    workers: list[WorkerLaunched]
    count: int
    failed: list[dict[str, Any]]
    warnings: list[str]


class LaunchRendered(TypedDict):
    """What the first machine would be given to run; no token is made, and none is in it."""

    label: str
    bootstrap: str


class LaunchLog(TypedDict):
    """The console's text."""

    id: str
    label: str | None
    instanceId: str
    output: str


@route(ProviderTried, body=ProviderTest, refuses=(404, 409, 413, 422, 501, 502), optional=True)
async def test(app: App, request: Request, caller: Caller, *, body: ProviderTest) -> Response:
    """POST /v1/namespaces/:ns/providers/:name/test {script?, timeout_s?}: run a script on a machine of its own, which
    ends with it. 502 with the end of its `console` when it took longer.
    """
    row = _live(row_of(app, caller.ns, request.params["name"]))
    if row.launcher == "SLURM":
        raise HttpError(501, "not wired", hint=f"`lakeshore providers test {row.name}` runs it with srun")
    if row.launcher in ("SSH", "Kube"):
        hint = f"`lakeshore providers test {row.name}` does it"
        raise HttpError(422, f"{row.launcher} providers are tried from your machine", field="name", hint=hint)
    done = await tried(
        app.launching,
        app.records,
        caller.ns,
        row.name,
        script=body.get("script"),
        timeout_s=body.get("timeout_s", DEFAULT_S),
        actor=caller.name,
    )
    told: ProviderTried = {
        "exitCode": done.exit_code,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "error": done.error,
        "instanceId": done.instance,
    }
    return answer(request, told)


@route(InstanceList, query=InstancesQuery, refuses=(404, 409, 422, 501, 502))
async def instances(app: App, request: Request, caller: Caller, *, query: InstancesQuery) -> Response:
    """GET /v1/namespaces/:ns/providers/:name/instances?timeout_s: what its launcher runs now."""
    row = _live(row_of(app, caller.ns, request.params["name"]))
    launcher = app.launching.launcher_of(row)
    with trio.move_on_after(query.get("timeout_s", _LIST_S)):
        with refused_by(row):
            found = await launcher.instances()
        listed = [_instance(one) for one in found if one.state != "terminated"]
        return answer(request, {"instances": listed, "count": len(listed)})
    raise HttpError(502, f"provider {row.name!r} did not answer in time", hint="`timeout_s` gives it longer")


@route(InstanceEnded, refuses=(404, 409, 422, 501, 502))
async def terminate(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/providers/:name/instances/:id: end one that EC2 or GCE runs."""
    row = row_of(app, caller.ns, request.params["name"])
    if row.launcher not in ("EC2", "GCE"):
        why = f"only instances of EC2 and GCE are terminated, and {row.name} is {row.launcher}"
        raise HttpError(422, why, field="name", hint="`lakeshore daemon kill <id>` ends a daemon")
    instance = request.params["id"]
    launcher = app.launching.launcher_of(row)
    with refused_by(row):
        await launcher.terminate(instance)
    await app.records.audit(caller.name, caller.ns, "provider.terminate", f"{row.name} {instance}")
    return answer(request, {"id": instance, "terminated": True})


@route({200: LaunchRendered, 201: LaunchTold}, body=Launch, refuses=(409, 413, 422, 501, 502))
async def launch(app: App, request: Request, caller: Caller, *, body: Launch) -> Response:
    """POST /v1/namespaces/:ns/daemons/launch {provider, name?, label?, count?, tags?, queues?, runners?, keep_alive_s?,
    capacity?, bootstrap_script?, setup_commands?, compose_project?, startup?, cloud_tags?, dry_run?}: daemons
    on new machines.

    With `dry_run` 200 and the script, and nothing is made. 201 when one came at least, `failed` has the others; 502
    when none did.
    """
    wanted = LaunchSpec(
        provider=body["provider"],
        name=body.get("name"),
        label=body.get("label"),
        count=body.get("count", 1),
        tags=tuple(body.get("tags", ())),
        queues=tuple(body.get("queues", ())),
        runners=tuple(body.get("runners", ())),
        keep_alive_s=int(body.get("keep_alive_s", -1)),
        capacity=body.get("capacity") or {},
        bootstrap_script=body.get("bootstrap_script"),
        setup_commands=tuple(dict(one) for one in body.get("setup_commands", ())),
        compose_project=body.get("compose_project"),
        startup=body.get("startup"),
        cloud_tags=body.get("cloud_tags") or {},
    )
    if body.get("dry_run"):
        label, text = await app.launching.rendered(caller.ns, wanted)
        return answer(request, {"label": label, "bootstrap": text})
    told = await app.launching.launch_each(caller.ns, wanted, actor=caller.name)
    made = [_launched(app, caller.ns, one) for one in told if one.error is None]
    row = app.launching.provider(caller.ns, wanted.provider)
    failed = [_failed(one, one.error, row) for one in told if one.error is not None]
    if not made:
        first = next(one.error for one in told if one.error is not None)
        raise refusal(first, row)
    warnings = [] if row.launcher in _TRIED else app.launching.warnings()
    return answer(request, {"workers": made, "count": len(made), "failed": failed, "warnings": warnings}, status=201)


@route(LaunchLog, query=LaunchLogQuery, refuses=(404, 409, 422, 501, 502))
async def launch_log(app: App, request: Request, caller: Caller, *, query: LaunchLogQuery) -> Response:
    """GET /v1/namespaces/:ns/workers/:id/launch-log?latest&tail: what the console of its machine printed."""
    worker = known(app, request, caller)
    machine = app.records.machines.get(caller.ns, worker.id)
    if machine is None:
        hint = "`lakeshore daemon launch` makes those that have one"
        raise HttpError(422, f"worker {worker.id} was not launched through a provider", field="id", hint=hint)
    if machine.launcher != "EC2":
        raise HttpError(422, f"launch log not supported for {machine.launcher}", field="id")
    if machine.instance is None:
        raise HttpError(409, "its machine is not known yet", hint="ask again in a minute")
    row, launcher = app.launching.hosts.launcher_of(machine)
    with refused_by(row):
        output = await launcher.console(machine.instance, latest=query.get("latest", True))
    lines = output.splitlines(keepends=True)
    if "tail" in query:
        lines = lines[-query["tail"] :]
    told: LaunchLog = {"id": worker.id, "label": worker.label, "instanceId": machine.instance, "output": "".join(lines)}
    return answer(request, told)


# --- what is shown


def _launched(app: App, ns: str, one: Launched) -> WorkerLaunched:
    row = app.records.workers.get(ns, one.worker)
    told: WorkerLaunched = {
        "id": one.worker,
        "label": one.label,
        "instanceId": one.instance_id,
        "state": "gone" if row is None else app.workers.shown_state(row),
    }
    if one.note is not None:
        told["note"] = one.note
    return told


def _failed(one: Launched, error: LaunchFailed | HttpError, row: ProviderRow) -> dict[str, Any]:
    why = error.error if isinstance(error, HttpError) else str(error)
    told = {"label": one.label, "error": why, **code_of(error, row)}
    return told if error.hint is None else {**told, "hint": error.hint}


def _instance(one: Instance) -> InstanceShown:
    return {
        "id": one.id,
        "state": one.state,
        "name": one.name,
        "type": one.type,
        "address": one.address,
        "since": one.since,
        "worker": one.worker,
    }


@contextlib.contextmanager
def refused_by(row: ProviderRow) -> Iterator[None]:
    """What a provider refuses, as HttpError."""
    try:
        yield
    except LaunchFailed as error:
        raise refusal(error, row) from error


def _live(row: ProviderRow) -> ProviderRow:
    if row.deleted_at is not None:
        hint = f"`lakeshore providers restore {row.plain_name}` brings it back"
        raise HttpError(409, f"provider {row.plain_name!r} was removed", field="name", hint=hint)
    return row
