"""What the demo's workers run: ordinary functions, decorated. Called with `.local(...)` they run right here.

Read this file to see how much there is to it: `@udf(queue="demo")`.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lakeshore as dls

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dls.udf(queue="demo")
def measure(path: str) -> dict[str, Any]:
    """Lines, words, definitions and how often each identifier occurs, of one Python source file."""
    text = Path(path).read_text("utf-8", errors="replace")
    definitions = 0
    names: Counter[str] = Counter()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a template, or another Python's syntax: text all the same
        tree = ast.Module(body=[], type_ignores=[])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names[node.id] += 1
        elif isinstance(node, _DEFINITIONS):
            definitions += 1
    return {"lines": text.count("\n"), "words": len(text.split()), "definitions": definitions, "names": dict(names)}


@dls.udf(queue="demo")
def survey(packages: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """The lines and definitions of each package. A `yield` reaches the caller while the next package is being read."""
    for package, paths in packages.items():
        parts = [measure.local(path) for path in paths]
        yield {"package": package, **{what: sum(part[what] for part in parts) for what in ("lines", "definitions")}}


@dls.udf(queue="demo")
def who() -> int:
    """The process that runs this."""
    return os.getpid()
