"""Listening sockets: opened before anything else starts, so that a taken port is the first thing a user hears of."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

_BACKLOG = 4096


class ListenError(OSError):
    """A listener could not be opened; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One open listening socket. `name` tells a request's policy which door it came through."""

    sock: socket.socket
    name: str = "main"
    tls: ssl.SSLContext | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self.sock.getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """What a client connects to."""
        host, port = self.address
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{shown}:{port}"


def open_listeners(
    host: str, port: int, *, name: str = "main", tls: ssl.SSLContext | None = None, backlog: int = _BACKLOG
) -> list[Listener]:
    """Listen on every address of `host` (a name may have an IPv4 and an IPv6 one). Port 0 picks a free one.

    Raises ListenError. May block on a name lookup: call it before the loop runs, or from a thread.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"cannot resolve the address {host!r} to listen on: {error}") from error
    listeners: list[Listener] = []
    failure: OSError | None = None
    seen: set[tuple[object, ...]] = set()
    for family, kind, proto, _canonical, address in found:
        if family not in (socket.AF_INET, socket.AF_INET6) or address in seen:
            continue
        seen.add(address)
        if port == 0 and listeners:
            address = (address[0], listeners[0].address[1], *address[2:])
        try:
            listeners.append(Listener(sock=_open(family, kind, proto, address, backlog), name=name, tls=tls))
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                failure = error  # this machine lacks one of the name's families: the other will do
                continue
            for listener in listeners:
                listener.sock.close()
            raise _explained(error, host, port) from error
    if not listeners:
        assert failure is not None
        raise _explained(failure, host, port) from failure
    return listeners


def open_socket_file(path: Path, *, name: str, backlog: int = _BACKLOG) -> Listener:
    """Listen on a Unix socket that only this user may connect to. What a killed server left there is replaced, so the
    caller must know that no other one uses it. Raises ListenError.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
        before = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise ListenError(error.errno, f"cannot listen on {path}: {error.strerror or error}") from error
    except BaseException:
        sock.close()
        raise
    return Listener(sock=sock, name=name)


def _open(family: int, kind: int, proto: int, address: tuple[object, ...], backlog: int) -> socket.socket:
    sock = socket.socket(family, kind, proto)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def _explained(error: OSError, host: str, port: int) -> ListenError:
    where = f"{host or 'every address'} port {port}"
    if error.errno == errno.EADDRINUSE:
        text = f"{where} is taken by another program: stop it, or choose another port"
    elif error.errno == errno.EACCES:
        text = f"not allowed to listen on {where}: ports below 1024 belong to root, choose a higher one"
    elif error.errno == errno.EADDRNOTAVAIL:
        text = f"{host} is not an address of this machine"
    else:
        text = f"cannot listen on {where}: {error.strerror or error}"
    return ListenError(error.errno, text)
