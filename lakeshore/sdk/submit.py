"""The remote half of a UDF: its call becomes an Envelope on a plane, and a wait for the result.

Loaded by `.submit`, `.remote` and a thunk only. What is caught here and not in the worker: arguments that the
function does not take, a misspelt option, an iterator as an argument, a function that cannot travel.
Reference: python-sdk/udf.md, "`@udf(queue=...)`"; api/function-protocol.md, "The Envelope".
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from typing import Any, cast

from lakeshore import wire
from lakeshore.sdk import delays, outcomes
from lakeshore.sdk.brief import brief, briefly
from lakeshore.sdk.context import ambient
from lakeshore.sdk.functions import UDF, inner
from lakeshore.sdk.ids import check_name, new_id
from lakeshore.sdk.options import check_key, check_number, check_plane
from lakeshore.sdk.transport import describe, name_of, shown_name
from lakeshore.sdk.warned import calls_of_ours
from lakeshore.wire.values import value

WAIT_S = 30.0
_PLAIN = frozenset((int, float, str, bytes, bool, type(None), list, dict, tuple))
_NO_KWARGS = wire.pack({})


@value
class CallOptions:
    """The underscore options of one call. None is "not given"; `submit` documents each."""

    key: str | None = None
    priority: float | None = None
    dispatch: Any = None
    queue: str | None = None
    run_config: Mapping[str, Any] | None = None
    mode: str | None = None
    timeout: float | None = WAIT_S
    parent: str | None = None
    retry_failed: bool = False
    delay: delays.Delay | None = None
    at: datetime | None = None


OPTIONS = {f"_{name}": name for name in CallOptions.__annotations__}


@value
class _Prepared:
    """A call that is ready to leave."""

    plane: Any
    queue: str
    envelope: wire.Envelope
    options: CallOptions
    run_config: Mapping[str, Any]
    when: dict[str, float]
    name: str | None
    """None for a plane that is somebody else's and shows no names."""

    @property
    def timeout(self) -> float | None:
        """Of a wait that begins now."""
        return delays.after(self.options.timeout, self.when)

    def send(self) -> str:
        invocation: str = self.plane.submit(self.queue, self.envelope.to_bytes(), **self._how())
        return invocation

    def send_and_wait(self) -> Any:
        at_once = getattr(self.plane, "submit_and_wait", None)
        timeout = self.timeout
        invocation = self.envelope.id
        try:
            if at_once is None:
                invocation = self.send()
                result = self.plane.result(invocation, timeout=timeout)
            else:
                result = at_once(self.queue, self.envelope.to_bytes(), timeout=timeout, **self._how())
        except KeyboardInterrupt as interrupted:
            interrupted.add_note(outcomes.goes_on(self.queue, invocation))
            raise
        return wire.unpack(result) if result else None

    async def send_async(self) -> str:
        """The id of a call whose values are waited for one by one, each for as long as `_timeout`."""
        from lakeshore.sdk.local_async import async_verbs  # at its wall: a blocking producer needs no event loop

        verbs, how = async_verbs(self.plane), self._how()
        if getattr(verbs, "submit_and_wait", None) is not None:
            how["within"] = self.options.timeout
        invocation: str = await verbs.submit(self.queue, self.envelope.to_bytes(), **how)
        return invocation

    async def send_and_wait_async(self) -> Any:
        from lakeshore.sdk.local_async import async_verbs  # at its wall: as above

        verbs = async_verbs(self.plane)
        at_once = getattr(verbs, "submit_and_wait", None)
        timeout = self.timeout
        invocation = self.envelope.id
        with briefly:
            try:
                if at_once is None:
                    invocation = await self.send_async()
                    result = await verbs.result(invocation, timeout=timeout)
                else:
                    result = await at_once(self.queue, self.envelope.to_bytes(), timeout=timeout, **self._how())
            except Exception:
                raise
            except BaseException as stopped:  # cancelled, as Ctrl-C does it: nobody else holds the id
                stopped.add_note(outcomes.goes_on(self.queue, invocation))
                brief(stopped)
                raise
        return wire.unpack(result) if result else None

    def _how(self) -> dict[str, Any]:
        how: dict[str, Any] = {
            "id": self.envelope.id,
            "key": self.envelope.key,
            "priority": 0.0 if self.options.priority is None else self.options.priority,
            "parent": self.envelope.parent,
        }
        if self.run_config:
            how["run_config"] = self.run_config
        if self.options.retry_failed:
            how["retry_failed"] = new_id()  # a nonce: a resent submit does not queue the row twice
        if self.name is not None:
            how["name"] = self.name
        if getattr(self.plane, "trusts_new_ids", False):
            how["new"] = True
        how |= self.when
        return how


