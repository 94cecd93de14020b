"""`python -m dreamlake.lakeshore.daemon`: a worker as a process. `lakeshore worker` starts exactly this.

The first SIGINT or SIGTERM drains: the running job finishes, then the process exits 0. The second stops the body, gives
the job back and exits 130 or 143; a third ends the process at once. A body that cannot be stopped is reported, and the
process replaces itself by a fresh one with the same arguments; one that also keeps the interpreter locked past its time
limit ends the process, and its job is lost with it.

The process's credentials are taken out of the environment before any body runs; a body's own submits use the worker's
plane all the same.
Reference: python-sdk/dispatch.md, "The worker entrypoint". Flags win, the environment fills the gaps.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ...heap import keep_freed_memory
from ..ambient import set_process_plane
from ..default_plane import home
from ..dispatch import Dispatch
from ..errors import DispatchError, WorkerError
from ..interrupts import GRACE_S
from ..queues import SyncQueue
from ..transport import POLICIES
from ..worker import Worker
from .process import hide_secrets, leave, say, token

FAILED = 1
REFUSED = 2
"""As for flags that cannot be: the server does not want this worker as it is, and no restart mends that."""
_NOT_AS_IT_IS = (401, 403, 404)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the flags and the environment say."""

    queue: str
    root: str | None
    url: str | None
    namespace: str
    token: str | None
    once: bool
    allow_pickled: bool
    runtime_policy: str
    worker_id: str | None
    storage: str | None


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker; the exit code: 0, 1 failed, 2 usage or refused (its token, its namespace), 130 and 143 stopped by a
    second signal.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="lakeshore worker: %(message)s")
    settings = read_settings(argv)
    keep_freed_memory()
    again = _Again.at_start(once=settings.once)
    hide_secrets()
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # the user's modules are where the worker is started
    try:
        plane = _plane(settings)
    except (DispatchError, ValueError) as error:
        return _failed(str(error))
    set_process_plane(plane)
    _announce(settings, plane)
    try:
        worker = _worker(settings, plane, again)
    except (DispatchError, TypeError) as error:
        return _failed(str(error))
    try:
        with _signals(worker) as received:
            return _run(worker, received, again)
    finally:
        with contextlib.suppress(DispatchError):
            plane.close()


def _worker(settings: Settings, plane: Any, again: _Again) -> Worker:
    """DispatchError, TypeError for a storage that cannot be named."""
    return Worker(
        SyncQueue(settings.queue, dispatch=plane),
        root=settings.root,
        storage=settings.storage,
        once=settings.once,
        allow_pickled=settings.allow_pickled,
        runtime_policy=settings.runtime_policy,
        worker_id=settings.worker_id,
        on_stuck=again.replace,
        own_process=True,
        grace_s=GRACE_S,
        may_pass=None if settings.once or settings.url is None else _passing,
        printed=None if settings.url is None else _printed(plane),
    )


def read_settings(argv: Sequence[str] | None = None) -> Settings:
    """Flags, then the environment. Exits 2 for what cannot be read, as argparse does."""
    environ = os.environ
    parser = argparse.ArgumentParser(
        prog="python -m dreamlake.lakeshore.daemon", description="Run the @udf jobs of one queue.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--queue", default=environ.get("LAKESHORE_QUEUE") or "default", help="queue to drain (LAKESHORE_QUEUE)")
    add("--root", default=environ.get("LAKESHORE_ROOT") or None, help="root of dls.run keys (LAKESHORE_ROOT; cwd)")
    add("--url", default=environ.get("LAKESHORE_URL") or None, help="control plane (LAKESHORE_URL; unset: local file)")
    add("--namespace", default=environ.get("LAKESHORE_NAMESPACE") or "default", help="LAKESHORE_NAMESPACE")
    add("--token", default=None, help="bearer token for --url (LAKESHORE_CLIENT_TOKEN)")
    add("--once", action="store_true", help="drain at most one job, then exit")
    add("--allow-pickled", action="store_true", help="run functions that were sent by value")
    policy = environ.get("LAKESHORE_RUNTIME_POLICY") or "minor"
    add("--runtime-policy", default=policy, help="strict | minor | off (LAKESHORE_RUNTIME_POLICY)")
    add("--storage", default=None, help="storage that dls.run reads from and writes to, besides the root")
    add("--worker-id", default=None, help="name of this worker (default: from host and process)")
    given = parser.parse_args(argv)
    if given.runtime_policy not in POLICIES:
        parser.error(f"unknown runtime policy {given.runtime_policy!r}; use strict | minor | off")
    if given.root is not None and not os.path.isdir(os.path.expanduser(given.root)):
        parser.error(f"--root {given.root}: no such directory")
    return Settings(
        queue=given.queue,
        root=given.root,
        url=given.url,
        namespace=given.namespace,
        token=given.token or token(),
        once=given.once,
        # One machine and one user are one trust domain.
        allow_pickled=given.allow_pickled or given.url is None,
        runtime_policy=given.runtime_policy,
        worker_id=given.worker_id,
        storage=given.storage,
    )


