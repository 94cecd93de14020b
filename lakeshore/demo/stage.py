"""The demo's stack, which may also be left running: then `stop` is the command that ends it and removes its files."""

from __future__ import annotations

import shlex

from lakeshore.stack import Stack

GRACE_S = 5.0
STOP = """\
#!/bin/sh
# Ends what `lakeshore demo --keep` left running: the workers, then the server. Then removes this directory.
runs() {
    kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}
end() {
    kill "$1" 2>/dev/null
    tries=0
    while runs "$1" && [ "$tries" -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -KILL "$1" 2>/dev/null
}
"""


class Stage(Stack):
    """A stack in a temporary directory. Leaving the `with` block ends and removes all, unless it is kept."""

    def __init__(self) -> None:
        super().__init__(grace_s=GRACE_S, prefix="lakeshore-demo-")
        self._kept = False

    @property
    def stop(self) -> str:
        """The command that ends and removes what is kept."""
        return f"sh {shlex.quote(str(self.directory / 'stop'))}"

    def keep(self) -> None:
        """Leave everything running and in place, for `stop`."""
        running = [*self.workers, *([self.server] if self.server is not None else [])]
        ends = [f"end {child.pid}" for child in running]
        lines = [*ends, f"rm -r {shlex.quote(str(self.directory))}"]
        (self.directory / "stop").write_text(STOP + "\n".join(lines) + "\n", "utf-8")
        self._kept = True
        for child in running:
            (self._servers_minder if child is self.server else self._minder).forget(child)
            child.returncode = 0  # it is not ours any more: nothing to wait for, nothing to warn about

    def _clear(self) -> None:
        if not self._kept:
            super()._clear()
