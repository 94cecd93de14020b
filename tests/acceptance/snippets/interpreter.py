"""One interpreter for all Python blocks of a page, as a notebook is: `python interpreter.py DONE`

It reads the path of a block a line, runs it with top-level `await`, and writes how it went to the file DONE.<number>:
nothing, or a traceback.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
import traceback
import types
from pathlib import Path


def main(done: str) -> None:
    cell = types.ModuleType("__main__")
    sys.modules["__main__"] = cell
    sys.path[0] = ""
    with asyncio.Runner() as loop:
        for number, line in enumerate(sys.stdin):
            path = line.rstrip("\n")
            cell.__file__ = path
            said = ""
            try:
                program = compile(
                    Path(path).read_text("utf-8"), path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
                )
                running = eval(program, vars(cell))
                if program.co_flags & inspect.CO_COROUTINE:
                    loop.run(running)
            except BaseException:
                said = traceback.format_exc()
            sys.stdout.flush()
            partial = Path(f"{done}.part")
            partial.write_text(said, "utf-8")
            partial.rename(f"{done}.{number}")


if __name__ == "__main__":
    main(sys.argv[1])
