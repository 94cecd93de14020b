"""The body of hello, and reading its answer.

Rules: the machine is called by its host's name unless the file names it. The label travels as the file has it: a worker
is (machine, label), and one that is empty is shown as something else only in lists. No lanes and no public key are no
keys of the body. `updated_capabilities` of a later poll is the same map as `capabilities`.
Reference: nymph/protocol, "Hello"; N-090…N-104, N-142.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..wire.messages import Versions
from ..wire.values import value
from .config import Config
from .detect import HostFacts
from .detecting.tags import merge_runners, merge_tags
from .told import number


@value
class HelloAnswer:
    """What is read of the answer; session token, its life, config and cursor are not. `reject` is (code, message)."""

    worker_id: str | None = None
    key_id: str | None = None
    server_time_epoch_s: float | None = None
    key_rotation_max_age_s: float | None = None
    reject: tuple[str, str] | None = None

    def name(self, provisional: str) -> str:
        """What this worker is called from now on, in what it sends and signs."""
        return self.worker_id or provisional


def capabilities(config: Config, facts: HostFacts, *, workdir: str | None = None) -> dict[str, Any]:
    """What this host can run. `workdir` where it is not the file's."""
    return {
        "runners": list(merge_runners(config.runtime.runners, facts.runners)),
        "max_invocations": config.runtime.max_invocations,
        "workdir": workdir or config.runtime.workdir,
    }


def hello_body(
    config: Config,
    facts: HostFacts,
    *,
    machine_id: str,
    workdir: str | None = None,
    public_key: str | None = None,
) -> dict[str, Any]:
    """The body; a session and adopted claims are added by whoever has them."""
    body: dict[str, Any] = {
        "machine_id": machine_id,
        "label": config.daemon.label,
        "tags": list(merge_tags(config.daemon.tags, facts.tags)),
        "capabilities": capabilities(config, facts, workdir=workdir),
        "versions": versions_body(facts.versions),
    }
    if config.daemon.lanes:
        body["lanes"] = list(config.daemon.lanes)
    if public_key is not None:
        body["public_key"] = public_key
    return body


def versions_body(versions: Versions) -> dict[str, Any]:
    """As it travels: what was not found is null."""
    body = asdict(versions)
    return {**body, "gpu": None if versions.gpu is None else list(versions.gpu)}


def read_answer(answer: Mapping[str, Any]) -> HelloAnswer:
    """Read an answer. Fields of another type are as if they were not there: a daemon outlives its server's version."""
    reject = answer.get("reject")
    refused = None
    if isinstance(reject, Mapping):
        refused = (_text(reject.get("code")) or "rejected", _text(reject.get("message")) or "")
    elif reject:
        refused = ("rejected", str(reject))
    return HelloAnswer(
        worker_id=_text(answer.get("worker_id")),
        key_id=_text(answer.get("key_id")),
        server_time_epoch_s=number(answer.get("server_time_epoch_s")),
        key_rotation_max_age_s=number(answer.get("key_rotation_max_age_s")),
        reject=refused,
    )


def _text(said: object) -> str | None:
    return said if isinstance(said, str) and said else None
