"""Runs a file as a notebook runs a cell: `await` at the top level is allowed. `python notebook.py FILE`"""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import sys
import types
from pathlib import Path


def main(path: str) -> None:
    source = Path(path).read_text("utf-8")
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    program = compile(source, path, "exec", flags=flags, dont_inherit=True)
    cell = types.ModuleType("__main__")
    cell.__file__ = path
    sys.modules["__main__"] = cell
    sys.path[0] = str(Path(path).parent)
    linecache.checkcache(path)
    running = eval(program, vars(cell))
    if program.co_flags & inspect.CO_COROUTINE:
        asyncio.run(running)


if __name__ == "__main__":
    main(sys.argv[1])
