"""Kubernetes: a pod for each daemon, made with this machine's kubectl; its command is the rendered bootstrap.

    kubeconfig   a secret with the configuration itself (`kubeconfig.py`), or, with `LAKESHORE_OWN_ACCESS=kube`, a path
                 on this machine; without it what kubectl uses here by itself
    context, namespace   of kubectl; image: any that has sh and Python 3.11 or newer
    capacity     cpu, memory, gpu (nvidia.com/gpu), node_selector, image

Who may read the pods of that namespace reads the daemon's token there. A pod that stays (`keep_alive_s` -1) is started
again when its daemon ends, any other only when that failed.
Reference: admin/happy-paths/13; S-151, S-153.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from ...clouds.instances import kubectl, of_kube
from ...clouds.pods import IMAGE
from ...clouds.tools import ToolError, ToolSlow, json_said, map_of, rows_of, said_by
from ..auth import is_loopback_name
from ..http import HttpError
from . import own_access
from .contract import (
    WORKER_TAG,
    Instance,
    LaunchFailed,
    LaunchUnknown,
    Machine,
    Means,
    Resolved,
    Unreachable,
    Unsupported,
    tags_of,
)
from .kubeconfig import Unusable, harmless
from .threads import Threads

T = TypeVar("T")
_LIMIT_S: Final = 60.0
_threads: Final = Threads()
_ID: Final = re.compile(r"lakeshore-[0-9a-f]{24}")
_NO_POD: Final = {"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": ""}
"""kubectl that is led nowhere takes the service account of the pod that it runs in; here it is in none."""
_CAPACITY: Final = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"}
_PREFIX: Final = "lakeshore.dreamlake.ai"


@dataclass(frozen=True, slots=True)
class _Kubectl:
    """kubectl as a provider has it asked. ToolError."""

    words: Sequence[str]
    environ: Mapping[str, str]

    def said(self, *words: str, stdin: str | None = None) -> str:
        return said_by([*self.words, *words], limit_s=_LIMIT_S, stdin=stdin, environ=self.environ)


class KubeLauncher:
    """One namespace of one cluster."""

    def __init__(self, provider: Resolved) -> None:
        self._provider = provider

    async def launch(self, machine: Machine) -> str | None:
        """Make the pod; its name."""
        await self._in_thread(lambda kube: None)  # a kubeconfig that cannot be used is said first
        if is_loopback_name(urlsplit(machine.url).hostname or ""):
            raise LaunchFailed(
                f"no pod reaches this server at {machine.url}",
                hint="set LAKESHORE_PUBLIC_URL on the server to an address that the cluster reaches",
            )
        made = pod_of(machine, self._provider.kwargs)
        await self._in_thread(lambda kube: _create(kube, made))
        return str(made["metadata"]["name"])

    async def instances(self) -> list[Instance]:
        """Its pods that are ours."""
        words = ("get", "pods", "-l", WORKER_TAG, "-o", "json")
        told = await self._in_thread(lambda kube: json_said("kubectl", kube.said(*words) or "null"))
        workers = _workers(told)
        return [
            Instance(
                id=one.id,
                state=one.state,
                name=one.name,
                type=one.type,
                address=one.address,
                since=one.since,
                worker=workers[one.id],
            )
            for one in of_kube(told)
            if one.id in workers
        ]

    async def terminate(self, instance_id: str) -> None:
        """Delete the pod."""
        if not _ID.fullmatch(instance_id):
            raise Unsupported(
                f"{instance_id!r} is no pod that was launched", hint="those are called lakeshore-<worker>"
            )
        await self._in_thread(
            lambda kube: kube.said("delete", "pod", instance_id, "--ignore-not-found", "--wait=false")
        )

    async def console(self, instance_id: str, *, latest: bool = True) -> str:
        """A pod has none."""
        raise Unsupported(
            f"launch log not supported for {self._provider.launcher}",
            hint=f"`kubectl logs {instance_id}` and `kubectl describe pod {instance_id}` say what became of it",
        )

    async def _in_thread(self, step: Callable[[_Kubectl], T]) -> T:
        def run() -> T:
            try:
                with _kubectl(self._provider) as kube:
                    return step(kube)
            except ToolError as error:
                raise Unreachable(str(error), hint=error.hint) from error
            except Unusable as error:
                why = f"the kubeconfig of provider {self._provider.name!r} {error}"
                raise HttpError(422, why, field="provider") from error

        return await _threads.run(self._provider.ns, run)


def make(provider: Resolved, means: Means) -> KubeLauncher:
    """The launcher of a provider, whose methods raise HttpError 422 for a kubeconfig that cannot be used. HttpError 403
    for this account's own where that is not allowed, 501 without kubectl.
    """
    if not is_inline(provider.kwargs.get("kubeconfig")):
        own_access.need(
            "kube",
            f"provider {provider.name!r} brings no kubeconfig, so the server's own account's would be used",
            "`lakeshore secrets add <secret> --from-file <kubeconfig>` and "
            f"`lakeshore providers update {provider.name} --kwarg kubeconfig.$secret=<secret>`",
        )
    if shutil.which("kubectl") is None:
        raise HttpError(
            501, "this server has no kubectl", hint="install kubectl on the machine that runs `lakeshore serve`"
        )
    return KubeLauncher(provider)


def is_inline(kubeconfig: Any) -> bool:
    """Whether it is a configuration itself, not the path of one."""
    text = kubeconfig.strip() if isinstance(kubeconfig, str) else ""
    return "\n" in text or text.startswith("{")


def pod_of(machine: Machine, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The pod of a daemon. Unsupported for a capacity that says nothing to it."""
    said = machine.capacity
    wanted = {_CAPACITY[name]: _amount(name, said[name]) for name in _CAPACITY if said.get(name) is not None}
    limits = {name: amount for name, amount in wanted.items() if name != "cpu"}
    selector = said.get("node_selector") or {}
    if not isinstance(selector, dict) or not all(isinstance(value, str) for value in selector.values()):
        raise Unsupported("capacity.node_selector: must be a map of texts")
    container: dict[str, Any] = {
        "name": "nymph",
        "image": str(said.get("image") or kwargs.get("image") or IMAGE),
        "command": ["sh", "-c", machine.userdata],
        **({"resources": {"requests": wanted, "limits": limits}} if wanted else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"lakeshore-{machine.worker}",
            "labels": {"app.kubernetes.io/managed-by": "lakeshore", **tags_of(machine)},
            "annotations": {
                f"{_PREFIX}/label": machine.label,
                **({f"{_PREFIX}/tags": json.dumps(dict(machine.cloud_tags))} if machine.cloud_tags else {}),
            },
        },
        "spec": {
            "restartPolicy": "Always" if machine.keep_alive_s < 0 else "OnFailure",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
            **({"nodeSelector": selector} if selector else {}),
            "containers": [container],
        },
    }


