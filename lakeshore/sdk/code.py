"""Archives of code, the producer's side: a module's commit travels once, and is stamped onto the calls.

    a function by reference   its module's file -> the git tree that keeps it -> its commit
    that commit               archived already, or `git archive`, sent and registered: to the namespace's storage
                              `code-staging`, where there is one, else to the control plane itself
    the call                  Envelope.cfg["code"], the stamp (`archives/stamp.py`)

Rules: git is asked once for each function of a process, not for each call. Code that git does not keep (installed
packages, a tree with changes) has no stamp, and nothing here ever keeps a call from being submitted. LAKESHORE_CODE=off
switches it off.
Reference: python-sdk/happy-paths/10-code-mount.md; docs/adr/0020-a-workers-own-code-comes-first.md.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from lakeshore.archives.errors import ArchiveError, NoTree
from lakeshore.archives.packing import Packed, pack
from lakeshore.archives.stamp import USUAL_STORAGE, Stamp, key_of, sha256_of
from lakeshore.archives.trees import Tree, is_tracked, note_of_snapshot, snapshot, tree_at

from . import code_origins, code_storage, http_wire, warned
from .errors import DispatchError
from .http_client import HttpClient
from .ids import new_id
from .limits import OutOfTime

__all__ = ["push_if_needed"]

T = TypeVar("T")
log = logging.getLogger(__name__)

VARIABLE: Final = "LAKESHORE_CODE"
OFF: Final = "off"
ASKING_S: Final = 5.0
"""A server that is away is not waited for here: the submit does that."""
AGAIN_S: Final = 60.0
"""After that a server that was away, or had no room, is asked again."""
_FRESH_S: Final = 2.0
"""What git said of a tree holds so long, for the functions of one program."""
_OURS: Final = ("lakeshore", "dreamlake")
_INSTALLED: Final = ("site-packages", "dist-packages")
_MOST_ROOTS: Final = 8


def push_if_needed(plane: Any, directory: Path | str = ".", *, allow_dirty: bool = False) -> dict[str, Any] | None:
    """Archive the git tree of `directory` at a control plane (`HttpDispatch`), unless its commit is there; the stamp.

    None on a tree with uncommitted changes; with `allow_dirty` they travel, as a snapshot. Raises ArchiveError where
    there is no tree or its archive is too large, DispatchError when the server refuses.
    """
    tree = tree_at(Path(directory).absolute())
    if tree.change is not None and not allow_dirty:
        return None
    commit = tree.head if tree.change is None else snapshot(tree)
    if tree.change is not None:
        note_of_snapshot(tree, commit)
    found = _Sender(plane.client).sent(tree, commit, float("inf"))
    return _with_roots(found, ("",)).as_cfg()


class CodeChannel:
    """The stamps of one process, for one control plane."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._sender = _Sender(client)
        self._lock = threading.Lock()
        self._trees: dict[Path, tuple[float, Tree | ArchiveError]] = {}
        self._sent: dict[tuple[Path, str], Stamp] = {}
        self._not_before = 0.0
        self._late: dict[str, float] = {}
        """Modules whose commit was not sent in time: until then git is not asked again, either."""

    def stamp_of(self, module: str) -> Mapping[str, Any] | None:
        """The stamp for the calls of a function of this module; None when it does not travel. OutOfTime when that may
        be otherwise in a minute.
        """
        if os.environ.get(VARIABLE, "").strip().lower() == OFF:
            return None
        if time.monotonic() < self._late.get(module, 0.0):
            raise OutOfTime(None, sent=False)
        file = _file_of(module)
        if file is None:
            return None
        with self._lock:
            try:
                return self._stamp(module, file)
            except NoTree as error:
                log.debug("the code of %s does not travel: %s", module, error)
            except OutOfTime:
                self._late[module] = self._not_before
                raise
            except ArchiveError as error:
                warned.later(f"the code of {module} does not travel with its calls: {error}")
            except DispatchError as error:
                if not isinstance(error, http_wire.Refusal) or http_wire.is_passing(error):
                    self._not_before = self._late[module] = time.monotonic() + AGAIN_S
                    raise OutOfTime(None, sent=True) from error
                if not http_wire.has_no_route(error):  # else it is an older server
                    warned.later(f"the code of {module} does not travel with its calls: {error}")
            except Exception:  # whatever it is, the call is more than this
                log.warning("the code of %s does not travel with its calls", module, exc_info=True)
            return None

    def _stamp(self, module: str, file: Path) -> Mapping[str, Any] | None:
        origin = code_origins.of(file)
        if origin is not None:
            found = self._in_time(lambda until: self._sender.find(origin.remote, origin.commit, until))
            return None if found is None else _with_roots(found, origin.roots).as_cfg()
        tree = self._tree(file.parent)
        if not file.is_relative_to(tree.top) or not is_tracked(tree, file):
            return None
        root = _root_of(module, file, tree)
        if root is None:
            return None
        commit = tree.head
        if tree.change is not None:
            noted = note_of_snapshot(tree)
            commit = "" if noted is None else snapshot(tree)
            if commit != noted:
                commit = ""
        if not commit:
            warned.later(
                f"the git tree {tree.top} has changes that are not committed ({tree.change}), so the code of {module} "
                "does not travel with its calls, and a worker that lacks it fails them: commit, or send the tree as it "
                f"is with `lakeshore code push --dirty` ({VARIABLE}=off: never)"
            )
            return None
        sent = self._sent.get((tree.top, commit))
        if sent is None:
            sent = self._in_time(lambda until: self._sender.sent(tree, commit, until))
            self._sent[tree.top, commit] = sent
        return _with_roots(sent, _roots(root, tree)).as_cfg()

    def _in_time(self, ask: Callable[[float], T]) -> T:
        """What `ask(until)` answers. OutOfTime at once while a server is away."""
        if time.monotonic() < self._not_before:
            raise OutOfTime(None, sent=False)
        try:
            return ask(time.monotonic() + ASKING_S)
        except OutOfTime:
            self._not_before = time.monotonic() + AGAIN_S
            raise

    def _tree(self, directory: Path) -> Tree:
        until, found = self._trees.get(directory, (0.0, None))
        if found is None or time.monotonic() > until:
            try:
                found, keep_s = tree_at(directory), _FRESH_S
            except ArchiveError as error:  # a git that hangs is waited for once, not for each function
                found, keep_s = error, AGAIN_S
            self._trees[directory] = time.monotonic() + keep_s, found
        if isinstance(found, ArchiveError):
            raise found
        return found


