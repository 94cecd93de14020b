"""Runs one claimed job: Envelope, function, run context, body, and the ending that its plane is told.

What a body does never ends the worker: its exceptions of every kind, `sys.exit`, a result that does not travel and an
error that cannot be printed are an ending of the job. What it changes in the process and a next body would trip over is
put back (`belongings`).

Not run again, whatever attempts remain: what is refused before the body begins (no Envelope, a function that this
worker may not or cannot run), what does not travel, and what was stopped at its time limit.
Reference: python-sdk/dispatch.md, "The worker loop"; python-sdk/udf.md.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lakeshore import wire
from lakeshore.wire.messages import MAX_PAYLOAD_BYTES

from . import failures
from .ambient import install_plane, uninstall_plane
from .belongings import Borrowed, Owned
from .bodies import run_body, stepped
from .context import RunContext, swap
from .errors import TransportError, WorkerError
from .functions import UDF
from .interrupts import Interrupter, Interruption
from .kept_writes import Keeps, store_writes
from .kinds import call_asyncgen, call_gen, call_sync
from .sources import Ending, FrameSink, Work
from .transport import Resolver
from .yields import Yields

_WHY = {"cancelled": "cancelled on request", "lost": "this worker lost its claim, and stopped the body"}


class Setup:
    """What a worker runs its jobs with. `root` is absolute; `plane` is where a body's own submits go; `owned` is of a
    worker process; `storage` is where keys are read from that are not here, and what was written is stored.
    """

    __slots__ = ("context", "owned", "plane", "resolve", "storage")

    def __init__(
        self,
        *,
        root: Path,
        registry: Mapping[str, Callable[..., Any]] | None = None,
        allow_pickled: bool = False,
        runtime_policy: str = "minor",
        plane: Any = None,
        owned: Owned | None = None,
        storage: Keeps | None = None,
    ) -> None:
        self.context = RunContext(root=root, storage=storage)
        self.storage = storage
        self.plane = plane
        self.owned = owned
        self.resolve = Resolver(registry=registry, allow_pickled=allow_pickled, runtime_policy=runtime_policy)


class _Refused(Exception):
    """The job's end is known before its body ran, or its value cannot travel: no attempt would end otherwise."""


def execute(work: Work, sink: Callable[[Work], FrameSink], setup: Setup, interrupter: Interrupter) -> Ending:
    """Run one job to its ending; raises nothing for what the job does. `interrupter.start` was called for it, `sink`
    is asked for by a body that yields.
    """
    pid = os.getpid()
    last_seq: int | None = None

    def streamed(seq: int) -> None:
        nonlocal last_seq
        last_seq = seq

    if (early := interrupter.why()) is not None:  # the claim was lost before its body began
        interrupter.finish()
        return interrupted(work, early)
    try:
        try:
            with setup.owned or Borrowed():
                result = _result(work, sink, setup, interrupter, streamed)
            ending = Ending(outcome="succeeded", result=result, last_seq=last_seq)
        except _Refused as refused:
            ending = _failed(refused.__cause__ or refused, retry=False, last_seq=last_seq)
        except Interruption:
            raise
        except BaseException as error:  # noqa: BLE001  # whatever a body raises is its own ending
            ending = _failed(error, retry=True, last_seq=last_seq)
        finally:
            if os.getpid() != pid:
                os._exit(0)  # a child that the body forked has come back here: there is one worker, and it is not this
            interrupter.finish()
    except Interruption:
        interrupter.finish()
        ending = interrupted(work, str(interrupter.why()), last_seq)
    why = interrupter.why()
    if why is not None and (ending.outcome != "succeeded" or why == "timeout"):
        return interrupted(work, why, last_seq)
    return ending


def interrupted(work: Work, why: str, last_seq: int | None = None) -> Ending:
    """The ending of a job whose body was stopped: at its time limit, with its worker, or because nobody wants it."""
    if why == "timeout":
        message = f"the body was still running after timeout_s={work.timeout_s:g} seconds"
        return Ending(outcome="timeout", error={"type": "Timeout", "message": message}, last_seq=last_seq)
    if why == "worker":
        message = "the worker was told to stop, and stopped the body; the job may run again"
        error = {"type": "WorkerInterrupted", "message": message}
        return Ending(outcome="failed", error=error, retry=True, last_seq=last_seq)
    return Ending(outcome="killed", error={"type": "Cancelled", "message": _WHY.get(why, why)}, last_seq=last_seq)


