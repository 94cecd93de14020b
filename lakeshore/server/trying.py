"""A script on a machine that a provider makes for it, and that ends with it: `providers test` for EC2 and GCE.

The script is the setup command of a worker that serves a queue which nobody knows. Whoever asked is told how it ended;
the machine ends whatever came of it. A server that is killed meanwhile leaves a worker whose daemon leaves by itself
once it had nothing to do, and whose machine ends then (`hosts.py`).
Reference: cli/examples/providers-and-discover, "providers test"; S-145.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import trio

from .bootstrap.script import quoted
from .http import HttpError
from .launchers.contract import LaunchFailed
from .launching import Launched, Launching, LaunchSpec
from .records import Records
from .workers import SETUP

DEFAULT_S: Final = 600.0
_KEEP_ALIVE_S: Final = 300
_LOOK_S: Final = 0.5
_ENDING_S: Final = 90.0
_LINES: Final = 20
_SHELL: Final = re.compile(r"#!\s*/\S*?(?:env\s+)?(?:ba|da)?sh\b")
_OURS: Final = """#!/bin/sh
uname -srm
python3 --version || :
if command -v nvidia-smi >/dev/null; then nvidia-smi -L; fi
echo ok
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """How a script ended. `instance`: where it ran."""

    exit_code: int
    stdout: str
    stderr: str
    error: str | None
    instance: str | None


async def tried(
    launching: Launching, records: Records, ns: str, provider: str, *, script: str | None, timeout_s: float, actor: str
) -> Tried:
    """HttpError as for a launch; 502 when the script has not ended in time, with what the console says."""
    name = f"test-{records.new_id()[-12:].lower()}"
    wanted = LaunchSpec(
        provider=provider,
        name=name,
        queues=(name,),
        keep_alive_s=_KEEP_ALIVE_S,
        setup_commands=({"script": _bash(_OURS if script is None else script), "name": "test"},),
    )
    (made,) = await launching.launch(ns, wanted, actor=actor)
    try:
        with trio.move_on_after(timeout_s):
            return await _ended(records, ns, made)
        raise HttpError(
            502,
            f"the script had not ended on its machine after {timeout_s:g} s",
            hint="give it longer; or `lakeshore daemon launch` and `launch-log`, which leave the machine to look at",
            console=await _console(launching, records, ns, made),
        )
    finally:
        with trio.move_on_after(_ENDING_S, shield=True):
            await launching.end(ns, made.worker, actor=actor)


async def _ended(records: Records, ns: str, made: Launched) -> Tried:
    while True:
        found = await _outcome(records, ns, made)
        if found is not None:
            return found
        await trio.sleep(_LOOK_S)


async def _outcome(records: Records, ns: str, made: Launched) -> Tried | None:
    if records.workers.get(ns, made.worker) is None:
        raise HttpError(409, "its daemon was killed meanwhile", hint="try again")
    (event, *_) = await records.events.page(ns, worker=made.worker, type=SETUP, limit=1) or (None,)
    if event is None:
        return None
    told = event.payload
    code = told.get("exit_code")
    return Tried(
        exit_code=code if isinstance(code, int) else -1,
        stdout=_text(told.get("stdout_tail")),
        stderr=_text(told.get("stderr_tail")),
        error=told.get("error"),
        instance=made.instance_id,
    )


async def _console(launching: Launching, records: Records, ns: str, made: Launched) -> str:
    """The end of what its machine printed; nothing where nobody knows."""
    machine = records.machines.get(ns, made.worker)
    if machine is None or machine.instance is None:
        return ""
    try:
        text = await launching.hosts.launcher_of(machine)[1].console(machine.instance)
    except (LaunchFailed, HttpError):  # it only adds to what is said
        return ""
    return "\n".join(text.splitlines()[-_LINES:])


def _bash(script: str) -> str:
    """A script whose first line names a shell is that shell's; any other is Python's, as over ssh."""
    if _SHELL.match(script):
        return script
    return f"exec python3 -u -c {quoted(script)}"


def _text(said: object) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said if isinstance(said, str) else ""
