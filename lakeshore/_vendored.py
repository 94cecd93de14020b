"""Makes the third-party code that travels in the archive importable. A no-op in an installed package.

Rules: beside somebody's code ours stands at the end of `sys.path`, so that their versions win. Only our own program,
which runs nobody else's code, puts it first: a host's old `trio` or `click` must not break it. Where the package is
imported from the archive itself (PYTHONPATH) and the archive's tree is unpacked already, the rest comes from that
tree: compiled ahead, with compiled modules. An import never unpacks. Who stands in a checkout gets the checkout's own
packages, as Python finds those first, and the third-party code of the one file that is on the path behind it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in `lakeshore/__init__.py`
if TYPE_CHECKING:
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_lock: int | None = None
archive = ""  # the archive that was imported from, where an unpacked tree stands in for it


def _native(vendor: str) -> list[str]:
    """The directories of compiled modules for this interpreter; without them msgpack is pure and nacl is missing."""
    from lakeshore._start import platform, python_tag  # wall: a checkout needs neither

    base, tag = os.path.join(vendor, "_native", platform()), python_tag()
    tags = [tag] if tag.endswith("t") else [tag, "abi3"]  # without a GIL there is no stable ABI
    return [path for name in tags if os.path.isdir(path := os.path.join(base, name))]


def _hold() -> int | None:
    """A shared lock on the unpacked tree, so that it is not pruned while this process uses it."""
    import fcntl  # wall: only inside an unpacked archive

    try:
        lock = os.open(os.path.join(os.path.dirname(_HERE), ".lakeshore"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _tree_of(loader: Any) -> tuple[str, list[str]]:
    """The unpacked tree of an archive, held from now on, or "" without one; and the paths of the third-party code."""
    global _lock  # noqa: PLW0603  (as in `extend_path`)
    name = os.path.join("lakeshore", "_start.py")
    start: dict[str, Any] = {"__name__": "lakeshore._start"}
    exec(compile(loader.get_data(name), name, "exec", dont_inherit=True), start)  # noqa: S102  (our own file)
    root, lock = start["unpacked"]()
    if lock < 0:
        return "", [os.path.join(loader.archive, "lakeshore", "_vendor")]  # no compiled module can be imported from it
    _lock = lock
    vendor = os.path.join(root, "lakeshore", "_vendor")
    return root, [*_native(vendor), vendor]


def _from_archive(loader: Any) -> list[str]:
    """Imported from the archive: go on in its unpacked tree, if there is one. The paths of the third-party code."""
    global archive  # noqa: PLW0603  (as in `extend_path`)
    root, paths = _tree_of(loader)
    if root:
        archive = os.path.abspath(loader.archive)
        sys.modules[__package__].__path__ = [os.path.join(root, "lakeshore")]
    return paths


def _behind() -> list[str]:
    """Imported from a checkout, or installed: third-party code of the first archive, or tree of one, on the path."""
    for entry in sys.path:
        vendor = os.path.join(entry, "lakeshore", "_vendor")
        if os.path.isdir(vendor):
            return [*_native(vendor), vendor]
        if os.path.isfile(entry):
            from zipimport import ZipImportError, zipimporter  # wall: hardly anybody has a file on the path

            try:
                return _tree_of(zipimporter(entry))[1]
            except (ZipImportError, OSError):
                continue  # somebody else's archive
    return []


def extend_path(*, first: bool = False, lock: int | None = None) -> None:
    """Append (for our own program: put first, after our root) `_vendor` and this interpreter's native modules. Once.

    `lock` is one that the program holds on its tree already; it takes the place of ours.
    """
    global _lock  # noqa: PLW0603  (the lock lives as long as the process)
    vendor = os.path.join(_HERE, "_vendor")
    if (vendor in sys.path or archive) and not first:
        return
    if os.path.isdir(vendor):
        paths = [*_native(vendor), vendor]
        if lock is not None and _lock is not None:
            os.close(_lock)
        _lock = lock if lock is not None else _lock or _hold()
    elif hasattr(globals()["__loader__"], "archive"):
        paths = _from_archive(globals()["__loader__"])
    else:
        paths, first = [path for path in _behind() if path not in sys.path], False
    if not first:
        sys.path.extend(paths)
        return
    others = [entry for entry in sys.path if entry not in paths]
    at = others.index(os.path.dirname(_HERE)) + 1
    sys.path[:] = [*others[:at], *paths, *others[at:]]
