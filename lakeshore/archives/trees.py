"""The git tree that a directory is in: its remote, its commit, whether it has changes, a snapshot of those.

Rule: what git keeps is never changed but by new objects that nothing refers to: no stash, no index, no ref. A remote's
user and password are not told to anybody. No git, no tree and a tree of somebody else's are all NoTree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ..wire.values import value
from .errors import ArchiveError, NoTree

GIT_S: Final = 60.0
"""How long one question to git may take."""
_COMPILED: Final = "__pycache__"
_PORT: Final = re.compile(r":[0-9]*$")
_QUERY: Final = re.compile(r"[?#]")
_OTHERS: Final = (
    *("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_SHALLOW_FILE"),
    *("GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE", "GIT_CONFIG", "GIT_ATTR_SOURCE"),
    *("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
)
"""What a hook's environment says of another tree, and how paths are to be read."""


@value
class Tree:
    """`head` is the commit that is checked out; `change` is the first line of `git status`, None of a clean tree. What
    Python compiles beside its sources is no change.
    """

    top: Path
    remote: str
    head: str
    change: str | None


def tree_at(directory: Path) -> Tree:
    """The tree that `directory` is in. NoTree when there is none, or none with a commit."""
    found = _git(directory, "rev-parse", "--show-toplevel")
    if not found:
        raise NoTree(f"{directory} is in no git working tree")
    top = Path(found)
    head = _git(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not head:
        raise NoTree(f"{top} has no commit yet: git commit, then this again")
    said = _git(top, "status", "--porcelain")
    if said is None:
        raise NoTree(f"git status failed in {top}")
    remote = _git(top, "config", "--get", "remote.origin.url")
    return Tree(
        top=top,
        remote=without_login(remote) if remote else f"local:{top.name}",
        head=head,
        change=next((line.strip() for line in said.splitlines() if not _is_compiled(line)), None),
    )


def is_tracked(tree: Tree, file: Path) -> bool:
    """Whether git keeps this file of the tree: not one that is ignored or new, as in a virtual environment."""
    return bool(_git(tree.top, "ls-files", "--", f":(top,literal){file.relative_to(tree.top).as_posix()}"))


def snapshot(tree: Tree) -> str:
    """A commit of the tree as it lies there, new files included, ignored ones not. The same content is the same commit.

    ArchiveError when git cannot make it.
    """
    when = _git(tree.top, "show", "-s", "--format=%cI", tree.head) or "1970-01-01T00:00:00Z"
    index = _git(tree.top, "rev-parse", "--git-path", "index")
    who = {f"GIT_{role}_{part}": text for role in ("AUTHOR", "COMMITTER") for part, text in _identity(when)}
    with tempfile.TemporaryDirectory(prefix="lakeshore-snapshot-") as place:
        own = {"GIT_INDEX_FILE": os.path.join(place, "index"), **who}
        if index and (tree.top / index).is_file():
            shutil.copyfile(tree.top / index, own["GIT_INDEX_FILE"])  # what it knows need not be read again
        if _git(tree.top, "add", "--all", "--", ".", f":(exclude,glob)**/{_COMPILED}/**", environ=own) is None:
            raise ArchiveError(f"git cannot add what has changed in {tree.top}: `git add --all --dry-run` says why")
        made = _git(tree.top, "write-tree", environ=own)
        words = (
            "-c",
            "commit.gpgsign=false",
            "commit-tree",
            made or "",
            "-p",
            tree.head,
            "-m",
            "lakeshore: a snapshot",
        )
        commit = _git(tree.top, *words, environ=own) if made else None
    if not commit:
        raise ArchiveError(f"git cannot make a commit of what has changed in {tree.top}")
    return commit


def note_of_snapshot(tree: Tree, commit: str | None = None) -> str | None:
    """Which snapshot of a tree was sent last, if one was; with `commit`, note it. Git does not read the note."""
    named = _git(tree.top, "rev-parse", "--git-path", "lakeshore-snapshot")
    if not named:
        return None
    path = tree.top / named
    try:
        if commit is not None:
            path.write_text(commit + "\n", "ascii")
            return commit
        return path.read_text("ascii").strip()
    except (OSError, UnicodeError):  # a tree that cannot be written to: its snapshots are sent by hand each time
        return None


def without_login(remote: str) -> str:
    """A remote's address without its user and password, and what follows a `?` or `#`. A user alone stays where it is
    part of the address: `git@host:path`, `ssh://git@host/path`.
    """
    scheme, slashes, rest = remote.partition("://")
    if not slashes or scheme.endswith("file"):
        return remote
    host, slash, path = rest.partition("/")
    if "@" not in host and ":" in host and "@" in path and not _PORT.search(host):  # a password with a slash
        path = path.rpartition("@")[2]
        host, slash, path = path.partition("/")
    login, at, place = host.rpartition("@")
    if at and scheme.rpartition("::")[2].endswith("ssh"):
        place = f"{login.partition(':')[0]}@{place}"
    return scheme + slashes + _QUERY.split(f"{place}{slash}{path}", maxsplit=1)[0]


def git_command(directory: Path, *words: str) -> list[str]:
    """The arguments that ask git about a directory. NoTree where there is no git."""
    git = shutil.which("git")
    if git is None:
        raise NoTree("there is no git here: install git")
    return [git, "-C", str(directory), *words]


def git_environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """Ours, without what names another tree; git asks nobody, and takes no lock that it can do without."""
    kept = {name: said for name, said in os.environ.items() if name not in _OTHERS}
    return {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", **(more or {})}


def _is_compiled(line: str) -> bool:
    return line.startswith("?? ") and f"/{_COMPILED}/" in f"/{line[3:]}/"


def _identity(when: str) -> tuple[tuple[str, str], ...]:
    return ("NAME", "lakeshore"), ("EMAIL", "lakeshore@localhost"), ("DATE", when)


def _git(directory: Path, *words: str, environ: dict[str, str] | None = None) -> str | None:
    """What git prints; None when it fails."""
    try:
        done = subprocess.run(  # noqa: S603  (git)
            git_command(directory, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=git_environment(environ),
            timeout=GIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ArchiveError(f"`git {words[0]}` took longer than {GIT_S:.0f} s in {directory}") from None
    except OSError as error:
        raise NoTree(f"git cannot be asked about {directory}: {error.strerror or error}") from None
    return os.fsdecode(done.stdout).strip() if done.returncode == 0 else None
