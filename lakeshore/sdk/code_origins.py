"""The archive that this process imports from: what a body submits is of the same commit.

An unpacked tree is in no git repository, so that the calls of a body would have no stamp, and fail on whichever worker
lacks their module.
"""

from __future__ import annotations

from pathlib import Path

from lakeshore.archives.stamp import Stamp

_origins: list[tuple[Path, Stamp]] = []


def note(tree: Path, stamp: Stamp) -> None:
    """Modules are imported from this tree, which is the commit of this stamp."""
    _origins.append((tree.resolve(), stamp))


def of(file: Path) -> Stamp | None:
    """The commit that a file (without links in its path) is of; None for what no archive brought."""
    return next((stamp for tree, stamp in _origins if file.is_relative_to(tree)), None)
