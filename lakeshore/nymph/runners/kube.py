"""The runner `kube`: an invocation as a pod.

The working directory and our two packages are mounted from the node (hostPath): daemon and node share a file system. In
a cluster of several nodes `run_config.kube.pvc` names a claim whose root is the daemon's directory of jobs.
Reference: nymph/daemons.md, "kube".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lakeshore._self import python_path

from ..workdir import Account, Workdir, WorkdirError
from .attended import Plan, command
from .docker import LIBRARY, WORKSPACE, seen_from_inside
from .given import pairs, seconds, settings, word
from .library import PACKAGES, copied
from .process import Run, job_id, job_variables, without_credentials

IMAGE, NAMESPACE = "python:3.12-slim", "default"
POLL_S = 5.0


class Kube:
    """Pods."""

    kind = "kube"

    async def prepare(self, run: Run, environ: Mapping[str, str], private: Path) -> dict[str, str]:
        return {}

    def plan(self, run: Run, workdir: Workdir, environ: Mapping[str, str], owner: Account | None) -> Plan:
        given = settings(run, "kube")
        kubectl = ["kubectl"]
        if given.get("context"):
            kubectl += ["--context", word(given["context"], "run_config.kube.context")]
        kubectl += ["--namespace", word(given.get("namespace") or NAMESPACE, "run_config.kube.namespace")]
        image = word(given.get("image") or run.run_config.get("image") or IMAGE, "run_config.kube.image")
        manifest = _manifest(run, workdir, given, image, owner)
        told = {
            "kubectl": kubectl,
            "manifest": manifest,
            "image": image,
            "poll_s": seconds(given.get("poll_interval_s"), "run_config.kube.poll_interval_s", POLL_S),
        }
        sweep = [*kubectl, "delete", "pod", manifest["metadata"]["name"], "--ignore-not-found", "--wait=false"]
        return Plan(told, env=without_credentials(environ), sweep=sweep)


def _manifest(
    run: Run, workdir: Workdir, given: Mapping[str, Any], image: str, owner: Account | None
) -> dict[str, Any]:
    uid, gid = (os.geteuid(), os.getegid()) if owner is None else (owner.uid, owner.gid)
    env = {
        "PYTHONUNBUFFERED": "1",
        **pairs(run.run_config.get("env"), "run_config.env"),
        **pairs(given.get("env"), "run_config.kube.env"),
    }
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (LIBRARY, env.get("PYTHONPATH"))))
    env |= {**job_variables(run, WORKSPACE), **seen_from_inside(run, workdir, WORKSPACE)}
    volumes, mounts = _volumes(workdir, given)
    container = {
        "name": "job",
        "image": image,
        "command": command(run, workdir, "python", WORKSPACE),
        "workingDir": WORKSPACE,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": mounts,
        "resources": _resources(given),
        "securityContext": {"runAsUser": uid, "runAsGroup": gid},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name(run), "labels": {"app.kubernetes.io/managed-by": "lakeshore"}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": volumes,
        },
    }


def pod_name(run: Run) -> str:
    """Of one attempt, as DNS takes it."""
    return f"lakeshore-{re.sub(r'[^a-z0-9-]+', '-', job_id(run).lower())}"[:63].rstrip("-")


def _volumes(workdir: Workdir, given: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    if given.get("pvc"):
        claim = {"claimName": word(given["pvc"], "run_config.kube.pvc")}
        root = workdir.path.parent
        library = Path(copied(python_path()[0], root)).name
        mounts: list[dict[str, Any]] = [{"name": "jobs", "mountPath": WORKSPACE, "subPath": workdir.path.name}]
        mounts.append({"name": "jobs", "mountPath": LIBRARY, "subPath": library, "readOnly": True})
        return [{"name": "jobs", "persistentVolumeClaim": claim}], mounts
    volumes: list[dict[str, Any]] = [{"name": "workdir", "hostPath": {"path": str(workdir.path), "type": "Directory"}}]
    mounts = [{"name": "workdir", "mountPath": WORKSPACE}]
    for name in PACKAGES:
        path = os.path.join(python_path()[0], name)
        volumes.append({"name": name, "hostPath": {"path": path, "type": "Directory"}})
        mounts.append({"name": name, "mountPath": f"{LIBRARY}/{name}", "readOnly": True})
    return volumes, mounts


def _resources(given: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {name: word(given[name], f"run_config.kube.{name}") for name in ("cpu", "memory") if given.get(name)}
    limits = dict(wanted)
    if given.get("gpu"):
        gpus = given["gpu"]
        if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
            raise WorkdirError(f"run_config.kube.gpu — how many (got {gpus!r})")
        limits["nvidia.com/gpu"] = str(gpus)
    return {name: value for name, value in (("requests", wanted), ("limits", limits)) if value}
