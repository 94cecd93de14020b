"""What a job wrote, put into the storage that its worker is bound to: after its body, before its end is told.

Rules: every key that was registered by `dls.run.write` within the job, also by functions that its body called; a
directory with all that is in it. Who reads the job's keys afterwards finds the objects there. A key that was registered
and never written has nothing to store. What cannot be stored fails the job, which may run again.
Reference: python-sdk/udf, "`dls.run` surface"; P-744.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from .errors import KeyError_


class Keeps(Protocol):
    """The part of a Storage that a worker needs."""

    def get(self, key: str, /) -> bytes:
        """The object under `key`."""
        ...

    def put_file(self, key: str, path: Path, /) -> None:
        """Store what is in a file under `key`."""
        ...


def store_writes(storage: Keeps, writes: Mapping[str, Path]) -> None:
    """Store them, by key. KeyError_ for the run root itself, and what the storage raises."""
    for key, path in sorted(writes.items()):
        if not key:
            raise KeyError_(
                'write("."): the run root itself is not stored, for what else lies there would be; write below it'
            )
        for inner, file in _files(key, path):
            storage.put_file(inner, file)


def _files(key: str, path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        yield key, path
    elif path.is_dir():
        for inner in sorted(path.rglob("*")):
            if inner.is_file():
                yield f"{key}/{inner.relative_to(path).as_posix()}", inner
