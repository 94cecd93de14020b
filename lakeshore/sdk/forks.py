"""A fork comes between what threads do with planes, not in the midst of it.

What another thread holds when the process forks is held for ever in the child: our own locks, and those in SQLite that
all connections of a process share. So whoever forks first takes the gate, behind which planes are opened and let go,
then the turn of each plane of files that is open, then what `leaf` made; parent and child let go of them.

The child closes the connections that it inherited, while it still has their turns and before it opens its own. As long
as one of a file is open, SQLite takes the locks of that file for this process's and does not ask the kernel for them:
then whoever else closes the file believes to be the last one, and deletes the log that the child writes to. The
kernel's locks are the parent's and stay so.
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections import deque
from typing import Any, Protocol

gate = threading.RLock()
"""Held by who opens a plane of this process, or lets go of one. A turn is waited for behind it, never the other way."""


class Inheritable(Protocol):
    """What a child inherits and must not use. `turn` is held by any thread that uses it."""

    turn: Any

    def forget(self) -> None:
        """In the child: let go of it, with its turn at hand. Nothing of the parent's ends by that."""


_open: weakref.WeakSet[Inheritable] = weakref.WeakSet()
_leaves: list[Any] = []
_acquire, _release = operator.methodcaller("acquire"), operator.methodcaller("release")


class _Here(threading.local):
    """The forks that this thread is in the midst of: more than one when a signal's handler forks, too. Of each the
    locks that it has taken, in order, and the planes whose turns are the second to the last of them.
    """

    def __init__(self) -> None:
        self.forks: list[tuple[list[Any], list[Inheritable]]] = []


_here = _Here()


def opened(plane: Inheritable) -> None:
    """From now on no fork comes in the midst of its turn. Call it behind the gate."""
    _open.add(plane)


def leaf() -> Any:
    """A lock of the module that asks for it, whose holder waits for nothing."""
    lock = threading.RLock()  # a signal's handler may fork while its thread holds it
    _leaves.append(lock)
    return lock


def _before() -> None:
    # An interrupt ends this where it is, and then the process forks all the same: what was taken is let go of. None
    # comes between the taking of a lock and its being noted, for that is one step of the interpreter.
    held, planes = list[Any](), list[Inheritable]()
    _here.forks.append((held, planes))
    held.extend(filter(_acquire, (gate,)))
    planes.extend(_open)
    held.extend(filter(_acquire, [plane.turn for plane in planes]))
    held.extend(filter(_acquire, _leaves))


def _let_go() -> None:
    if _here.forks:
        held, _planes = _here.forks.pop()
        deque(map(_release, reversed(held)), maxlen=0)


def _in_child() -> None:
    try:
        if _here.forks:
            held, planes = _here.forks[-1]
            for plane, _turn in zip(planes, held[1:], strict=False):  # an interrupt left some turns where they were
                plane.forget()
    finally:
        _let_go()


os.register_at_fork(before=_before, after_in_parent=_let_go, after_in_child=_in_child)
