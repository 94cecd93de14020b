"""What a provider's launcher runs now, asked with this machine's own tools; and how an instance is ended.

    EC2    aws ec2 describe-instances | terminate-instances         keys of the provider, else the profile's or your own
    GCE    gcloud compute instances list | delete
    Kube   kubectl get pods
    SLURM  squeue, here or over ssh on the host that the provider names

States are those of the server's rows of hosts: starting, running, stopping, stopped, terminated, unknown.
Reference: cli/examples/providers-and-discover, "instances", "terminate"; C-105, C-106, S-146, S-147, S-630.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .tools import ToolError, json_of, map_of, rows_of, said_by

Kwargs = Mapping[str, Any]
Elsewhere = Callable[[Sequence[str], float], str]
"""(words, seconds) -> what they print on the host that a provider leads to."""
_EC2: Final = {"pending": "starting", "running": "running", "shutting-down": "stopping", "stopping": "stopping"}
_GCE: Final = {
    "PROVISIONING": "starting",
    "STAGING": "starting",
    "RUNNING": "running",
    "REPAIRING": "starting",
    "STOPPING": "stopping",
    "SUSPENDING": "stopping",
    "SUSPENDED": "stopped",
    "TERMINATED": "stopped",
}
_KUBE: Final = {"Pending": "starting", "Running": "running", "Succeeded": "terminated", "Failed": "terminated"}
_SLURM: Final = {"PENDING": "starting", "CONFIGURING": "starting", "RUNNING": "running", "COMPLETING": "stopping"}
SQUEUE: Final = ("squeue", "--noheader", "--me", "-o", "%i|%T|%P|%N|%S|%j")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One. `type` is the machine's, or the partition; `since` as the tool says it."""

    id: str
    state: str
    name: str | None
    type: str | None
    address: str | None
    since: str | None


def instances(launcher: str, kwargs: Kwargs, *, limit_s: float, elsewhere: Elsewhere | None = None) -> list[Instance]:
    """Every one that is not gone. ToolError."""
    if launcher == "EC2":
        return of_ec2(json_of(_aws("describe-instances", kwargs), limit_s=limit_s, environ=_keys(kwargs)))
    if launcher == "GCE":
        words = ["gcloud", "compute", "instances", "list", "--format=json", *_project(kwargs)]
        return of_gce(json_of(words + ([f"--zones={kwargs['zone']}"] if kwargs.get("zone") else []), limit_s=limit_s))
    if launcher == "Kube":
        return of_kube(json_of([*kubectl(kwargs), "get", "pods", "-o", "json"], limit_s=limit_s))
    if launcher == "SLURM":
        text = said_by(SQUEUE, limit_s=limit_s) if elsewhere is None else elsewhere(SQUEUE, limit_s)
        return of_slurm(text.splitlines())
    raise ToolError(f"{launcher} makes no instances: it is one host", hint="`lakeshore ssh probe <alias>` tries it")


def terminate(launcher: str, kwargs: Kwargs, instance: str, *, limit_s: float) -> None:
    """End one. ToolError."""
    if launcher == "EC2":
        words = [*_aws("terminate-instances", kwargs), "--instance-ids", instance]
        said_by(words, limit_s=limit_s, environ=_keys(kwargs))
    elif launcher == "GCE":
        if not kwargs.get("zone"):
            raise ToolError("the provider does not say in which zone it is", hint="--kwarg zone=<zone> says so")
        words = ["gcloud", "compute", "instances", "delete", instance, "--quiet", f"--zone={kwargs['zone']}"]
        said_by([*words, *_project(kwargs)], limit_s=limit_s)
    else:
        raise ToolError(f"only instances of EC2 and GCE are terminated, and this is {launcher}")


def kubectl(kwargs: Kwargs) -> list[str]:
    """kubectl with the provider's context and namespace."""
    given = (("--kubeconfig", "kubeconfig"), ("--context", "context"), ("--namespace", "namespace"))
    return ["kubectl", *(word for flag, name in given if kwargs.get(name) for word in (flag, str(kwargs[name])))]


def of_ec2(told: Any) -> list[Instance]:
    """What `aws ec2 describe-instances --output json` prints."""
    found = []
    for reservation in rows_of(map_of(told).get("Reservations")):
        for row in rows_of(reservation.get("Instances")):
            state = str(map_of(row.get("State")).get("Name"))
            if state == "terminated":
                continue
            tags = {str(tag.get("Key")): tag.get("Value") for tag in rows_of(row.get("Tags"))}
            found.append(
                Instance(
                    id=str(row.get("InstanceId")),
                    state=_EC2.get(state, state if state == "stopped" else "unknown"),
                    name=tags.get("Name"),
                    type=row.get("InstanceType"),
                    address=row.get("PublicIpAddress") or row.get("PrivateIpAddress"),
                    since=row.get("LaunchTime"),
                )
            )
    return found


def of_gce(told: Any) -> list[Instance]:
    """What `gcloud compute instances list --format=json` prints."""
    found = []
    for row in rows_of(told):
        interfaces = rows_of(row.get("networkInterfaces"))
        first = interfaces[0] if interfaces else {}
        outside = rows_of(first.get("accessConfigs"))
        found.append(
            Instance(
                id=str(row.get("name")),
                state=_GCE.get(str(row.get("status")), "unknown"),
                name=row.get("name"),
                type=str(row.get("machineType") or "").rpartition("/")[2] or None,
                address=(outside[0].get("natIP") if outside else None) or first.get("networkIP"),
                since=row.get("lastStartTimestamp") or row.get("creationTimestamp"),
            )
        )
    return found


def of_kube(told: Any) -> list[Instance]:
    """What `kubectl get pods -o json` prints."""
    found = []
    for row in rows_of(map_of(told).get("items")):
        named, status = map_of(row.get("metadata")), map_of(row.get("status"))
        found.append(
            Instance(
                id=str(named.get("name")),
                state=_KUBE.get(str(status.get("phase")), "unknown"),
                name=named.get("name"),
                type=map_of(row.get("spec")).get("nodeName"),
                address=status.get("podIP"),
                since=status.get("startTime") or named.get("creationTimestamp"),
            )
        )
    return found


def of_slurm(lines: Sequence[str]) -> list[Instance]:
    """What `squeue` prints in our format."""
    found = []
    for line in lines:
        parts = line.strip().split("|", 5)
        if len(parts) == 6:
            id_, state, partition, nodes, since, name = parts
            found.append(
                Instance(
                    id=id_,
                    state=_SLURM.get(state, "unknown"),
                    name=name,
                    type=partition,
                    address=nodes or None,
                    since=since if since not in ("", "N/A") else None,
                )
            )
    return found


def _aws(verb: str, kwargs: Kwargs) -> list[str]:
    given = (("--region", "region"), ("--profile", "profile"))
    words = [word for flag, name in given if kwargs.get(name) for word in (flag, str(kwargs[name]))]
    return ["aws", "ec2", verb, "--output", "json", *words]


def _keys(kwargs: Kwargs) -> dict[str, str]:
    """The provider's own keys, where it has them; a secret of the server never comes here."""
    given = map_of(kwargs.get("aws_credentials"))
    key, secret = given.get("accessKeyId"), given.get("secretAccessKey")
    if not isinstance(key, str) or not isinstance(secret, str):
        return {"AWS_PAGER": ""}
    return {"AWS_PAGER": "", "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": ""}


def _project(kwargs: Kwargs) -> list[str]:
    return [f"--project={kwargs['project_id']}"] if kwargs.get("project_id") else []
