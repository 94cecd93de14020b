"""How the user started this program, to name it so in what they are told to type next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys


def started_as() -> str:
    """`lakeshore` where PATH finds this very one; else its path (`./dist/lakeshore`), or interpreter and module."""
    name = sys.argv[0]
    base = os.path.basename(name)
    if base != "__main__.py" and os.path.isfile(name) and os.access(name, os.X_OK):
        found = shutil.which(base)
        if found is not None and os.path.samefile(found, name):
            return shlex.quote(base)
        return shlex.quote(name if os.path.dirname(name) else os.path.join(os.curdir, name))
    return shlex.join(sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1] or [base])
