"""TLS as a client: the system's trust, or a bundle of one's own. Loaded only for https: `ssl` is slow to import."""

from __future__ import annotations

import os
import socket
import ssl
from functools import lru_cache

from .errors import ConnectFailed, TlsError
from .target import Target


def context_for(target: Target) -> ssl.SSLContext:
    """`ssl.create_default_context`, which honours SSL_CERT_FILE; the target's `ca_file` or LAKESHORE_CA_FILE replaces
    its trust.
    """
    if not target.verify:
        return _unverified()
    ca_file = target.ca_file or os.environ.get("LAKESHORE_CA_FILE") or None
    try:
        return _context(ca_file)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(
            f"{target.url}: cannot read certificates from {ca_file}: {error}. Point LAKESHORE_CA_FILE at a PEM file",
            url=target.url,
        ) from error


@lru_cache(maxsize=16)
def _context(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=1)
def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def wrap(sock: socket.socket, target: Target) -> ssl.SSLSocket:
    """Handshake on a connected blocking socket within its timeout. TlsError or ConnectFailed; the socket is then the
    caller's to close.
    """
    context = context_for(target)
    try:
        return context.wrap_socket(sock, server_hostname=target.host)
    except (OSError, ValueError) as error:
        raise handshake_failed(target, error) from error


def handshake_failed(target: Target, error: BaseException) -> ConnectFailed:
    """The error to raise for a handshake that ended in `error`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(
            f"{target.url}: the server's certificate is not trusted ({error.verify_message}). "
            "If it is your own, point LAKESHORE_CA_FILE at its CA certificate",
            url=target.url,
        )
    if isinstance(error, ssl.SSLError):
        return TlsError(f"{target.url}: TLS failed ({error}). Check that this port speaks https", url=target.url)
    return ConnectFailed(f"{target.url}: the connection ended in the TLS handshake ({error})", url=target.url)
