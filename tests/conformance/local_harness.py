"""The local planes as harnesses: memory, and a file with a second handle on it."""

from __future__ import annotations

import time
from pathlib import Path

from lakeshore.plane import queues, retention
from lakeshore.sdk import local_losses
from lakeshore.sdk.dispatch import Dispatch


class LocalHarness:
    """`directory=None` is the memory plane, whose other handles share the one plane, as threads do."""

    seeded = True
    purges = True

    def __init__(self, directory: Path | None) -> None:
        self._path = ":memory:" if directory is None else str(directory / "plane.sqlite")
        self._handles: dict[tuple[str, bool], Dispatch] = {}

    def plane(self, ns: str = "default") -> Dispatch:
        return self._handle(ns, other=False)

    def another(self, ns: str = "default") -> Dispatch:
        return self._handle(ns, other=True)

    def lose(self, inv_id: str, claim: int, ns: str = "default") -> None:
        local_losses.lose(self.another(ns)._state(), (ns, inv_id, claim))

    def purge(self) -> None:
        dp = self.another()
        purged = dp._write(lambda tx: retention.purge(tx, before=time.time() + 1, now=time.time()))
        for key in purged.blobs:
            dp._state().plane.blobs.drop(key)

    def set_queue(self, name: str, **fields: object) -> None:
        dp = self.another()
        row = queues.QueueRow(ns="default", name=name, created_at=time.time(), **fields)
        dp._write(lambda tx: queues.add(tx, row) or queues.change(tx, row))
        dp._state().bells.ring(f"work/default/{name}", "work/default/*")

    def between(self) -> None:
        """Nothing happens to a plane that has no server."""

    def close(self) -> None:
        for handle in self._handles.values():
            handle.close()

    def _handle(self, ns: str, *, other: bool) -> Dispatch:
        if (ns, other) not in self._handles:
            if self._path == ":memory:" and self._handles:
                # A handle is what was handed out; the rows are those of the one plane.
                first = next(iter(self._handles.values()))
                twin = object.__new__(Dispatch)
                twin.__dict__.update(first.__dict__, ns=ns, _handed={})
                self._handles[ns, other] = twin
            else:
                self._handles[ns, other] = Dispatch(self._path, ns=ns)
        return self._handles[ns, other]
