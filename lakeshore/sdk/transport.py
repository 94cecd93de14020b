"""How a function crosses to another process: by reference (module and qualname) or by value (cloudpickle), and who
may run what.

A worker's gates, in this order: a registry entry is the operator's own choice and passes; a pickled function needs
`allow_pickled`, then a matching runtime, then an undamaged blob, and only then is it unpickled; a reference must
name a UDF (else `allow_pickled`), and its source here must be the source that was submitted, unless the submitter
asked for whatever source is here (`ANY_SOURCE`).
Reference: python-sdk/udf.md, "How the function crosses the wire"; api/function-protocol.md, "Function transport".
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import platform
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from lakeshore._sha256 import sha256
from lakeshore.sdk.errors import TransportError, WorkerError
from lakeshore.sdk.functions import TRANSPORTS, UDF, file_stamp, inner, reference_of, walk
from lakeshore.wire.names import ANY_SOURCE

INLINE_PICKLE_LIMIT = 32 * 1024
POLICIES = ("strict", "minor", "off")
MOST_PASSED = 1024
SHOWN = 200

_hashes: dict[int, tuple[Any, str | None]] = {}  # by id, with the function kept alive so that an id is not reused


# --- the producer's side


def describe(fn: Callable[..., Any], transport: str = "auto") -> dict[str, Any]:
    """`Envelope.fn` for a UDF or a callable: the `ref` arm or the `pickle` arm.

    Raises TransportError for an unknown transport, a `ref` that cannot be imported, and a pickle that fails or
    exceeds 32 KiB.
    """
    if transport not in TRANSPORTS:
        raise TransportError(f'unknown transport {transport!r}; use "ref" | "pickle" | "auto"')
    reference = None if transport == "pickle" else reference_of(fn)
    if reference is not None and reference[0] != "__main__":
        module, qualname = reference
        return {"kind": "ref", "module": module, "qualname": qualname, "src_hash": source_hash(fn)}
    if transport == "ref":
        raise TransportError(
            f"{name_of(fn)} cannot be sent by reference: {_why_not(fn)}; "
            'move it to the top level of a module that the worker can import, or use transport="pickle"'
        )
    return _by_value(fn)


def _why_not(fn: Any) -> str:
    qualname = getattr(fn, "__qualname__", None)
    if not isinstance(qualname, str):
        return f"an instance of {type(fn).__name__} has no name of its own"
    if "<lambda>" in qualname:
        return "it is a lambda"
    if "<locals>" in qualname:
        return "it is defined inside a function"
    if getattr(fn, "__module__", None) == "__main__":
        return "it is defined in __main__, which is another module in a worker"
    return f"{getattr(fn, '__module__', None)}:{qualname} is not this function"


def _by_value(fn: Any) -> dict[str, Any]:
    body = inner(fn)
    try:
        blob = _dumps(body)
    except Exception as error:
        raise TransportError(
            f"{name_of(fn)} cannot be pickled: {type(error).__name__}: {error}; "
            "pass what it captures as arguments, or open it inside the function"
        ) from error
    if len(blob) > INLINE_PICKLE_LIMIT:
        raise TransportError(
            f"{name_of(fn)} pickles to {len(blob)} bytes, over the limit of {INLINE_PICKLE_LIMIT}: "
            "it captures data; pass the data as arguments instead"
        )
    return {
        "kind": "pickle",
        "blob": blob,
        "hash": _sha256(blob),
        "source": _source(body) or "",
        "qualname": name_of(fn),
        "where": _where(body, name_of(fn)),
        "runtime": runtime_stamp(),
    }


def _dumps(fn: Any) -> bytes:
    return bytes(_pickler()(fn))


@functools.cache
def _pickler() -> Callable[[Any], bytes]:
    import io  # wall: only a function by value needs cloudpickle

    import cloudpickle  # wall: as above

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        """A UDF of `__main__` or of a closure travels with the function that uses it."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, UDF):
                reference = reference_of(obj)
                if reference is None or reference[0] == "__main__":
                    return obj.by_value()
                return NotImplemented
            return super().reducer_override(obj)

    def dumps(fn: Any) -> bytes:
        out = io.BytesIO()
        ByValue(out).dump(fn)
        return out.getvalue()

    return dumps


def name_of(fn: Any) -> str:
    """The qualname to show for `fn`."""
    if isinstance(fn, functools.partial):
        return name_of(fn.func)
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)


def shown_name(fn: Any) -> str:
    """What a row shows as its function, `module.qualname` of at most 200 characters. Nothing is found by it."""
    found = fn.func if isinstance(fn, functools.partial) else fn
    module = getattr(found, "__module__", None)
    return (f"{module}.{name_of(fn)}" if module else name_of(fn))[:SHOWN]