def _failed(error: BaseException, *, retry: bool, last_seq: int | None) -> Ending:
    return Ending(outcome="failed", error=failures.describe(error), retry=retry, last_seq=last_seq)


def _result(
    work: Work,
    sink: Callable[[Work], FrameSink],
    setup: Setup,
    interrupter: Interrupter,
    streamed: Callable[[int], None],
) -> bytes:
    try:
        envelope = _envelope(work)
        function = setup.resolve(envelope.fn)
        args, kwargs = envelope.unpack_args(), envelope.unpack_kwargs()
        context = setup.context.within(envelope.prefix, work.id)
        context.kept = None if setup.storage is None else {}
    except Interruption:
        raise
    except BaseException as error:
        raise _Refused from error
    around, token = swap(context), install_plane(setup.plane)
    try:
        if function.kind == "sync":
            packed = _pack(call_sync(function.__wrapped__, context.fork(), args, kwargs), "result", function)
        elif function.kind == "async":
            packed = _pack(run_body(function, args, kwargs), "result", function)
        else:
            packed = _stream(function, context.fork(), args, kwargs, work, sink(work), interrupter, streamed)
        if setup.storage is not None and context.kept:
            store_writes(setup.storage, context.kept)
    finally:
        uninstall_plane(token)
        swap(around)
    if len(packed) > MAX_PAYLOAD_BYTES:
        raise _Refused from TransportError(
            f"the result is {len(packed)} bytes, more than the {MAX_PAYLOAD_BYTES} that travel; "
            "write it with dls.run.write and return its key, or yield it in parts"
        )
    return packed


def _envelope(work: Work) -> wire.Envelope:
    try:
        return wire.Envelope.from_bytes(work.envelope)
    except wire.EnvelopeError as error:
        raise WorkerError(
            f"run_worker runs what @udf functions submit, and this payload is none ({error}); "
            "take raw payloads off the queue with q.claim() or q.working(), or submit with f.submit(...)"
        ) from None


def _pack(value: Any, what: str, function: UDF[..., Any]) -> bytes:
    try:
        return wire.pack(value)
    except Interruption:
        raise
    except Exception as error:  # noqa: BLE001  # raised again: a codec may raise anything
        raise _Refused from _untravelled(error, what, function)


def _untravelled(error: Exception, what: str, function: UDF[..., Any]) -> BaseException:
    named = f"the {what} of {function.__name__} does not travel: {failures.message_of(error)}"
    if "wire.register" not in named:
        named += "; return plain data or keys, or register a codec with wire.register on both sides"
    told = (TypeError if isinstance(error, TypeError) else TransportError)(named)
    told.__suppress_context__ = True
    return told


def _stream(
    function: UDF[..., Any],
    context: RunContext,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    work: Work,
    sink: FrameSink,
    interrupter: Interrupter,
    streamed: Callable[[int], None],
) -> bytes:
    """One VALUE frame for each yield as it comes (K-23); the packed value of the whole."""
    yields = Yields(work.first_seq, work.attempt)
    streamed(work.first_seq - 1)
    body: Any
    if function.kind == "gen":
        body = call_gen(function.__wrapped__, context, args, kwargs)
    else:
        body = stepped(call_asyncgen(function.__wrapped__, context, args, kwargs))
    with contextlib.closing(body):
        for item in body:
            try:
                seq, frame = yields.add(item)
            except Interruption:
                raise
            except Exception as error:  # noqa: BLE001  # raised again: a codec may raise anything
                raise _Refused from _untravelled(error, "yield", function)
            if len(frame) > MAX_PAYLOAD_BYTES:
                raise _Refused from TransportError(
                    f"a yield of {function.__name__} is {len(frame)} bytes, more than the {MAX_PAYLOAD_BYTES} that "
                    "travel; yield it in parts, or write it with dls.run.write and yield its key"
                )
            interrupter.shielded(sink.put, seq, frame)
            streamed(seq)
        interrupter.shielded(sink.flush)
    return yields.packed(context.writes)