class _Sender:
    """Brings archives to one control plane."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def sent(self, tree: Tree, commit: str, until: float) -> Stamp:
        """The archive of a commit, sent unless it is there. `until` when the server may be waited for (monotonic).

        ArchiveError, Refusal, DispatchError, OutOfTime.
        """
        there = self.find(tree.remote, commit, until)
        if there is not None:
            return there
        with tempfile.TemporaryDirectory(prefix="lakeshore-code-") as place:
            packed = pack(tree.top, commit, Path(place, "code.tar.gz"))
            key = key_of(commit, packed.sha256)
            try:
                stored = code_storage.put(self._client, USUAL_STORAGE, key, packed.path)
            except http_wire.Refusal:
                raise
            except DispatchError as error:
                raise ArchiveError(str(error)) from error  # a store's fault, which is not tried again with each call
            if stored:
                return self._register(tree, commit, packed, key)
            return self._keep(tree, commit, packed)

    def find(self, remote: str, commit: str, until: float) -> Stamp | None:
        """The archive that the control plane knows of. ArchiveError, Refusal, DispatchError, OutOfTime."""
        path = http_wire.path("v1", "namespaces", self._client.namespace, "code-repos", remote=remote, commit=commit)
        try:
            rows = self._client.call("GET", path, None, "asking for an archive of code", until=until)["codeRepos"]
        except http_wire.Refusal as refusal:
            if refusal.status == 404 and refusal.body.get("field") == "namespace":
                return None  # the upload makes it, where that may be
            raise
        return _stamp_of(rows[0]) if rows else None

    def _register(self, tree: Tree, commit: str, packed: Packed, key: str) -> Stamp:
        """It is in the storage; where another was registered meanwhile, that one counts."""
        path = http_wire.path("v1", "namespaces", self._client.namespace, "code-repos")
        body = {"remote": tree.remote, "commit": commit, "archiveKey": key, "storageName": USUAL_STORAGE}
        ref = _ref(tree, commit)
        row = self._client.post_new(
            path, body if ref is None else {**body, "ref": ref}, "registering an archive of code"
        )
        return _stamp_of(row, packed.size if row["archiveKey"] == key else None)

    def _keep(self, tree: Tree, commit: str, packed: Packed) -> Stamp:
        path = http_wire.path(
            *("v1", "namespaces", self._client.namespace, "code-archives"),
            remote=tree.remote,
            commit=commit,
            sha256=packed.sha256,
            ref=_ref(tree, commit),
        )
        row = self._client.store_file(path, packed.path, "uploading an archive of code")
        return _stamp_of(row, packed.size if row["sha256"] == packed.sha256 else None)


def _ref(tree: Tree, commit: str) -> str | None:
    """The name of a snapshot; None for a commit that git has."""
    return None if commit == tree.head else f"refs/snapshots/run-{new_id()}"


def _stamp_of(row: Mapping[str, Any], size: int | None = None) -> Stamp:
    """Of a registered archive. ArchiveError when nobody can check it."""
    sha256 = row.get("sha256") or sha256_of(str(row["archiveKey"]))
    if sha256 is None:
        raise ArchiveError(
            f"the archive of {row['commit'][:12]} was registered without its digest, and cannot be checked: "
            "remove it with `lakeshore code remove`, then submit again"
        )
    return Stamp(
        remote=row["remote"],
        commit=row["commit"],
        key=row["archiveKey"],
        storage=row["storageName"],
        sha256=sha256,
        size=size,
    )


def _with_roots(stamp: Stamp, roots: tuple[str, ...]) -> Stamp:
    return Stamp(
        remote=stamp.remote,
        commit=stamp.commit,
        key=stamp.key,
        storage=stamp.storage,
        sha256=stamp.sha256,
        size=stamp.size,
        roots=roots,
    )


def _file_of(module: str) -> Path | None:
    """The source of a module that may travel; None for ours, installed ones and what has no source."""
    if module.partition(".")[0] in _OURS:
        return None
    file = getattr(sys.modules.get(module), "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    path = Path(os.path.realpath(file))
    return None if any(part in _INSTALLED for part in path.parts) else path


def _root_of(module: str, file: Path, tree: Tree) -> str | None:
    """The directory of the tree that a module is imported from; None when its name and its file do not agree."""
    named = file.parent if file.name == "__init__.py" else file.with_suffix("")
    parts = module.split(".")
    if list(named.parts[-len(parts) :]) != parts:
        return None
    root = Path(*named.parts[: -len(parts)])
    return _relative(root, tree) if root.is_relative_to(tree.top) else None


def _roots(first: str, tree: Tree) -> tuple[str, ...]:
    """Where modules of the tree are imported from here: that of the function's, then others of `sys.path`."""
    found = [first]
    for entry in sys.path:
        path = Path(os.path.realpath(entry or "."))
        if path.is_relative_to(tree.top) and path.is_dir() and not any(part in _INSTALLED for part in path.parts):
            found.append(_relative(path, tree))
    return tuple(dict.fromkeys(found))[:_MOST_ROOTS]


def _relative(path: Path, tree: Tree) -> str:
    text = path.relative_to(tree.top).as_posix()
    return "" if text == "." else text
