"""A script in a pod of a Kubernetes cluster, through this machine's kubectl: made, followed to its end, and deleted.

Reference: cli/examples/providers-and-discover, "providers test"; C-104, S-151.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from .instances import kubectl
from .tools import ToolError, json_of, said_by

IMAGE: Final = "python:3.12-slim"
_BETWEEN_S: Final = 0.5
_NO_IMAGE: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_SHELL: Final = re.compile(rb"#!.*\b(ba|da|k|z|a)?sh\b")


def run(kwargs: Mapping[str, Any], script: bytes, *, limit_s: float) -> int:
    """Run it, its output on our own when it is over; its exit code. ToolError."""
    ends = time.monotonic() + limit_s
    words, name = kubectl(kwargs), f"lakeshore-test-{secrets.token_hex(4)}"
    said_by([*words, "create", "--validate=false", "-f", "-"], stdin=json.dumps(_pod(name, kwargs, script)))
    try:
        code = _end(words, name, ends)
        sys.stdout.write(said_by([*words, "logs", name]))
        sys.stdout.flush()
        return code
    finally:
        said_by([*words, "delete", "pod", name, "--ignore-not-found", "--wait=false"])


def _pod(name: str, kwargs: Mapping[str, Any], script: bytes) -> dict[str, Any]:
    program = ["bash", "-c"] if _SHELL.match(script) else ["python3", "-u", "-c"]
    container = {
        "name": "test",
        "image": str(kwargs.get("image") or IMAGE),
        "command": [*program, script.decode("utf-8", "replace")],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "lakeshore"}},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]},
    }


def _end(words: list[str], name: str, ends: float) -> int:
    """Its exit code when it is over. ToolError when that takes too long, or its image cannot be had."""
    while True:
        status = (json_of([*words, "get", "pod", name, "-o", "json"]) or {}).get("status") or {}
        containers = status.get("containerStatuses") or [{}]
        state = containers[0].get("state") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            usual = 0 if status["phase"] == "Succeeded" else 1
            return int((state.get("terminated") or {}).get("exitCode", usual))
        waiting = state.get("waiting") or {}
        if waiting.get("reason") in _NO_IMAGE:
            why = waiting.get("message") or waiting["reason"]
            raise ToolError(f"the cluster cannot pull the image: {why}", hint="--kwarg image=<image> names another")
        if time.monotonic() >= ends:
            raise ToolError(f"the pod is still {status.get('phase') or 'Pending'}", hint="--timeout gives it longer")
        time.sleep(_BETWEEN_S)
