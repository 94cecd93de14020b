"""What can go wrong between us and a server, split by what the caller may do about it.

NetError
├── ConnectFailed       no connection came about and nothing was sent: trying again is always safe
│   └── TlsError        the other side could not prove who it is, or does not speak TLS
├── ConnectionLost      the connection ended before the answer; `sent_anything`: whether the server may have acted
├── Timeout             the server was too slow; `sent_anything` as above
└── ProtocolViolation   what came back is not an answer we accept (not HTTP, too large, malformed)

Every message names the URL and says what to do. No header value is ever part of a message: tokens travel there.
"""

from __future__ import annotations


class NetError(Exception):
    """Base of all errors of `lakeshore.net`. `url` is what was asked for; `sent_anything` whether the server may have
    seen it.
    """

    def __init__(self, message: str, *, url: str, sent_anything: bool = True) -> None:
        super().__init__(message)
        self.url = url
        self.sent_anything = sent_anything


class ConnectFailed(NetError):
    """Nothing was sent: the name did not resolve, nobody listens, or the connection took too long."""

    def __init__(self, message: str, *, url: str) -> None:
        super().__init__(message, url=url, sent_anything=False)


class TlsError(ConnectFailed):
    """The TLS handshake failed; no byte of the request left."""


class ConnectionLost(NetError):
    """The connection ended early. A retry is safe when `sent_anything` is false or the request is idempotent.

    `received_anything` is true when part of an answer had arrived."""

    def __init__(self, message: str, *, url: str, sent_anything: bool, received_anything: bool = False) -> None:
        super().__init__(message, url=url, sent_anything=sent_anything)
        self.received_anything = received_anything


class Timeout(NetError):
    """No complete answer in the time allowed."""


class ProtocolViolation(NetError):
    """The peer's bytes are not an HTTP/1.1 answer that we accept. Trying again will not help."""
