"""A server's base URL, parsed once: `http(s)://host[:port][/prefix]`, IPv6 hosts in brackets.

Credentials in a URL are refused: they end in logs and process lists; a token goes into a header. Proxies are used by
the trio shell alone, for targets that name one (`proxy.through_proxy`): those of the daemon.
The SDK and the CLI reach their servers directly or through a tunnel; there, who needs a proxy mounts stock httpx.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from .proxy import Proxy

DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9._\-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._\-]+)?")
_PREFIX = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to connect and what to write in the request head.

    `host` has no brackets; `host_header` has them, and the port unless it is the scheme's own; `prefix` is "" or
    "/path" without a slash at the end; `ca_file` is a PEM bundle to trust instead of the system's (None:
    `LAKESHORE_CA_FILE`, else the system's); without `verify` any certificate is accepted.
    """

    scheme: str
    host: str
    port: int
    prefix: str = ""
    ca_file: str | None = None
    host_header: str
    url: str
    verify: bool = True
    proxy: Proxy | None = None

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine, by a name that cannot lead elsewhere."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def origin(self) -> tuple[str, str, int]:
        """(scheme, host, port): two targets with the same origin may share credentials and connections."""
        return (self.scheme, self.host, self.port)

    def same_origin(self, url: str) -> bool:
        """Whether `url` (absolute, or a path on this server) leads to this very origin. A malformed or foreign one
        does not.
        """
        if url.startswith("/") and not url.startswith("//"):
            return True
        try:
            return parse_target(url).origin == self.origin
        except ValueError:
            return False


def parse_target(url: str, *, ca_file: str | None = None) -> Target:
    """Parse a base URL. ValueError says what is wrong with it, and never repeats a password."""
    if any(c <= " " or c == "\x7f" for c in url):
        raise ValueError("the server's URL contains a space or a control character; write it as http://host:port")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the server's URL cannot be read ({_reason(error)}); write it as http://host:port") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(f"the server's URL must start with http:// or https://{_got(url)}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the server's URL contains a user name or password; remove it and pass a token instead")
    if parts.query or parts.fragment:
        raise ValueError("the server's URL must end before any '?' or '#'; give host, port and path prefix only")
    host = (parts.hostname or "").lower()
    if not host or not _HOST.fullmatch(host):
        raise ValueError("the server's URL has no valid host name; write it as http://host:port")
    if port == 0:
        raise ValueError("port 0 cannot be connected to; give the port that the server listens on")
    prefix = parts.path.rstrip("/")
    if not _PREFIX.fullmatch(prefix):
        raise ValueError("the path of the server's URL must be percent-encoded ASCII")
    shown = f"[{host}]" if ":" in host else host
    number = port or DEFAULT_PORTS[parts.scheme]
    host_header = shown if number == DEFAULT_PORTS[parts.scheme] else f"{shown}:{number}"
    return Target(
        scheme=parts.scheme,
        host=host,
        port=number,
        prefix=prefix,
        ca_file=ca_file,
        host_header=host_header,
        url=f"{parts.scheme}://{host_header}{prefix}",
    )


def _got(url: str) -> str:
    """The value, and what was probably meant by one that names no scheme; nothing where it may hold a password."""
    if any(c in url for c in "@?#"):
        return ""
    if "://" in url:
        return f" (got {url!r:.80})"
    meant = f"http://{url.lstrip('/')}"
    try:
        parse_target(meant)
    except ValueError:
        return f" (got {url!r:.80})"
    return f" (got {url!r:.80}; try {meant:.80})"


def _reason(error: ValueError) -> str:
    # urllib repeats the port or host it disliked; after a stray '@' that text may be a password
    text = str(error)
    return "bad port" if "ort" in text.split(" ", 1)[0] else "bad host"