def _plane(settings: Settings) -> Any:
    if settings.url is None:
        return Dispatch(home() / "dispatch.sqlite", ns=settings.namespace)
    from ..http_dispatch import HttpDispatch  # at its wall: a local worker loads no HTTP client

    return HttpDispatch(settings.url, token=settings.token, namespace=settings.namespace)


def _printed(plane: Any) -> Any:
    from ..printed import Printed  # at its wall: as above

    printed = Printed(plane.client)
    printed.install()
    return printed


def _announce(settings: Settings, plane: Any) -> None:
    where = settings.url or plane.path
    say(f"lakeshore worker: queue {settings.queue!r} on {where} (namespace {settings.namespace})")
    if settings.url is None and any(os.path.exists(path) for path in _logins()):
        say(
            "lakeshore worker: a saved login exists and is not used here; "
            "pass --url and --token (or LAKESHORE_URL and LAKESHORE_CLIENT_TOKEN) to serve a control plane's queue"
        )


def _logins() -> Iterator[str]:
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    yield os.path.expanduser(os.path.join(config, "lakeshore", "auth.yml"))


def _failed(sentence: str) -> int:
    say(sentence)
    return FAILED


def _run(worker: Worker, received: list[int], again: _Again) -> int:
    try:
        worker.run()
    except WorkerError as error:
        say(f"lakeshore worker: {error}")
        again.replace(FAILED)
    except DispatchError as error:
        say(f"lakeshore worker: {error}")
        return REFUSED if getattr(error, "status", None) in _NOT_AS_IT_IS else FAILED
    return 128 + received[1] if len(received) > 1 else 0


def _passing(error: DispatchError) -> bool:
    """Whether time may mend it: a server that is away may come back, a token that is refused is refused."""
    status = getattr(error, "status", None)
    return status is None or status == 429 or status >= 500


@contextlib.contextmanager
def _signals(worker: Worker) -> Iterator[list[int]]:
    received: list[int] = []

    def on_signal(number: int, _frame: Any) -> None:
        received.append(number)
        if len(received) == 1:
            if worker.busy:
                with contextlib.suppress(OSError):  # not print: what was interrupted may be in the middle of one
                    os.write(2, b"lakeshore worker: leaving when the running job finishes; once more stops it\n")
            worker.drain()
        elif len(received) == 2:
            worker.give_back()
        else:
            os._exit(128 + number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """How this process was started, to start it so again: bodies change the directory and the environment."""

    directory: str
    environment: dict[str, str]
    once: bool

    @classmethod
    def at_start(cls, *, once: bool) -> _Again:
        return cls(directory=os.getcwd(), environment=dict(os.environ), once=once)

    def replace(self, code: int = 0) -> NoReturn:
        """End this process image, whatever its threads are stuck in and whatever was closed; go on as a fresh one, or
        exit with `code` when one job was asked for.
        """
        try:
            if not self.once:
                os.chdir(self.directory)
                os.execve(sys.executable, sys.orig_argv, self.environment)  # noqa: S606  # the very same command
        finally:
            os._exit(code if self.once else FAILED)


if __name__ == "__main__":
    leave(main())
