"""Which user owns the other end of a loopback connection, asked of the kernel by its four-tuple (Linux).

One question to NETLINK_SOCK_DIAG takes 30 µs however many sockets there are; reading /proc/net/tcp instead, which
`http/peer.py` does, takes tens of milliseconds where the kernel's table is large, and the loop would wait for it.
A socket that its process has closed has no inode any more, and then nothing is said of it.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from typing import Final

from .http import ConnectionInfo

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_HEADER: Final = struct.Struct("=IHHII")
_QUESTION: Final = struct.Struct("=BBBBI")
_NO_COOKIE: Final = b"\xff" * 8
_ANSWER: Final = struct.Struct("=IIIII")  # expires, rqueue, wqueue, uid, inode
_ANSWER_AT: Final = 16 + 4 + 48


class SocketOwners:
    """Asks for one server; what is known of a connection is kept while it is likely to be open."""

    def __init__(self, *, kept: int = 8192) -> None:
        self._kept = kept
        self._known: dict[int, int | None] = {}
        self._netlink = _open()
        self._asked = 0

    def uid(self, connection: ConnectionInfo) -> int | None:
        """The user at the client's end; None when it cannot be known, which no rule may trust."""
        number = connection.number
        if number in self._known:
            return self._known[number]
        found = self._ask(connection.peer, connection.local)
        if found is None:
            found = connection.peer_uid
        if len(self._known) >= self._kept:
            del self._known[next(iter(self._known))]
        self._known[number] = found
        return found

    def close(self) -> None:
        """Close the kernel's ear."""
        if self._netlink is not None:
            self._netlink.close()

    def _ask(self, peer: tuple[str, int] | None, local: tuple[str, int] | None) -> int | None:
        if self._netlink is None or peer is None or local is None:
            return None
        client, server = _packed(peer[0]), _packed(local[0])
        if client is None or server is None or len(client) != len(server):
            return None
        family = socket.AF_INET if len(client) == 4 else socket.AF_INET6
        question = (
            _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
            + struct.pack("!HH", peer[1], local[1])
            + client.ljust(16, b"\0")
            + server.ljust(16, b"\0")
            + struct.pack("=I", 0)
            + _NO_COOKIE
        )
        self._asked = (self._asked + 1) & 0xFFFFFFFF
        head = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, self._asked, 0)
        try:
            self._netlink.send(head + question)
            answer = self._netlink.recv(8192)
            while _HEADER.unpack_from(answer)[3] != self._asked:  # a late answer to an earlier question
                answer = self._netlink.recv(8192)
        except (OSError, struct.error):
            return None
        if _HEADER.unpack_from(answer)[1] == _NLMSG_ERROR or len(answer) < _ANSWER_AT + _ANSWER.size:
            return None
        _expires, _received, _sent, uid, inode = _ANSWER.unpack_from(answer, _ANSWER_AT)
        return int(uid) if inode else None


def _open() -> socket.socket | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    except OSError:
        return None  # a sandbox without it: the table answers
    try:
        netlink.connect((0, 0))
        netlink.settimeout(1.0)
    except OSError:
        netlink.close()
        return None
    return netlink


def _packed(address: str) -> bytes | None:
    """The bytes of a loopback address; None for any other, whose socket is not in this machine's table."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed.packed if parsed.is_loopback else None
