"""The keeper's side of its socket: who speaks to it, what each has said and what each still has to read."""

from __future__ import annotations

import select
import socket

from .place import is_ours, listen, unlink
from .protocol import SOCKET, BadMessage, Decoder, encode

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Peer:
    """A connection."""

    __slots__ = ("decoder", "gone", "leaving", "line", "out", "waits")

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.decoder = Decoder()
        self.out = bytearray()
        self.gone = False
        self.leaving = False
        """Closed once it has read what was said to it."""
        self.waits = False
        """Until there is room for what is to be said to it."""

    def say(self, message: dict[str, Any]) -> None:
        """Sent by the next `Peers.speak`."""
        self.out += encode(message)


class Peers:
    """All of them. Only the same user is heard, and root."""

    def __init__(self, poll: select.poll) -> None:
        self._poll = poll
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._peers: dict[int, Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def open(self) -> None:
        """From now on."""
        listen(self._listener)
        self._poll.register(self._listener, select.POLLIN)

    def close(self) -> None:
        """Nobody any more."""
        self._listener.close()
        unlink(SOCKET)

    def heard(self, fds: Iterable[int]) -> list[tuple[Peer, dict[str, Any]]]:
        """What those have said of whom there is something to read."""
        messages: list[tuple[Peer, dict[str, Any]]] = []
        fresh = False
        for fd in fds:
            if fd == self._listener.fileno():
                fresh = True
            elif fd in self._peers:
                self._hear(self._peers[fd], messages)
        if fresh:  # after the others: a daemon that has just died must not keep its successor out
            self._welcome()
        return messages

    def _hear(self, peer: Peer, messages: list[tuple[Peer, dict[str, Any]]]) -> None:
        try:
            data = peer.line.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
            return
        try:
            messages.extend((peer, message) for message in peer.decoder.feed(data))  # those before a bad one count
        except BadMessage as error:
            peer.say({"error": str(error)})
            peer.leaving = True

    def _welcome(self) -> None:
        while True:
            try:
                line, _address = self._listener.accept()
            except OSError:
                return
            if not is_ours(line):
                line.close()
                continue
            line.setblocking(False)
            self._peers[line.fileno()] = Peer(line)
            self._poll.register(line, select.POLLIN)

    def _drop(self, peer: Peer) -> None:
        self._poll.unregister(peer.line)
        self._peers.pop(peer.line.fileno(), None)
        peer.line.close()
        peer.gone = True

    def silent(self) -> bool:
        """Whether everybody has read everything."""
        return not any(peer.out for peer in self._peers.values())

    def speak(self) -> None:
        """As much as they take."""
        for peer in list(self._peers.values()):
            while peer.out:
                try:
                    sent = peer.line.send(peer.out)
                except BlockingIOError:
                    break
                except OSError:
                    self._drop(peer)
                    break
                del peer.out[:sent]
            if peer.gone:
                continue
            if peer.leaving and not peer.out:
                self._drop(peer)
            elif peer.waits != bool(peer.out):
                peer.waits = not peer.waits
                self._poll.modify(peer.line, select.POLLIN | (select.POLLOUT if peer.waits else 0))
