"""What a person may ask a worker to run: the fields of a submit, and how large each may be.

A command is one argument of `bash -c`, and a variable one string of an environment: Linux takes 128 KiB of each.
Reference: nymph/protocol, "exec"; get-started/payloads; S-263…S-265, S-321.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ...wire.messages import INLINE_THRESHOLD_BYTES
from ...wire.names import check_queue
from ..structure import bad_field, structure

STRING_BYTES: Final = 128 * 1024 - 1
ENV_BYTES: Final = 1024 * 1024
STDIN_BYTES: Final = 8 * 1024 * 1024
LONGEST_TIMEOUT_S: Final = 366 * 86400.0
_LONGEST_PATH: Final = 4095
_SPELLINGS: Final = (("payloadInline", "payload_inline"), ("payloadRef", "payload_ref"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadNamed:
    """A payload that was uploaded; `size` in bytes."""

    key: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecAsked:
    """A submit's body. `stdin_b64` is `stdin` for who has no bytes; `timeout_s` in seconds.

    `log`: what it prints is sent while it runs, else at its end, 1 MiB of each stream.
    """

    command: str = ""
    env: dict[str, str] = field(default_factory=dict, repr=False)
    stdin: bytes | None = field(default=None, repr=False)
    stdin_b64: str | None = field(default=None, repr=False)
    workdir: str | None = None
    timeout_s: float | None = None
    queue: str | None = None
    worker_id: str | None = None
    log: bool = False
    payload_inline: bytes | None = field(default=None, repr=False)
    payload_ref: PayloadNamed | None = None


def read(body: dict[str, Any], encoding: str) -> ExecAsked:
    """A body, checked. HttpError 413, 422."""
    for documented, name in _SPELLINGS:
        if body.get(name) is None:
            body[name] = body.get(documented)
    asked = structure(body, ExecAsked, encoding)
    if asked.stdin_b64 is not None:
        if asked.stdin is not None:
            raise bad_field("stdin_b64", "stdin and stdin_b64 exclude each other")
        try:
            asked = replace(asked, stdin=base64.b64decode(asked.stdin_b64, validate=True), stdin_b64=None)
        except ValueError:
            raise bad_field("stdin_b64", "is not base64") from None
    _check_command(asked)
    _check_env(asked.env)
    if asked.stdin is not None and len(asked.stdin) > STDIN_BYTES:
        raise bad_field(
            "stdin",
            f"has {len(asked.stdin)} bytes, the limit is {STDIN_BYTES} (8 MiB)",
            hint="upload it (payloads/presign) and have the command fetch it, or copy it with ssh",
            status=413,
        )
    if asked.workdir is not None and (not 0 < len(asked.workdir.encode()) <= _LONGEST_PATH or "\0" in asked.workdir):
        raise bad_field("workdir", f"must be a path of 1 to {_LONGEST_PATH} bytes")
    if asked.timeout_s is not None and not 0 < asked.timeout_s <= LONGEST_TIMEOUT_S:
        raise bad_field("timeout_s", "must be more than 0 seconds, at most a year; leave it out for none")
    if asked.queue is not None:
        check_queue(asked.queue)
    if asked.worker_id is not None and not asked.worker_id:
        raise bad_field("worker_id", "must name a worker")
    return asked


def _check_command(asked: ExecAsked) -> None:
    inline = asked.payload_inline
    if inline is not None and asked.payload_ref is not None:
        raise bad_field("payloadRef", "payloadInline and payloadRef exclude each other")
    if inline is not None and len(inline) > INLINE_THRESHOLD_BYTES:
        raise bad_field(
            "payloadInline",
            f"has {len(inline)} bytes, the limit is {INLINE_THRESHOLD_BYTES} (256 KiB)",
            hint="upload it (payloads/presign) and send payloadRef",
            status=413,
        )
    if not asked.command.strip() and inline is None and asked.payload_ref is None:
        raise bad_field("command", "is required")
    if "\0" in asked.command:
        raise bad_field("command", "must not hold a null character")
    if (size := len(asked.command.encode())) > STRING_BYTES:
        raise bad_field(
            "command",
            f"has {size} bytes, the limit is {STRING_BYTES} (128 KiB)",
            hint="send a long script as stdin, to the command `bash -s`",
            status=413,
        )


def _check_env(env: dict[str, str]) -> None:
    total = 0
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise bad_field("env", f"{name!r:.80} is no variable: a name without '=', and no null characters")
        size = len(name.encode()) + len(value.encode()) + 1
        if size > STRING_BYTES:
            raise bad_field("env", f"{name!r:.80} has {size} bytes, the limit is {STRING_BYTES} (128 KiB)", status=413)
        total += size
    if total > ENV_BYTES:
        raise bad_field("env", f"has {total} bytes, the limit is {ENV_BYTES} (1 MiB)", status=413)