def submit(udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`UDF.submit`."""
    return _prepare(udf, args, kwargs).send()


def remote(udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`UDF.remote` of a sync or generator body."""
    return _prepare(udf, args, kwargs).send_and_wait()


def remote_async(udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
    """`UDF.remote` of an async body. Mistakes in the call are raised here, nothing is sent until the first await."""
    from lakeshore.sdk.streaming_call import StreamingCall  # at its wall: so is this

    call = _prepare(udf, args, kwargs)

    async def submit_and_stream() -> AsyncIterator[Any]:
        from lakeshore.sdk.queues import Queue  # at its wall: submit alone opens no queue

        with briefly:
            invocation = await call.send_async()
        stream = Queue(call.queue, dispatch=call.plane).stream(invocation, timeout=call.timeout)
        async with contextlib.aclosing(cast("AsyncGenerator[Any, None]", stream)) as parts:
            async for part in parts:
                yield part

    waits: Any = call.send_and_wait_async()
    waits.__qualname__ = udf.__name__  # what Python calls it where it is never awaited
    return StreamingCall(waits, submit_and_stream) if udf.kind == "asyncgen" else waits


def envelope_of(
    fn: Callable[..., Any],
    transport: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    id: str | None = None,
    key: str | None = None,
    parent: str | None = None,
    cfg: Mapping[str, Any] | None = None,
    function: dict[str, Any] | None = None,
) -> wire.Envelope:
    """The Envelope of a call in the ambient run context. Raises TransportError for the function, TypeError for a
    value.
    """
    context = ambient()
    for name, argument in (*enumerate(args), *kwargs.items()):
        if type(argument) not in _PLAIN and isinstance(argument, Iterator | AsyncIterator | Coroutine):
            raise TypeError(
                f"argument {name!r} of {name_of(fn)} is a {type(argument).__name__}: it lives in this process and "
                "cannot travel; pass a list, or let the function read a stream by its invocation id"
            )
    described = describe(fn, transport) if function is None else function
    try:
        packed, named = wire.pack(list(args)), wire.pack(dict(kwargs)) if kwargs else _NO_KWARGS
    except (TypeError, OverflowError) as error:
        _name_argument(fn, args, kwargs, error)
        raise
    return wire.Envelope(
        id=id or new_id(),
        fn=described,
        args=packed,
        kwargs=named,
        prefix="" if context is None else context.prefix,
        key=key,
        cfg=dict(cfg or {}),
        parent=context.invocation_id if parent is None and context is not None else parent,
    )


def _name_argument(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], error: TypeError | OverflowError
) -> None:
    """Say which argument it was that did not travel; the error stays what it is, for a codec may have raised it."""
    for name, argument in (*enumerate(args), *kwargs.items()):
        try:
            wire.pack(argument)
        except (TypeError, OverflowError) as again:
            if again.args == error.args and error.args:
                error.args = (f"argument {name!r} of {name_of(fn)} does not travel: {error.args[0]}", *error.args[1:])
            return


def _prepare(udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Prepared:
    options = CallOptions(**{OPTIONS[name]: kwargs.pop(name) for name in tuple(kwargs) if name in OPTIONS})
    queue = options.queue or udf.queue
    if queue is None:
        raise TypeError(
            f"{udf.__name__} has no queue binding; decorate with @udf(queue=...) or pass one at submit time"
        )
    if not isinstance(queue, str):
        raise TypeError(f"_queue takes a queue's name as a str, got {type(queue).__name__}; _dispatch takes the plane")
    check_name(queue)
    check_key(options.key, "_key")
    check_number(options.priority, "_priority")
    check_number(options.timeout, "_timeout")
    check_plane(options.dispatch, "_dispatch")
    when = delays.when(options.delay, options.at)
    _check_arguments(udf, args, kwargs)
    function = describe(udf, udf.transport)
    plane, run_config = _where(options)
    if function["kind"] == "pickle":
        _warn_untrusted(udf, plane)
    envelope = envelope_of(
        udf,
        udf.transport,
        args,
        kwargs,
        key=options.key,
        parent=options.parent,
        cfg=_code(function, plane),
        function=function,
    )
    name = shown_name(inner(udf)) if getattr(plane, "shows_names", False) else None
    return _Prepared(
        plane=plane, queue=queue, envelope=envelope, options=options, run_config=run_config, when=when, name=name
    )


def _where(options: CallOptions) -> tuple[Any, Mapping[str, Any]]:
    """The plane that a call goes to, and its run config: what the call says over what its mode says."""
    said = options.run_config or {}
    if said:
        from lakeshore.sdk import misspelt  # at its wall: a call without a run config reads none

        misspelt.warn_of(said)
    if options.mode is None:
        return options.dispatch if options.dispatch is not None else _default_plane(), said
    from lakeshore.sdk import modes  # at its wall: a call without a mode reads no file

    plane, config = modes.placed(options.mode, options.dispatch)
    return plane, modes.over(config, said)


def _default_plane() -> Any:
    from lakeshore.sdk.default_plane import default_dispatch  # at its wall: a call that names its plane opens no other

    return default_dispatch()


@functools.lru_cache(maxsize=4096)
def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None  # builtins without one: the worker finds out


@functools.lru_cache(maxsize=4096)
def _by_position(fn: Callable[..., Any]) -> tuple[int, float]:
    """The fewest and the most arguments that a call by position alone may have; (1, 0), no number, where it may not."""
    signature = _signature(fn)
    if signature is None:
        return 1, 0
    fewest, most = 0, 0.0
    for parameter in signature.parameters.values():
        needed = parameter.default is parameter.empty
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            fewest, most = fewest + needed, most + 1
        elif parameter.kind is parameter.VAR_POSITIONAL:
            most = float("inf")
        elif parameter.kind is parameter.KEYWORD_ONLY and needed:
            return 1, 0
    return fewest, most


def _check_arguments(udf: UDF[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    body = inner(udf)
    try:
        fewest, most = _by_position(body)
        if not kwargs and fewest <= len(args) <= most:
            return
        signature = _signature(body)
    except TypeError:  # an unhashable callable instance
        signature = None
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        taken = signature.parameters
        for name in kwargs:
            if name in taken:
                continue
            if f"_{name}" in OPTIONS:
                raise TypeError(
                    f"{udf.__name__}() takes no argument {name!r}; the option of submit and remote is spelled _{name}"
                ) from None
            if name.startswith("_"):
                raise TypeError(
                    f"{udf.__name__}() takes no argument {name!r}; the options are {', '.join(OPTIONS)}"
                ) from None
        raise TypeError(f"{udf.__name__}(): {error}") from None


def _code(function: Mapping[str, Any], plane: Any) -> dict[str, Any]:
    push = getattr(plane, "push_code", None) if function["kind"] == "ref" else None
    if push is None:
        return {}
    stamp = push(function) if getattr(plane, "stamps_functions", False) else push()
    return {"code": stamp} if stamp else {}


def _warn_untrusted(udf: UDF[..., Any], plane: Any) -> None:
    if getattr(plane, "local", True):
        return
    warnings.warn(
        f"{udf.__qualname__} travels by value, and a worker of this plane refuses pickled functions unless it was "
        "started with --allow-pickled; or move the function to a module that the worker can import",
        stacklevel=calls_of_ours(),
    )
