"""`@udf`: a function that runs here, or on a queue, by the same call; and `thunk`, a callable with its arguments for
a queue.

    f(...)         bare: runs the body here.  @udf(queue=...): the same as f.remote(...)
    f.local(...)   runs the body here, always
    f.submit(...)  enqueues, returns the invocation id
    f.remote(...)  enqueues and waits; async bodies give an awaitable, async generators also an `async for`

The wall: this module and what it imports know nothing of queues, planes or the codec. `.submit` and `.remote` reach
those through one import inside the method, so that a local call loads none of them.
Reference: python-sdk/udf.md; get-started/functions.md.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from lakeshore.sdk.brief import briefly
from lakeshore.sdk.context import current
from lakeshore.sdk.errors import TransportError
from lakeshore.sdk.kinds import Kind, call_async, call_asyncgen, call_gen, call_sync, kind_of

if TYPE_CHECKING:
    from lakeshore.wire import Envelope

__all__ = ["UDF", "BoundUDF", "Thunk", "inner", "thunk", "udf"]

P = ParamSpec("P")
R = TypeVar("R")

TRANSPORTS = ("ref", "pickle", "auto")
_RUNNERS: dict[Kind, Callable[..., Any]] = {
    "sync": call_sync,
    "async": call_async,
    "gen": call_gen,
    "asyncgen": call_asyncgen,
}


class UDF(Generic[P, R]):
    """A decorated function. Attributes: `queue`, `transport`, `kind`, `is_async`, `is_gen`, `is_asyncgen`,
    `__wrapped__`.

    Every call of a body runs in a fork of the run context of the place where the call was written, and its keys are
    checked when it ends. In a class body it behaves like a function: read through an instance it passes the instance
    as the first argument. Pickling sends a reference to a function that its module can find, and the function itself
    otherwise.
    """

    __wrapped__: Callable[P, R]
    __name__: str
    __qualname__: str

    def __init__(self, fn: Callable[P, R], *, queue: str | None = None, transport: str = "auto") -> None:
        """Wrap `fn`; another UDF is unwrapped first. Raises TypeError and TransportError for what cannot be wrapped
        or sent.
        """
        body: Any = inner(fn)
        if isinstance(body, staticmethod):
            body = body.__func__
        if not callable(body):
            where = "; put @classmethod above @udf" if isinstance(body, classmethod) else ""
            if isinstance(body, str):
                where = f'; a queue goes by its keyword: @udf(queue="{body}")'
            raise TypeError(f"@udf decorates a callable, got {type(body).__name__}{where}")
        if queue is not None and not isinstance(queue, str):
            raise TypeError(f"@udf(queue=...) takes a queue's name as a str, got {type(queue).__name__}")
        if transport not in TRANSPORTS:
            raise TransportError(f'unknown transport {transport!r}; use "ref" | "pickle" | "auto"')
        functools.update_wrapper(self, body)
        if "__name__" not in self.__dict__:  # functools.partial and callable instances have none
            named = body.func if isinstance(body, functools.partial) else type(body)
            self.__name__ = getattr(named, "__name__", "udf")
            self.__qualname__ = getattr(named, "__qualname__", self.__name__)
        self.queue = queue
        self.transport = transport
        self.kind: Kind = kind_of(body)
        self._run = _RUNNERS[self.kind]
        # The file as it was when the body was loaded: later, a changed file is not the source of what runs here.
        self._file_stamp = file_stamp(body)

    @property
    def is_async(self) -> bool:
        """The body is a coroutine function (`async def` without `yield`)."""
        return self.kind == "async"

    @property
    def is_gen(self) -> bool:
        """The body is a generator function."""
        return self.kind == "gen"

    @property
    def is_asyncgen(self) -> bool:
        """The body is an async generator function."""
        return self.kind == "asyncgen"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the body here, or with a queue binding submit it and wait (`remote`)."""
        if self.queue is not None:
            with briefly:
                value: R = self.remote(*args, **kwargs)
            return value
        return self.local(*args, **kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the body in this process, whatever the binding, and return what it returns: a value, an awaitable or an
        iterator, by the kind of body. Raises what the body raises, and KeyError_ when keys that it wrote were not
        returned.
        """
        result: R = self._run(self.__wrapped__, current().fork(), args, kwargs)
        return result

    def submit(self, *args: Any, **kwargs: Any) -> str:
        """Enqueue a call and return its invocation id, durable before this returns.

        Options beside the function's own arguments: `_key` (idempotency key of the queue), `_priority` (float,
        higher first), `_dispatch` (the plane), `_queue` (a queue's name, over the binding), `_run_config` (dict:
        timeout_s, max_attempts, ...), `_mode` (a mode of .dreamrc or of the server, under `_run_config`), `_parent`
        (an invocation id; default: the invocation whose body is running), `_retry_failed` (queue a failed, killed or
        timed-out row of the same key again), `_timeout` (seconds that `remote` waits, default 30; nothing here waits),
        `_delay` (seconds or a timedelta: nobody gets the call before) or `_at` (a datetime with a time zone; the same).

        Raises TypeError without a queue, for arguments that the function does not take and for a misspelt option;
        TransportError when the function cannot travel; DispatchError when the plane refuses.
        """
        from lakeshore.sdk.submit import submit  # the wall: the remote half

        with briefly:
            return submit(self, args, kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Submit and wait for the value; async and async-generator bodies give an awaitable that does so. Options as
        in `submit`. What an async-generator body yields also comes live: `async for x in f(...)`.

        A generator's value is the list of its yields, or the concatenated manifest of a key stream.
        Raises Timeout after `_timeout` seconds (30 by default, and a `_delay` on top; the invocation goes on) and
        InvocationFailed when the body failed.
        """
        from lakeshore.sdk.submit import remote, remote_async  # the wall: the remote half

        with briefly:
            if self.kind not in ("sync", "gen"):
                return remote_async(self, args, kwargs)
            return remote(self, args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else BoundUDF(self, instance)

    def __repr__(self) -> str:
        binding = "" if self.queue is None else f" queue={self.queue!r}"
        return f"<UDF {self.__module__}.{self.__qualname__}{binding}>"

    def __reduce_ex__(self, protocol: Any, /) -> Any:
        reference = reference_of(self)
        if reference is not None and walk(*reference) is self:
            return reference[1]
        return self.by_value()

    def by_value(self) -> tuple[Any, ...]:
        """The pickle reduction that carries the function itself."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("_run", "_file_stamp")}
        return (_blank, (UDF,), state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._run = _RUNNERS[self.kind]
        self._file_stamp = None


def _blank(cls: type[UDF[..., Any]]) -> UDF[..., Any]:
    return cls.__new__(cls)  # filled by __setstate__, so that a function which refers to itself can be rebuilt


class BoundUDF:
    """A UDF read through an instance: the instance goes first. Remotely it must be a value that the codec knows."""

    __slots__ = ("__self__", "udf")

    def __init__(self, function: UDF[..., Any], instance: object) -> None:
        self.udf = function
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.udf(self.__self__, *args, **kwargs)

    def local(self, *args: Any, **kwargs: Any) -> Any:
        """`UDF.local` with the instance first."""
        return self.udf.local(self.__self__, *args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> str:
        """`UDF.submit` with the instance first."""
        return self.udf.submit(self.__self__, *args, **kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """`UDF.remote` with the instance first."""
        return self.udf.remote(self.__self__, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<bound {self.udf!r} of {self.__self__!r}>"


@overload
def udf(fn: Callable[P, R], *, queue: str | None = None, transport: str = "auto") -> UDF[P, R]: ...


@overload
def udf(
    fn: None = None, *, queue: str | None = None, transport: str = "auto"
) -> Callable[[Callable[P, R]], UDF[P, R]]: ...


def udf(fn: Callable[..., Any] | None = None, *, queue: str | None = None, transport: str = "auto") -> Any:
    """Make `fn` a UDF. Used as `@udf`, `@udf()` or `@udf(queue="gpu")`.

    `queue` names the queue that a plain call goes to (None: it runs here). `transport` says how the function itself
    travels: `"ref"` by module and name, `"pickle"` by value, `"auto"` by reference when it can be imported. Creates
    no queue, talks to nobody. Returns a UDF, or with options alone a decorator. Raises TypeError for what is not
    callable, TransportError for another `transport`.
    """
    if fn is None:
        if transport not in TRANSPORTS:  # at the line of the mistake
            raise TransportError(f'unknown transport {transport!r}; use "ref" | "pickle" | "auto"')
        return lambda fn: UDF(fn, queue=queue, transport=transport)
    return UDF(fn, queue=queue, transport=transport)


class Thunk:
    """A callable bundled with its arguments: `fn`, `args`, `kwargs`. Give it to `queue.submit`; build one with
    `thunk`.
    """

    __slots__ = ("args", "fn", "kwargs")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"<Thunk {getattr(self.fn, '__qualname__', self.fn)!s}>"

    def to_envelope(self, *, id: str | None = None, key: str | None = None, parent: str | None = None) -> Envelope:
        """The Envelope of this call, in the ambient prefix. `id` defaults to a new ULID, `parent` to the running
        invocation.

        Only the callable may be pickled, under the `auto` rule; the arguments ride the codec. Raises TransportError,
        TypeError.
        """
        from lakeshore.sdk.submit import envelope_of  # the wall: the remote half

        return envelope_of(self.fn, "auto", self.args, self.kwargs, id=id, key=key, parent=parent)


def thunk(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Thunk:
    """Bundle `fn` with concrete arguments for `queue.submit`. A UDF is unwrapped to its function. The worker must
    allow pickles.
    """
    fn = inner(fn)
    if not callable(fn):
        raise TypeError(
            f"thunk takes a callable and its arguments, got {type(fn).__name__}; write thunk(f, x), not thunk(f(x))"
        )
    return Thunk(fn, args, kwargs)


def inner(fn: Any) -> Any:
    """The function inside a UDF; anything else as it is."""
    return fn.__wrapped__ if isinstance(fn, UDF) else fn


def walk(module: str, qualname: str) -> Any:
    """What `module:qualname` names among the modules already imported, or None."""
    found: Any = sys.modules.get(module)
    if found is None:
        return None
    for part in qualname.split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def reference_of(fn: Any) -> tuple[str, str] | None:
    """The (module, qualname) under which `fn` can be found in this process, or None for a lambda, a closure, an
    instance.

    A UDF is found when the name gives it, or another UDF of the same function. One that is bound to another global
    name of its module (`fast = udf(queue="gpu")(f)`) is found under that name.
    """
    module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    if "<" not in qualname:
        found = walk(module, qualname)
        if found is fn or (isinstance(found, UDF) and found.__wrapped__ is inner(fn)):
            return module, qualname
    if isinstance(fn, UDF) and module in sys.modules:
        for name, value in list(vars(sys.modules[module]).items()):
            if value is fn:
                return module, name
    return None


def file_stamp(fn: Any) -> tuple[int, int] | None:
    """Modification time and size of the file that holds `fn`'s code, or None."""
    code = getattr(fn, "__code__", None)
    if code is None or code.co_filename.startswith("<"):
        return None
    try:
        status = os.stat(code.co_filename)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