def _where(fn: Any, name: str) -> str:
    code = getattr(fn, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _sha256(blob: bytes) -> str:
    return "sha256:" + sha256(blob).hexdigest()


# --- source stamps


def source_hash(fn: Callable[..., Any]) -> str | None:
    """`sha256:` and 16 hex digits of the source of `fn` (of the function inside a UDF), or None when there is no
    source.
    """
    body = inner(fn)
    known = _hashes.get(id(body))
    if known is not None and known[0] is body:
        return known[1]
    source = _source(body)
    stamp = None if source is None else _sha256(source.encode())[: len("sha256:") + 16]
    _hashes[id(body)] = (body, stamp)
    return stamp


def _source(fn: Any) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None


# --- runtime stamps


def runtime_stamp() -> dict[str, Any]:
    """What a pickled function needs of the interpreter that unpickles it."""
    return {
        "python": platform.python_version(),
        "impl": sys.implementation.name,
        "cloudpickle": _cloudpickle_version(),
        "pickle_protocol": pickle.HIGHEST_PROTOCOL,
        "platform": f"{sys.platform}-{platform.machine()}",
    }


def _cloudpickle_version() -> str:
    try:
        import cloudpickle  # at its wall: only a function by value needs it
    except ImportError as error:
        raise TransportError("a function by value needs cloudpickle; pip install cloudpickle") from error
    return str(cloudpickle.__version__)


def check_policy(policy: str) -> None:
    """Raise ValueError unless `policy` is one of `strict`, `minor`, `off`."""
    if policy not in POLICIES:
        raise ValueError(f"unknown runtime policy {policy!r}; use strict | minor | off")


def check_runtime(stamp: Mapping[str, Any] | None, policy: str = "minor") -> None:
    """Raise TransportError unless this interpreter may unpickle what an interpreter with `stamp` pickled.

    `strict`: the same Python and cloudpickle versions. `minor`: the same Python major.minor and cloudpickle major,
    the same implementation, a pickle protocol known here. `off`: anything.
    """
    check_policy(policy)
    if policy == "off":
        return
    theirs, ours = dict(stamp or {}), runtime_stamp()
    parts = {"strict": (3, 3), "minor": (2, 1)}[policy]
    wrong = [
        f"{name} {theirs.get(name, 'unknown')} (here {ours[name]})"
        for name, length in zip(("python", "cloudpickle"), parts, strict=True)
        if str(theirs.get(name, "")).split(".")[:length] != ours[name].split(".")[:length]
    ]
    if theirs.get("impl", ours["impl"]) != ours["impl"]:
        wrong.append(f"interpreter {theirs['impl']} (here {ours['impl']})")
    protocol = theirs.get("pickle_protocol", 0)
    if not isinstance(protocol, int) or protocol > pickle.HIGHEST_PROTOCOL:
        wrong.append(f"pickle protocol {protocol} (here {pickle.HIGHEST_PROTOCOL})")
    if wrong:
        raise TransportError(
            f"the function was pickled by {', '.join(wrong)}; run the worker on the submitter's versions, send the "
            f'function by reference, or set the runtime policy to "off" (it is "{policy}")'
        )


# --- the worker's side


def resolve(
    fn: Mapping[str, Any],
    *,
    registry: Mapping[str, Callable[..., Any]] | None = None,
    allow_pickled: bool = False,
    runtime_policy: str = "minor",
) -> Callable[..., Any]:
    """The callable that `Envelope.fn` names, after the gates of this module. `registry` maps a qualname or
    `module:qualname`.

    Raises TransportError when this worker refuses the function, WorkerError when it is not here or has other source.
    """
    check_policy(runtime_policy)
    kind, qualname = fn.get("kind"), str(fn.get("qualname", ""))
    module = str(fn.get("module", ""))
    entries = registry or {}
    chosen = entries.get(f"{module}:{qualname}", entries.get(qualname))
    if kind == "pickle":
        return chosen if chosen is not None else _unpickle(fn, allow_pickled, runtime_policy)
    if kind != "ref":
        raise TransportError(f"unknown function kind {kind!r}; this worker knows ref and pickle: upgrade it")
    if chosen is not None:
        if reference_of(chosen) == (module, qualname):  # the very function, not a stand-in
            _check_source(chosen, module, qualname, fn.get("src_hash"), runtime_policy)
        return chosen
    found = _import(module, qualname)
    if not isinstance(found, UDF) and not allow_pickled:
        raise TransportError(
            f"this worker runs only UDFs by reference, and {module}:{qualname} is none; "
            "decorate it with @udf, register it with the worker, or start the worker with --allow-pickled"
        )
    _check_source(found, module, qualname, fn.get("src_hash"), runtime_policy)
    return found


class Resolver:
    """`resolve` for one worker, which is asked for the same few functions again and again.

    A reference that has passed the gates passes them again for as long as its name leads to the same UDF.
    """

    __slots__ = ("_allow_pickled", "_passed", "_registry", "_runtime_policy")

    def __init__(
        self, *, registry: Mapping[str, Callable[..., Any]] | None, allow_pickled: bool, runtime_policy: str
    ) -> None:
        self._registry = registry
        self._allow_pickled = allow_pickled
        self._runtime_policy = runtime_policy
        self._passed: dict[tuple[str, str, str], UDF[..., Any]] = {}

    def __call__(self, fn: Mapping[str, Any]) -> UDF[..., Any]:
        """The function that `Envelope.fn` names, as a UDF. Raises what `resolve` raises."""
        module, qualname, stamp = fn.get("module"), fn.get("qualname"), fn.get("src_hash")
        asked = None
        if not self._registry and type(module) is str and type(qualname) is str and type(stamp) is str:
            asked = (module, qualname, stamp)
            passed = self._passed.get(asked)
            if passed is not None and fn.get("kind") == "ref" and walk(module, qualname) is passed:
                return passed
        found = resolve(
            fn, registry=self._registry, allow_pickled=self._allow_pickled, runtime_policy=self._runtime_policy
        )
        if not isinstance(found, UDF):
            return UDF(found)
        if asked is not None and fn.get("kind") == "ref":
            if len(self._passed) >= MOST_PASSED:
                self._passed.clear()
            self._passed[asked] = found
        return found


_ON_A_HOST = "on a daemon's host: `daemon install --code <dir>`, or python_path in its configuration"


def _import(module: str, qualname: str) -> Callable[..., Any]:
    if module == "__main__" or not module:
        raise WorkerError(
            f"cannot import module {module!r}: the function {qualname} belongs to the submitter's script; "
            f"move it to a module that the worker can import ({_ON_A_HOST})"
        )
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise WorkerError(
            f"cannot import module {module!r}: {type(error).__name__}: {error}; start the worker where the module "
            f"can be imported (its directory, PYTHONPATH; {_ON_A_HOST}), register the function with it, or send the "
            "function by value: define it in the script that submits, and start worker or daemon with --allow-pickled"
        ) from error
    for part in qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise WorkerError(
                f"module {module!r} has no {qualname!r} here; update the worker's checkout, then restart the worker"
            ) from error
    if not callable(found):
        raise WorkerError(f"{module}:{qualname} is not callable, it is a {type(found).__name__}")
    checked: Callable[..., Any] = found
    return checked


def _check_source(fn: Any, module: str, qualname: str, submitted: str | None, policy: str) -> None:
    if policy == "off":
        return
    fresh = id(inner(fn)) not in _hashes
    here = source_hash(fn)
    if here is None:
        return
    if fresh and isinstance(fn, UDF) and fn._file_stamp is not None and fn._file_stamp != file_stamp(inner(fn)):
        del _hashes[id(inner(fn))]
        raise WorkerError(
            f"{module}:{qualname} source differs from the submitted version, or may: its file changed after this "
            "worker imported it; restart the worker"
        )
    if submitted == ANY_SOURCE:
        return
    if submitted is None:
        raise WorkerError(
            f"{module}:{qualname} was submitted without a source hash, and its source is at hand here: nothing shows "
            'that they agree; submit it from a process that has its source, or set the runtime policy to "off"'
        )
    if here != submitted:
        raise WorkerError(
            f"{module}:{qualname} source differs from the submitted version (submitted {submitted}, here {here}); "
            "bring the checkout of this worker up to date and restart it (what `daemon install --code` copied: install "
            'again and uninstall the former), or set the runtime policy to "off"'
        )


def _unpickle(fn: Mapping[str, Any], allow_pickled: bool, policy: str) -> Callable[..., Any]:
    where = fn.get("where") or fn.get("qualname") or "a function"
    if not allow_pickled:
        raise TransportError(
            f"this worker refuses pickled functions ({where}); start it with --allow-pickled (a daemon: "
            "`daemon install --allow-pickled`, or allow_pickled in its configuration), or move the function to a "
            f"module that the worker can import ({_ON_A_HOST})"
        )
    check_runtime(fn.get("runtime"), policy)
    blob = fn.get("blob")
    if not isinstance(blob, bytes) or fn.get("hash") not in (None, _sha256(blob)):
        raise TransportError(
            f"the pickled function {where} is damaged: its bytes do not match its hash; submit it again"
        )
    try:
        found: Any = pickle.loads(blob)  # noqa: S301  # behind allow_pickled, which is consent to run the submitter's code
    except Exception as error:
        raise TransportError(
            f"cannot unpickle {where}: {type(error).__name__}: {error}; install here what the function imports"
        ) from error
    if not callable(found):
        raise TransportError(f"the pickled {where} is not callable, it is a {type(found).__name__}")
    checked: Callable[..., Any] = found
    return checked
