"""TLS contexts for listeners."""

from __future__ import annotations

import ssl
from pathlib import Path


class TlsError(ValueError):
    """The certificate or its key cannot be used; the message says which and why."""


def server_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """A context that serves `certificate` (PEM, with its chain): TLS 1.2 and up, HTTP/1.1 only."""
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise TlsError(f"{path} does not exist or is not a file")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"cannot use the certificate {certificate} with its key: {error}") from error
    return context


def _no_password() -> str:
    raise TlsError("the key is encrypted: a server cannot ask for its password, give it an unencrypted key")
