"""Archives of code, the worker's side: what a process imports of the commit that a call was made in.

What the worker has itself comes first, where it is the source that was submitted: a checkout may hold what git does not
(data, what was compiled or generated), and it works today. The archive is for a module that is not here, and for one
whose function has another source here. It is looked for without importing anything, so that a module of the wrong
commit is never in the process.

    lacking    the archive's roots go to the end of `sys.path`: nothing that is here is hidden by it
    stale      its top-level modules come before everybody's, but for the interpreter's own and Lakeshore's

Rule: one process imports from one archive. A call of another commit, or of none, is not run in it: a worker process
gives the call back, unbegun, and a fresh one takes its place; a worker inside somebody's program refuses a call of
another commit. LAKESHORE_CODE=off: archives are not looked at; first: the archive always comes first.
Reference: python-sdk/happy-paths/10-code-mount.md; docs/adr/0020-a-workers-own-code-comes-first.md.
"""

from __future__ import annotations

import ast
import fcntl
import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from lakeshore._sha256 import sha256
from lakeshore.archives.errors import ArchiveError
from lakeshore.archives.shelf import Shelf, shelf_directory
from lakeshore.archives.stamp import Stamp, check_digest, read_stamp
from lakeshore.archives.unpacking import unpack
from lakeshore.wire import Envelope
from lakeshore.wire.errors import WireError
from lakeshore.wire.names import ANY_SOURCE

from . import code_origins, failures
from .errors import DispatchError, WorkerError
from .functions import walk
from .http_wire import is_passing
from .sources import Ending
from .transport import source_hash

VARIABLE: Final = "LAKESHORE_CODE"
OFF: Final = "off"
FIRST: Final = "first"
_OURS: Final = ("lakeshore", "dreamlake")
_MOST_SEEN: Final = 1024


class AnotherCommit(WorkerError):
    """This process has imported something else; a fresh one can run the call."""


class Mount:
    """Of one process. `get` brings the tree of an archive to this machine; it raises ArchiveError and DispatchError.

    `alone`: the process does nothing but run calls, and may be replaced.
    """

    def __init__(
        self,
        get: Callable[[Stamp], Path],
        *,
        alone: bool,
        runtime_policy: str = "minor",
        registry: Mapping[str, Any] | None = None,
    ) -> None:
        self._get, self._alone = get, alone
        self._compares = runtime_policy != OFF
        self._registry = registry or {}
        self._first = os.environ.get(VARIABLE, "").strip().lower() == FIRST
        self._here: set[tuple[str, str, Any]] = set()
        self.mounted: Stamp | None = None

    def prepare(self, data: bytes, *, fresh: bool) -> Ending | None:
        """Make importable what this call (its Envelope's bytes) needs of its commit; its ending when that cannot be.

        `fresh`: nothing was run here before. AnotherCommit when only a fresh process can run it.
        """
        try:
            self._prepare(data, fresh)
        except AnotherCommit:
            raise
        except Exception as error:  # noqa: BLE001  (stamps, names and archives are anybody's: it is the call that ends)
            passing = isinstance(error.__cause__, DispatchError) and is_passing(error.__cause__)
            return Ending(outcome="failed", error=failures.describe(error), retry=passing)
        return None

    def _prepare(self, data: bytes, fresh: bool) -> None:
        try:
            envelope = Envelope.from_bytes(data)
        except WireError:
            return  # whoever runs it says so
        fn, said = envelope.fn, envelope.cfg.get("code")
        if fn.get("kind") != "ref":
            said = None
        mounted = self.mounted
        if mounted is not None:
            self._check(mounted, said, envelope.id)
            return
        if said is None:
            return
        named = str(fn.get("module", "")), str(fn.get("qualname", "")), fn.get("src_hash")
        if named in self._here or f"{named[0]}:{named[1]}" in self._registry or named[1] in self._registry:
            return
        state = "stale" if self._first else self._state(*named)
        if state == "here":
            if len(self._here) >= _MOST_SEEN:
                self._here.clear()
            self._here.add(named)
            return
        module = named[0]
        if module.partition(".")[0] in sys.modules and state == "stale":
            self._refuse(f"invocation {envelope.id} needs {module} of another commit than was imported here", fresh)
        stamp = read_stamp(said)
        try:
            tree = self._get(stamp)
        except (ArchiveError, DispatchError) as error:
            why = "it is not here" if state == "lacking" else "its source here differs from the submitted version"
            raise WorkerError(
                f"cannot import module {module!r}: {why}, and the archive of its commit {stamp.commit[:12]} cannot be "
                f"had: {error}"
            ) from error
        self._mount(stamp, tree, module, state, fresh)

    def _check(self, mounted: Stamp, said: Any, invocation: str) -> None:
        """Raise unless a call belongs to what is mounted."""
        if said is not None:
            stamp = read_stamp(said)
            if (stamp.commit, stamp.sha256) == (mounted.commit, mounted.sha256):
                return
            other = f"commit {stamp.commit[:12]}"
        elif self._alone:
            other = "no commit"
        else:
            return
        why = f"invocation {invocation} is of {other}, and modules of commit {mounted.commit[:12]} were imported here"
        self._refuse(why, fresh=False)

    def _refuse(self, why: str, fresh: bool) -> None:
        if self._alone and not fresh:
            raise AnotherCommit(f"{why}: a fresh process takes over")
        if fresh:
            raise WorkerError(f"{why}, by the worker itself: update what is installed for this worker")
        raise WorkerError(f"{why}: start another worker for it, or use `lakeshore worker`, which does so by itself")

    def _state(self, module: str, qualname: str, submitted: Any) -> str:
        """Whether a function is `here`, `stale` or `lacking`. Nothing is imported."""
        compares = self._compares and isinstance(submitted, str) and submitted != ANY_SOURCE
        if module in sys.modules:
            found = walk(module, qualname)
            here = None if found is None else source_hash(found)
            return "stale" if found is None or (compares and here not in (None, submitted)) else "here"
        try:
            spec = _located(module)
        except (ImportError, ValueError, AttributeError):
            return "here"  # a finder of somebody else's has its own mind: the import shows
        if spec is None:
            return "lacking"
        if not compares or spec.origin is None or not spec.origin.endswith(".py"):
            return "here"
        try:
            source = Path(spec.origin).read_text("utf-8")
        except (OSError, UnicodeError):
            return "here"
        if qualname.partition(".")[0] not in source and "import *" not in source:
            return "stale"
        return "stale" if static_hash(source, qualname) not in (None, submitted) else "here"

    def _mount(self, stamp: Stamp, tree: Path, module: str, state: str, fresh: bool) -> None:
        roots = [str(tree / root) for root in stamp.roots if (tree / root).is_dir()]
        sys.path.extend(root for root in roots if root not in sys.path)
        self.mounted = stamp
        code_origins.note(tree, stamp)
        importlib.invalidate_caches()
        if state == "lacking":
            top = module.partition(".")[0]
            if _found(module):
                return
            if top in sys.modules:  # of here, without this part
                self._refuse(f"{module} is not in the {top} that was imported here", fresh)
        sys.meta_path.insert(0, _First(roots, module))
        if not _found(module):
            raise WorkerError(
                f"cannot import module {module!r}: neither this worker nor the archive of commit {stamp.commit[:12]} "
                "has it; is its file committed?"
            )


