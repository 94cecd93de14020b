"""Where a host is and a connection to it, in a time that holds for all of it.

The system's resolver waits for as long as it was set up to, and nothing stops it: a name is asked for in a thread of
its own, which is left alone with an answer that comes too late. An address as such is asked of nobody. Of several
addresses each is tried for its share of the time that is left, so that one that is silent does not cost the others.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, TypeAlias

Address: TypeAlias = tuple[int, Any]
"""Family, and what `socket.connect` takes."""


def literal(host: str, port: int) -> list[Address] | None:
    """The address that `host` is; None for a name."""
    try:
        return _ask(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        return None


def look_up(host: str, port: int, told: Callable[[list[Address] | OSError], None]) -> None:
    """Ask for a name; `told` is called with the addresses or with what the resolver says, in another thread where one
    can be had.
    """

    def ask() -> None:
        try:
            found: list[Address] | OSError = _ask(host, port, 0)
        except OSError as error:
            found = error
        told(found)

    try:
        threading.Thread(target=ask, name="lakeshore-resolver", daemon=True).start()
    except RuntimeError:  # there are no more: the interpreter ends (from Python 3.12 on), or the system has none left
        ask()


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """A connected socket, whose timeout is what is left. Raises TimeoutError, or the OSError of the last address."""
    until = monotonic() + seconds
    found = literal(host, port) or _resolved(host, port, seconds)
    for at, (family, where) in enumerate(found):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(share(until - monotonic(), found, at))
            sock.connect(where)
            sock.settimeout(share(until - monotonic(), found, len(found) - 1))
        except OSError:
            sock.close()
            if at + 1 == len(found):
                raise
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise OSError(f"{host} has no address")


def share(left_s: float, found: Sequence[Address], at: int) -> float:
    """How long this address of several may take. Raises TimeoutError where nothing is left."""
    if left_s <= 0:
        raise TimeoutError
    return left_s / (len(found) - at)


def _resolved(host: str, port: int, seconds: float) -> list[Address]:
    answer: queue.SimpleQueue[list[Address] | OSError] = queue.SimpleQueue()
    look_up(host, port, answer.put)
    try:
        found = answer.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(found, OSError):
        raise found
    return found


def _ask(host: str, port: int, flags: int) -> list[Address]:
    # As bytes: for a `str` the codec of international names would be loaded, and a target's host is ASCII.
    found = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, where) for family, _kind, _protocol, _name, where in found]