def _amount(name: str, value: Any) -> str:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]+(\.[0-9]+)?([munkKMGTPE]i?)?", text):
        raise Unsupported(f"capacity.{name}: {text!r:.40} is no quantity of Kubernetes, such as 2, 500m or 16Gi")
    return text


def _workers(told: Any) -> dict[str, str]:
    """Of kubectl's pods those that are ours: which worker each is, by its name."""
    found: dict[str, str] = {}
    for row in rows_of(map_of(told).get("items")):
        named = map_of(row.get("metadata"))
        worker = map_of(named.get("labels")).get(WORKER_TAG)
        if isinstance(worker, str):
            found[str(named.get("name"))] = worker
    return found


def _create(kube: _Kubectl, pod: dict[str, Any]) -> None:
    """Make it, unless an earlier try has."""
    try:
        kube.said("create", "-f", "-", stdin=json.dumps(pod))
    except ToolSlow as error:
        raise LaunchUnknown(str(error), hint=error.hint) from error
    except ToolError as error:
        if "AlreadyExists" in str(error):
            return
        raise LaunchFailed(str(error), hint=error.hint) from error


@contextmanager
def _kubectl(provider: Resolved) -> Iterator[_Kubectl]:
    """kubectl for a provider, while the block lasts. Unusable."""
    given, context = provider.kwargs.get("kubeconfig"), provider.kwargs.get("context")
    if not is_inline(given):
        yield _Kubectl(kubectl(provider.kwargs), {})
        return
    with tempfile.NamedTemporaryFile("w", prefix="lakeshore-kube-", encoding="utf-8") as file:  # 0600
        file.write(harmless(str(given), context))
        file.flush()
        yield _Kubectl(kubectl({**provider.kwargs, "kubeconfig": str(Path(file.name))}), _NO_POD)
