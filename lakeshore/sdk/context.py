"""The ambient run context: where `dls.run` reads and writes, `dls.scope` that sets the prefix, and the fork that
each call gets.

One context variable holds the current RunContext, so that threads, asyncio tasks and trio tasks each see their own.
A call gets a child of it: same root, prefix, storage and invocation, its own ledger of writes. Nothing here touches
a network. Reference: python-sdk/udf.md, "`dls.run` surface"; python-sdk/architecture/f6-scopes.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn, Protocol

from lakeshore.sdk.errors import KeyError_
from lakeshore.sdk.keys import join, normal


class Fetches(Protocol):
    """The part of a Storage that a read of a missing key needs."""

    def get(self, key: str, /) -> bytes:
        """The object under `key`, relative to the run root."""
        ...


class RunContext:
    """Where keys resolve: `root / prefix / key` on the local filesystem.

    `root` is None for the working directory at the time of use. `writes` is the ledger: each key written through
    this context, in normal form, with its path. `invocation_id` names the invocation whose body is running, and so
    the parent of what it submits. With a `storage`, a read of a key that is not here fetches it first. `kept` is what
    the whole job has written, by key from the run root, where that is to be stored; its forks share it.
    """

    __slots__ = ("_root", "invocation_id", "kept", "prefix", "storage", "writes")

    def __init__(
        self,
        *,
        root: Path | str | None = None,
        prefix: str = "",
        storage: Fetches | None = None,
        invocation_id: str | None = None,
    ) -> None:
        self._root = None if root is None else Path(root).expanduser().absolute()
        self.prefix = join("", prefix) if prefix else ""
        self.storage = storage
        self.invocation_id = invocation_id
        self.writes: dict[str, Path] = {}
        self.kept: dict[str, Path] | None = None

    def __repr__(self) -> str:
        return f"RunContext(root={str(self.root)!r}, prefix={self.prefix!r}, invocation_id={self.invocation_id!r})"

    @property
    def root(self) -> Path:
        """The filesystem root that keys cannot leave."""
        return Path.cwd() if self._root is None else self._root

    def fork(self) -> RunContext:
        """A fresh child for one call: the same places and ids, an empty ledger."""
        child = RunContext.__new__(RunContext)
        child._root = self._root
        child.prefix = self.prefix
        child.storage = self.storage
        child.invocation_id = self.invocation_id
        child.writes = {}
        child.kept = self.kept
        return child

    def within(self, prefix: str, invocation_id: str) -> RunContext:
        """A fork below `prefix`, for the body of an invocation."""
        child = self.fork()
        if prefix:
            child.prefix = join(self.prefix, prefix)
        child.invocation_id = invocation_id
        return child

    def path(self, key: str) -> Path:
        """The local path of `key`. Raises KeyError_ when the key is absolute, empty or escapes the root."""
        return self.root / join(self.prefix, key)

    def read(self, key: str) -> Path:
        """The local path of an input key. Raises KeyError_ when nothing is there."""
        path = self.path(key)
        if not path.exists():
            if self.storage is None:
                raise KeyError_(f'read({key!r}): not found under prefix "{self.prefix}" (looked for {path})')
            _place(path, self.storage.get(join(self.prefix, key)))
        return path

    def write(self, key: str, *, dir: bool = False) -> Path:
        """Register an output key and return the local path to write at; parents are created, `dir=True` makes the
        directory.
        """
        path = self.path(key)
        (path if dir else path.parent).mkdir(parents=True, exist_ok=True)
        self.writes[normal(key)] = path
        if self.kept is not None:
            self.kept[join(self.prefix, key)] = path
        return path


def _place(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{id(content):x}.part")
    partial.write_bytes(content)
    partial.replace(path)  # a concurrent reader sees the whole file or none


_AMBIENT: ContextVar[RunContext | None] = ContextVar("lakeshore_run_context", default=None)


def ambient() -> RunContext | None:
    """The ambient context; None outside every scope."""
    return _AMBIENT.get()


def current() -> RunContext:
    """The ambient context; outside every scope a new one on the working directory with an empty prefix."""
    return _AMBIENT.get() or RunContext()


def swap(context: RunContext | None) -> RunContext | None:
    """Install `context` (None: nothing) and return what was there.

    Values are put back by hand and not by token: a generator may be closed in another thread or task than it was
    started in.
    """
    previous = _AMBIENT.get()
    _AMBIENT.set(context)
    return previous


@contextmanager
def installed(context: RunContext) -> Iterator[RunContext]:
    """`context` is ambient inside the block. A worker wraps each body in this."""
    previous = swap(context)
    try:
        yield context
    finally:
        swap(previous)


@contextmanager
def scope(sub: str = "", *, root: Path | str | None = None) -> Iterator[RunContext]:
    """Set the key prefix for the block; nested scopes join. Yields the scope's own RunContext, whose ledger no call
    inside touches.

    `root` re-anchors the filesystem root: use it on the outermost scope. Raises KeyError_ when `sub` is absolute or
    leaves the root.
    """
    outer = current()
    inner = outer.fork()
    if sub:
        inner.prefix = join(outer.prefix, sub)
    elif not isinstance(sub, str):
        raise TypeError(f"scope takes a str prefix, got {type(sub).__name__}")
    if root is not None:
        inner._root = Path(root).expanduser().absolute()
    with installed(inner):
        yield inner


class _Run:
    """`dls.run`: reads and writes of the ambient RunContext. It runs nothing."""

    __slots__ = ()

    @property
    def prefix(self) -> str:
        """The ambient prefix, `""` outside every scope."""
        return current().prefix

    @property
    def root(self) -> Path:
        """The filesystem root that keys resolve below."""
        return current().root

    def read(self, key: str) -> Path:
        """The local path of an input key. Raises KeyError_ when nothing is there."""
        return current().read(key)

    def write(self, key: str, *, dir: bool = False) -> Path:
        """Register an output key and return the local path to write at. Parents are made; `dir=True` makes the
        directory itself.
        """
        return current().write(key, dir=dir)

    def read_all(self, keys: Any) -> Any:
        """`read` over a str, a list, a tuple or a dict of keys; paths come back in the same shape."""
        context = current()
        return _shaped(keys, context.read)

    def write_all(self, keys: Any, dir: bool = False) -> Any:
        """`write` over a str, a list, a tuple or a dict of keys; paths come back in the same shape."""
        context = current()
        return _shaped(keys, lambda key: context.write(key, dir=dir))

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            "dls.run reads and writes keys, it does not run anything; "
            "call f(...), f.submit(...) or f.remote(...), or drain a queue with dls.run_worker(queue)"
        )

    def __repr__(self) -> str:
        return f"<dls.run prefix={self.prefix!r} root={str(self.root)!r}>"

    def __reduce__(self) -> str:
        return "run"  # one object a process: a function that is sent by value finds the proxy of its worker


def _shaped(keys: Any, place: Any) -> Any:
    if isinstance(keys, str):
        return place(keys)
    if isinstance(keys, dict):
        return {name: place(key) for name, key in keys.items()}
    if isinstance(keys, list):
        return [place(key) for key in keys]
    if isinstance(keys, tuple):
        return tuple(place(key) for key in keys)
    raise TypeError(f"pass a key, a list of keys or a dict of keys; got {type(keys).__name__}")


run = _Run()
