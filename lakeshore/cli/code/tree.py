"""The git working tree that one stands in: its remote, its commit, whether it has changes.

Rule: nothing is written; a tree with changes gets a commit of its own from `git stash create`, which touches nothing.
A remote's user and password are not told to anybody.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..exits import ExitCode
from ..failures import Failure

GIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """`commit` is HEAD, or the one made of the changes."""

    remote: str
    commit: str
    dirty: bool


def read_tree(*, dirty: bool) -> Tree:
    """The tree of the working directory. Failure (exit 2) for none, for one without a commit or a remote, and, unless
    `dirty`, for one with changes.
    """
    if _git("rev-parse", "--is-inside-work-tree") != "true":
        raise Failure("this is no git working tree", hint="cd into the repository", code=ExitCode.USAGE)
    head = _git("rev-parse", "--verify", "--quiet", "HEAD")
    if not head:
        raise Failure("there is no commit yet", hint="git commit, then this again", code=ExitCode.USAGE)
    changed = bool(_git("status", "--porcelain"))
    if changed and not dirty:
        raise Failure(
            "the working tree has changes that are not committed",
            hint="commit them, or send them as they are with --dirty",
            code=ExitCode.USAGE,
        )
    remote = _git("config", "--get", "remote.origin.url")
    if not remote:
        hint = "git remote add origin <url>: archives are known by remote and commit"
        raise Failure("the repository has no remote 'origin'", hint=hint, code=ExitCode.USAGE)
    commit = (_git("stash", "create") or head) if changed else head
    return Tree(remote=_without_login(remote), commit=commit, dirty=changed)


def _git(*words: str) -> str:
    """What git prints; nothing when it fails."""
    git = shutil.which("git")
    if git is None:
        raise Failure("there is no git here", hint="install git", code=ExitCode.USAGE)
    try:
        done = subprocess.run(  # noqa: S603  (git)
            (git, *words), capture_output=True, text=True, errors="replace", timeout=GIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"`git {words[0]}` took longer than {GIT_S:.0f} s") from None
    return done.stdout.strip() if done.returncode == 0 else ""


def _without_login(remote: str) -> str:
    parts = urlsplit(remote)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return remote
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