class _First:
    """Finds top-level modules of an archive before anybody else does, but for the interpreter's own and ours."""

    def __init__(self, roots: Sequence[str], module: str) -> None:
        self._roots = list(roots)
        self._wanted = module.partition(".")[0]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name in sys.stdlib_module_names or name in _OURS:
            return None
        spec = PathFinder.find_spec(name, self._roots, target)
        if spec is None or (spec.loader is None and name != self._wanted):
            return None  # a directory without __init__.py hides no module
        return spec


def _located(module: str) -> ModuleSpec | None:
    """Where a module would be imported from, found without importing anything; None where it would not be found."""
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        known = sys.modules.get(name)
        if known is not None and count < len(parts):
            path = getattr(known, "__path__", None)
        else:
            spec = _spec_of(name, path)
            path = None if spec is None else spec.submodule_search_locations
            if spec is None:
                return None
        if path is None and count < len(parts):
            return None
    return spec


def _spec_of(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, path)
        if spec is not None:
            return spec
    return None


def _found(module: str) -> bool:
    try:
        return _located(module) is not None
    except (ImportError, ValueError, AttributeError):
        return True  # the import shows


def static_hash(source: str, qualname: str) -> str | None:
    """What `transport.source_hash` says of a function of this source; None where only running it would tell."""
    try:
        node: Any = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    for part in qualname.split("."):
        named = [one for one in node.body if getattr(one, "name", None) == part and hasattr(one, "body")]
        if len(named) != 1:
            return None
        node = named[0]
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines = [line + "\n" for line in source.split("\n")][first - 1 :]  # as linecache has them: no other sign ends one
    text = textwrap.dedent("".join(inspect.getblock(lines)))
    return "sha256:" + sha256(text.encode()).hexdigest()[:16]


def got_from(plane: Any) -> Callable[[Stamp], Path]:
    """`Mount.get` for a plane that keeps archives (`fetch_code`): they are unpacked once on this machine."""
    held: list[Any] = []

    def get(stamp: Stamp) -> Path:
        shelf = Shelf(shelf_directory())
        found = shelf.find(stamp)
        if found is None:
            file = shelf.new_file()
            try:
                check_digest(stamp, plane.fetch_code(stamp, file))
                found = shelf.put(stamp, file)
            except BaseException:
                shelf.drop(file)
                raise
        held.append(found)  # while this process lives
        return found.tree

    return get


def given_by_daemon(environ: MutableMapping[str, str]) -> Callable[[Stamp], Path] | None:
    """`Mount.get` of a job that a daemon has fetched the archive for: DREAMLAKE_CODE is its tree on this host, or its
    file in the working directory, DREAMLAKE_CODE_ERROR why there is none. None where no daemon says anything.
    """
    named, error = environ.pop("DREAMLAKE_CODE", None), environ.pop("DREAMLAKE_CODE_ERROR", None)
    if named is None and error is None:
        return None

    def get(_stamp: Stamp) -> Path:
        if named is None:
            raise ArchiveError(str(error))
        place = Path(named)
        if place.is_dir():
            held.append(os.open(place.parent / "whole.json", os.O_RDONLY | os.O_CLOEXEC))
            fcntl.flock(held[-1], fcntl.LOCK_SH)
            return place
        tree = place.parent / ".code"
        tree.mkdir(0o700)
        unpack(place, tree)
        return tree

    held: list[int] = []
    return get
