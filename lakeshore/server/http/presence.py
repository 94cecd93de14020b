"""Which clients have gone, asked of the kernel for many sockets at once.

Only parked requests and streams are watched. An end of input counts as gone: a client that closed and one that merely
ended its sending side look the same until something is written to them, and a parked poll has nothing to write. One
epoll with EPOLLRDHUP answers for every watched socket, whatever unread input they hold, and can itself be waited for;
where there is none each socket is peeked at.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from math import inf

import trio

_RDHUP: int = getattr(select, "EPOLLRDHUP", 0)
_PEEK = socket.MSG_PEEK | getattr(socket, "MSG_DONTWAIT", 0)


class Presence:
    """The watched sockets and whom to tell, once."""

    __slots__ = ("_epoll", "_watched")

    def __init__(self) -> None:
        self._watched: dict[int, tuple[socket.socket, Callable[[], None]]] = {}
        self._epoll = select.epoll() if _RDHUP else None

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, sock: socket.socket, when_gone: Callable[[], None]) -> None:
        """Call `when_gone` at the first sweep that finds the peer gone; then it is watched no more."""
        fd = sock.fileno()
        self._watched[fd] = (sock, when_gone)
        if self._epoll is not None:
            self._epoll.register(fd, _RDHUP)

    def unwatch(self, fd: int) -> None:
        """Forget a socket; it may be unknown."""
        if self._watched.pop(fd, None) is not None and self._epoll is not None:
            self._epoll.unregister(fd)

    async def wait(self, tick: float) -> None:
        """Until a sweep would find somebody gone; `tick` seconds where that cannot be known without asking."""
        if self._epoll is not None:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
        else:
            await trio.sleep(tick if self._watched else inf)

    def sweep(self) -> None:
        """Tell everybody whose peer has gone."""
        if not self._watched:
            return
        if self._epoll is not None:
            gone = [fd for fd, _mask in self._epoll.poll(0)]
        else:
            gone = [fd for fd, (sock, _tell) in self._watched.items() if peer_is_gone(sock)]
        for fd in gone:
            _sock, tell = self._watched[fd]
            self.unwatch(fd)
            tell()


def peer_is_gone(sock: socket.socket) -> bool:
    """Whether the peer has ended its side or reset: one system call, nothing consumed.

    Unread input hides an end behind it; the sweep, which sees through it, then finds out.
    """
    try:
        return sock.recv(1, _PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def has_unread_input(sock: socket.socket) -> bool:
    """Whether bytes of the peer wait unread: closing now would reset the connection under our last answer."""
    try:
        return sock.recv(1, _PEEK) != b""
    except OSError:
        return False
