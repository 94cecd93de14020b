"""Which plane a call goes to when it names none: inside a body, the plane that its worker drains.

Set around each body by the worker, and once for a whole process by the worker's entry, so that threads which a body
starts see it too. Knows no plane by name and imports none.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

_plane: ContextVar[Any] = ContextVar("lakeshore_plane", default=None)
_of_process: Any = None


def ambient_plane() -> Any | None:
    """The plane of the worker whose body is running here, else that of this worker process, else None."""
    found = _plane.get()
    return found if found is not None else _of_process


def set_process_plane(plane: Any | None) -> None:
    """Make `plane` the default of this process. A worker's entry calls this."""
    global _of_process  # noqa: PLW0603  # one default a process is what is stated here
    _of_process = plane


def install_plane(plane: Any | None) -> Token[Any]:
    """`plane` is ambient here until `uninstall_plane` takes the token."""
    return _plane.set(plane)


def uninstall_plane(token: Token[Any]) -> None:
    """What was ambient before is so again."""
    _plane.reset(token)
