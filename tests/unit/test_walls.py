"""The walls of the house: what a package may load at import time, in a fresh interpreter; how long a file may be."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for top in ("lakeshore", "dreamlake") for path in (ROOT / top).rglob("*.py"))
OURS = ("wire", "plane", "net", "sdk", "server", "nymph", "client", "config", "cli", "tui", "demo", "testing")
THIRD = ("trio", "h11", "httpx", "msgpack", "cloudpickle", "yaml", "cattrs", "nacl", "click", "rich", "textual")


def but(*allowed: str) -> list[str]:
    """Everything of ours and of others that matters, without what is allowed."""
    named = [f"lakeshore.{name}" for name in OURS] + list(THIRD)
    return [name for name in named if name not in allowed]


MAY_NOT_LOAD = {
    "lakeshore": [*but(), "sqlite3", "asyncio", "ssl"],
    "dreamlake.lakeshore": [*but(), "sqlite3", "asyncio", "ssl"],
    "lakeshore.wire": [*but("lakeshore.wire", "msgpack"), "sqlite3", "asyncio"],
    "lakeshore.plane": but("lakeshore.plane", "lakeshore.wire", "msgpack"),
    "lakeshore.net": but("lakeshore.net", "lakeshore.wire", "h11", "msgpack"),
    "lakeshore.sdk": [
        *but("lakeshore.sdk", "lakeshore.wire", "lakeshore.plane", "lakeshore.net", "lakeshore.config"),
    ],
    "lakeshore.server": ["lakeshore.sdk", "lakeshore.nymph", "lakeshore.cli", "lakeshore.tui", "httpx", "cloudpickle"],
    "lakeshore.server.serve": [
        "lakeshore.sdk",
        "lakeshore.nymph",
        "lakeshore.cli",
        "lakeshore.tui",
        "httpx",
        "cloudpickle",
    ],
    "lakeshore.nymph": ["lakeshore.server", "lakeshore.plane", "lakeshore.sdk", "lakeshore.cli", "httpx"],
    "lakeshore.client": ["lakeshore.server", "lakeshore.plane", "lakeshore.sdk", "lakeshore.cli", "httpx", "trio"],
    "lakeshore.config": ["lakeshore.server", "lakeshore.plane", "lakeshore.sdk", "lakeshore.cli", "httpx", "trio"],
    "lakeshore.cli": ["lakeshore.server", "lakeshore.sdk", "httpx", "trio", "textual", "rich", "cattrs"],
    "lakeshore.cli.main": ["lakeshore.server", "lakeshore.sdk", "httpx", "trio", "textual", "rich", "cattrs"],
    "lakeshore.tui": ["trio", "lakeshore.server", "lakeshore.sdk"],
}


def there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def loaded_after(program: str) -> set[str]:
    """The modules of a fresh interpreter that ran `program`."""
    program += "\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(done.stdout.split("\n"))


@pytest.mark.parametrize("module", [name for name in MAY_NOT_LOAD if there(name)])
def test_importing_a_package_loads_nothing_beyond_its_wall(module: str) -> None:
    loaded = loaded_after(f"import {module}")
    assert module in loaded
    assert sorted(loaded & set(MAY_NOT_LOAD[module])) == []


@pytest.mark.inventory("P-195")
@pytest.mark.skipif(not there("lakeshore.sdk.functions"), reason="the SDK's functions are not there yet")
def test_a_local_udf_call_loads_neither_httpx_nor_msgpack_nor_sqlite3() -> None:
    loaded = loaded_after(
        "import dreamlake.lakeshore as dls\n"
        "@dls.udf\n"
        "def double(x: int) -> int:\n"
        "    return 2 * x\n"
        "assert double(21) == 42"
    )
    assert sorted(loaded & {"httpx", "msgpack", "sqlite3", "h11", "trio", "cloudpickle", "lakeshore.plane"}) == []


COSTLY = {"typing", "enum", "re", "dataclasses", "inspect", "contextlib", "functools", "collections", "importlib.util"}


@pytest.mark.inventory("P-058")
@pytest.mark.parametrize(
    "program",
    ["import dreamlake.lakeshore", "from lakeshore.cli.main import main; main(['--help']); main(['--version'])"],
)
def test_the_import_and_the_overview_load_nothing_that_costs_more_than_they_do(program: str) -> None:
    assert sorted((loaded_after(program) - loaded_after("pass")) & COSTLY) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_at_most_600_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 600


def type_checking_lines(tree: ast.Module) -> set[int]:
    """The lines of `if TYPE_CHECKING:` bodies: never run."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_import_inside_a_function_stands_at_a_stated_wall(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    tree = ast.parse(source)
    unrun = type_checking_lines(tree)
    unstated = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno not in unrun:
                stated = any(
                    re.search(r"#.*\bwall\b", lines[line - 1])
                    for line in range(node.lineno, (node.end_lineno or 0) + 1)
                )
                if not stated:
                    unstated.append(f"{path.relative_to(ROOT)}:{node.lineno}: {lines[node.lineno - 1].strip()}")
    assert unstated == []


@pytest.mark.parametrize("name", ["__main__.py", "_old_python.py"])
def test_python_3_6_can_parse_what_starts_the_program(name: str) -> None:
    source = (ROOT / "lakeshore" / name).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
    assert "from __future__" not in [line[:15] for line in source.splitlines()]
