"""Asking a tool of this machine, within a time limit.

Rules: no shell; nothing on its standard input but what is given; its own session, and all of it is killed when the time
is over. A tool that is missing, fails, takes too long or says too much is a sentence that names it, and what to do.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

LIMIT_S: Final = 15.0
_MOST_BYTES: Final = 16 * 1024 * 1024
_LONGEST: Final = 400
_LOOK_S: Final = 0.05
"""How long a tool may print before its files are measured."""
_INSTALL: Final = {
    "aws": "install the AWS CLI (Python: pip install awscli)",
    "gcloud": "install the Google Cloud CLI",
    "sinfo": "SLURM's clients are on a cluster's login node; `lakeshore ssh discover` lists hosts",
    "squeue": "SLURM's clients are on a cluster's login node: give the provider its host, `--kwarg host=<login-node>`",
    "srun": "SLURM's clients are on a cluster's login node: give the provider its host, `--kwarg host=<login-node>`",
    "kubectl": "install kubectl, and point KUBECONFIG at your cluster's configuration",
    "docker": "install the Docker client (Debian: docker.io)",
}


class ToolError(Exception):
    """`str()` is the sentence; `hint` says what to do, or None."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ToolMissing(ToolError):
    """It is not on PATH."""


class ToolSlow(ToolError):
    """It did not end in time: what it was to do may have been done."""


def need(name: str) -> str:
    """Where a tool is. ToolMissing."""
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"there is no {name} on PATH", hint=_INSTALL.get(name))
    return found


def said_by(
    argv: Sequence[str],
    *,
    limit_s: float = LIMIT_S,
    stdin: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """What a tool prints when it exits with 0. ToolError."""
    words = [need(argv[0]), *argv[1:]]
    env = {**os.environ, **(environ or {}), "LC_ALL": "C"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write((stdin or "").encode())
        given.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603  (a known tool, no shell)
                words, stdin=given, stdout=out, stderr=err, env=env, start_new_session=True
            )
        except OSError as error:
            raise ToolError(f"cannot start {argv[0]}: {error.strerror or error}") from error
        try:
            code = _code(process, limit_s, argv[0], out, err)
        except subprocess.TimeoutExpired:
            raise ToolSlow(
                f"{argv[0]} did not answer within {limit_s:g} s", hint="look at what it waits for: run it by hand"
            ) from None
        finally:
            if process.poll() is None:
                _end(process)
        out.seek(0)
        text = out.read()
        err.seek(0)
        complaint = err.read(64 * 1024).decode("utf-8", "replace")
    if code != 0:
        raise ToolError(f"{argv[0]} ended with exit code {code}: {_last_line(complaint) or 'it does not say why'}")
    return text.decode("utf-8", "replace")


def json_of(argv: Sequence[str], **options: Any) -> Any:
    """The same, as JSON. ToolError for what is none."""
    return json_said(argv[0], said_by(argv, **options) or "null")


def json_said(tool: str, text: str) -> Any:
    """What a tool printed, as JSON. ToolError for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{tool} answered with something else than JSON: {text[:80].strip()!r}") from error


def text_of(row: Mapping[str, Any], name: str) -> str | None:
    """A text of what a tool told; None for what is none, or is empty."""
    found = row.get(name)
    return found if isinstance(found, str) and found and "\0" not in found else None


def rows_of(value: Any) -> list[Mapping[str, Any]]:
    """The maps in a list that a tool told; none of what is no list."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def map_of(value: Any) -> Mapping[str, Any]:
    """A map that a tool told; an empty one for what is none."""
    return value if isinstance(value, Mapping) else {}


def _code(process: subprocess.Popen[bytes], limit_s: float, tool: str, *files: IO[bytes]) -> int:
    """Its exit code. What it prints lies on a disk, which it shall not fill. ToolError, TimeoutExpired."""
    until = time.monotonic() + limit_s
    while True:
        left = until - time.monotonic()
        try:
            code = process.wait(min(max(left, 0.0), _LOOK_S))
        except subprocess.TimeoutExpired:
            if left <= 0:
                raise
            code = None
        if max(os.fstat(file.fileno()).st_size for file in files) > _MOST_BYTES:
            raise ToolError(f"{tool} says more than {_MOST_BYTES // 2**20} MiB")
        if code is not None:
            return code


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""
