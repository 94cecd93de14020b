"""Where the examples' tests run them: a clean environment, from a checkout or from the one file."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest
from snippets.processes import Place, clean
from snippets.reference import ROOT

EXAMPLES = ROOT / "examples"
KINDS = ["checkout", "one file"]
STRICT = ("-W", "error", "-W", "ignore::ResourceWarning")
"""Nothing is said on stderr, but that a plane in memory is left open at the end, as the pages leave it (3.13 minds)."""


def place(kind: str, directory: Path, request: pytest.FixtureRequest, **more: str) -> Place:
    """A user's place in `directory`, with a home of its own. From the one file: a Python that has nothing else."""
    home = directory / "home"
    home.mkdir()
    variables = {"HOME": str(home), "LAKESHORE_HOME": str(home / ".lakeshore"), **more}
    if kind == "checkout":
        return Place(directory=directory, env=clean(**variables))
    archive, cache = request.getfixturevalue("pyz"), request.getfixturevalue("warm_cache")
    venv.create(directory / "bare", with_pip=False, symlinks=True)
    python = str(directory / "bare" / "bin" / "python3")
    env = clean(path=str(archive), XDG_CACHE_HOME=str(cache), **variables)
    return Place(directory=directory, env=env, python=python, cli=(python, str(archive)))


def needs_scikit_learn() -> None:
    """Skip where it is not installed: it comes with `requirements/dev.txt`."""
    pytest.importorskip("sklearn", reason="no scikit-learn: it is in requirements/dev.txt")
