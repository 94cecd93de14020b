"""How a program is begun: `posix_spawn`, so that the keeper is not copied for it (a third of what a fork costs).

What a child cannot be told that way the keeper does for the moment of the call: it has one thread, so directory and
mask may be the child's meanwhile.
"""

from __future__ import annotations

import errno
import os
import signal

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MASK = 0o077
"""The keeper's own."""
_RESET = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
"""What a shell's background or nohup made the daemon ignore is no job's affair: it would stay over an exec."""
_found: dict[tuple[str, str], str] = {}
_MOST_FOUND = 256


class NoProgram(Exception):
    """It could not become the program; the text says what is missing."""


def spawn(argv: list[str], env: Mapping[str, str], *, cwd: str, umask: int, files: Sequence[int], home: int) -> int:
    """The pid of a program in a session of its own. `files` become 0, 1, 2 …; `home` is an open file of the directory
    in which the keeper is. NoProgram when there is none; OSError when the system has no room.
    """
    try:
        os.chdir(cwd)
    except OSError as error:
        raise NoProgram(f"the directory {cwd}: {error.strerror}") from None
    actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(files)]
    os.umask(umask)
    try:
        for again in (False, True):
            try:
                path = _program(argv[0], env.get("PATH") or os.defpath, again)
                return os.posix_spawn(path, argv, env, file_actions=actions, setsid=True, setsigdef=_RESET)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
                    raise
                if again or error.errno != errno.ENOENT:
                    raise NoProgram(f"{argv[0]}: {error.strerror}") from None
            except ValueError as error:  # a NUL inside
                raise NoProgram(str(error)) from None
        raise AssertionError("it returns or raises")
    finally:
        os.umask(MASK)
        os.fchdir(home)


def _program(name: str, path: str, afresh: bool) -> str:
    """The file that a name stands for, as a shell looks for it."""
    if "/" in name:
        return name
    known = None if afresh else _found.get((name, path))
    if known is not None:
        return known
    denied = False
    for folder in path.split(os.pathsep):
        file = os.path.join(folder or ".", name)
        if not os.path.isfile(file):
            continue
        if not os.access(file, os.X_OK):
            denied = True
            continue
        if os.path.isabs(file):
            if len(_found) >= _MOST_FOUND:
                _found.clear()
            _found[name, path] = file
        return file
    code = errno.EACCES if denied else errno.ENOENT
    raise OSError(code, os.strerror(code))
