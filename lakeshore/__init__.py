"""Lakeshore: run Python functions on machines that are not your laptop.

The public names resolve at first use (PEP 562), so that importing the package costs next to nothing and a purely
local `@udf` call loads neither an HTTP client, nor the codec, nor a database. `dreamlake.lakeshore` gives the same
objects. Reference: python-sdk.md, "What's exported".
"""

from __future__ import annotations

from lakeshore._built import absent, built, has
from lakeshore._vendored import extend_path

TYPE_CHECKING = False  # `typing` itself costs a quarter of the program's start
if TYPE_CHECKING:
    from typing import Any

    from lakeshore import wire as wire
    from lakeshore.sdk import errors as errors
    from lakeshore.sdk.context import RunContext as RunContext
    from lakeshore.sdk.context import run as run
    from lakeshore.sdk.context import scope as scope
    from lakeshore.sdk.errors import DispatchError as DispatchError
    from lakeshore.sdk.functions import UDF as UDF
    from lakeshore.sdk.functions import Thunk as Thunk
    from lakeshore.sdk.functions import thunk as thunk
    from lakeshore.sdk.functions import udf as udf

# The module that owns each name. A None means that the name is the module itself.
_OWNERS: dict[str, tuple[str, str | None]] = {
    "udf": ("lakeshore.sdk.functions", "udf"),
    "UDF": ("lakeshore.sdk.functions", "UDF"),
    "thunk": ("lakeshore.sdk.functions", "thunk"),
    "Thunk": ("lakeshore.sdk.functions", "Thunk"),
    "scope": ("lakeshore.sdk.context", "scope"),
    "run": ("lakeshore.sdk.context", "run"),
    "RunContext": ("lakeshore.sdk.context", "RunContext"),
    "Queue": ("lakeshore.sdk.queues", "Queue"),
    "SyncQueue": ("lakeshore.sdk.queues", "SyncQueue"),
    "Topic": ("lakeshore.sdk.queues", "Topic"),
    "Job": ("lakeshore.sdk.queues", "Job"),
    "Dispatch": ("lakeshore.sdk.dispatch", "Dispatch"),
    "HttpDispatch": ("lakeshore.sdk.http_dispatch", "HttpDispatch"),
    "run_worker": ("lakeshore.sdk.worker", "run_worker"),
    "arun_worker": ("lakeshore.sdk.worker_async", "arun_worker"),
    "Storage": ("lakeshore.sdk.storage", "Storage"),
    "TemporaryCredentials": ("lakeshore.sdk.storage", "TemporaryCredentials"),
    "DreamRc": ("lakeshore.config.dreamrc", "DreamRc"),
    "Provider": ("lakeshore.config.dreamrc", "Provider"),
    "RunConfig": ("lakeshore.config.dreamrc", "RunConfig"),
    "load_config": ("lakeshore.config.dreamrc", "load_config"),
    "resolve": ("lakeshore.config.dreamrc", "resolve"),
    "DispatchError": ("lakeshore.sdk.errors", "DispatchError"),
    "wire": ("lakeshore.wire", None),
    "errors": ("lakeshore.sdk.errors", None),
}

__all__ = [  # noqa: PLE0604  # the keys of one table, in the order of the reference page
    *_OWNERS
]


extend_path()


def _released() -> str:
    from importlib import metadata  # wall: costs 20 ms, only who asks for the version pays

    for distribution in ("lakeshore", "dreamlake-lakeshore"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    from lakeshore._version import __version__  # wall: as above

    return __version__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _released()
    elif name in _OWNERS:
        module, attribute = _OWNERS[name]
        if attribute is not None and not has(module):
            value = absent(attribute, module)
        else:
            owner = built(module)
            value = owner if attribute is None else getattr(owner, attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_OWNERS, "__version__"})
