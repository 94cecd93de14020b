"""A pod: `kubectl apply`, then its phase now and again, and `kubectl delete pod` in any case at the end.

Output comes from `kubectl logs`: followed once it runs, and what that missed is fetched at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from .elsewhere import ERROR, RESULT, Elsewhere, Unable, asked, nap, said, warn, write_all

IMAGE_PATIENCE_S = 60.0
"""How long an image may fail to be pulled before the job fails, seconds."""
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_CONTAINER = ".status.containerStatuses[0].state"


class Pod(Elsewhere):
    """`kubectl` is the command with its context and namespace, `manifest` the pod, `poll_s` the time between looks."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(told)
        self._kubectl: list[str] = told["kubectl"]
        self._name: str = told["manifest"]["metadata"]["name"]
        self._poll_s = float(told["poll_s"])
        self._logs: subprocess.Popen[bytes] | None = None
        self._shown = 0

    def run(self) -> int:
        try:
            done = self._asked("apply", "--validate=false", "-f", "-", stdin=json.dumps(self.told["manifest"]))
            if done.returncode != 0:
                raise Unable("KubeError", f"kubectl could not create the pod: {said(done)}")
            phase = self._follow()
            self._rest_of_the_log()
            if phase == "Succeeded":
                return 0
            return self._failed(phase)
        finally:
            self._delete()

    def stop(self) -> None:
        self.stopping = True

    def _follow(self) -> str:
        due, no_image = time.monotonic(), None
        while not self.stopping:
            self._copy()
            if self.left(RESULT) or self.left(ERROR):
                due = min(due, time.monotonic() + 0.5)
            if time.monotonic() >= due:
                due = time.monotonic() + self._poll_s
                phase = self._phase()
                if phase in ("Succeeded", "Failed", ""):
                    return phase
                if phase == "Running" and self._logs is None:
                    self._begin_log()
                no_image = self._check_image(no_image) if phase == "Pending" else None
            nap(due)
        return "Stopped"

    def _phase(self) -> str:
        """ "" once there is no such pod."""
        done = self._asked("get", "pod", self._name, "-o", "jsonpath={.status.phase}")
        if done.returncode == 0:
            return done.stdout.strip() or "Pending"
        if "NotFound" in done.stderr or "not found" in done.stderr:
            return ""
        warn(f"kubectl get pod {self._name}: {said(done)}; trying again")
        return "Unknown"

    def _check_image(self, since: float | None) -> float | None:
        reason = self._field(f"{_CONTAINER}.waiting.reason")
        if reason not in _NO_IMAGE:
            return None
        since = time.monotonic() if since is None else since
        if time.monotonic() - since > IMAGE_PATIENCE_S:
            why = self._field(f"{_CONTAINER}.waiting.message") or reason
            raise Unable("ImageError", f"the cluster cannot pull the image {self.told['image']}: {why}")
        return since

    def _failed(self, phase: str) -> int:
        if phase == "":
            self.explain("KubeError", f"the pod {self._name} was deleted by somebody else")
            return 1
        if phase == "Stopped":
            return 1
        code = self._field(f"{_CONTAINER}.terminated.exitCode")
        reason = self._field(f"{_CONTAINER}.terminated.reason")
        self.explain("KubeError", f"the pod ended as Failed, exit code {code or 'unknown'}, reason {reason or 'Error'}")
        return int(code) if code.isdecimal() and int(code) else 1

    def _field(self, path: str) -> str:
        done = self._asked("get", "pod", self._name, "-o", f"jsonpath={{{path}}}")
        return done.stdout.strip() if done.returncode == 0 else ""

    def _begin_log(self) -> None:
        argv = [*self._kubectl, "logs", "-f", self._name]
        self._logs = subprocess.Popen(  # noqa: S603  (kubectl)
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._logs.stdout is not None
        os.set_blocking(self._logs.stdout.fileno(), False)

    def _copy(self) -> None:
        if self._logs is None or self._logs.stdout is None:
            return
        while data := self._logs.stdout.read(1 << 16):
            self._shown += len(data)
            write_all(1, data)

    def _rest_of_the_log(self) -> None:
        if self._logs is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._logs.wait(timeout=2)
            self._copy()
        done = subprocess.run(  # noqa: S603  (kubectl)
            [*self._kubectl, "logs", self._name], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode == 0:
            write_all(1, done.stdout[self._shown :])

    def _delete(self) -> None:
        if self._logs is not None:
            self._logs.kill()
            self._logs.wait()
        done = self._asked("delete", "pod", self._name, "--ignore-not-found", "--wait=false")
        if done.returncode != 0:
            warn(f"the pod {self._name} could not be deleted: {said(done)}")

    def _asked(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return asked([*self._kubectl, *words], stdin=stdin)
