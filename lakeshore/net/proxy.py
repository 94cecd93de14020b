"""Which proxy leads to a server: the variables of the environment, read as curl reads them.

    http_proxy | https_proxy    by the server's scheme; else all_proxy. Lower case first. HTTP_PROXY is not read where
                                REQUEST_METHOD is set: in a CGI program it is a header that a visitor sent
    no_proxy                    names, addresses, CIDR blocks, by comma or blank; `example.com` also names what ends in
                                `.example.com`; `*` is everything

This machine itself is always reached directly. A proxy is `[http[s]://][user:password@]host[:port]`. To an http server
it is asked for the whole URL, to an https server for a tunnel (CONNECT). No message shows its password.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from .target import Target

_PORTS = {"http": 1080, "https": 443}  # as curl has it
_SEPARATORS = re.compile(r"[,\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """What stands between. `authorization` is the value of Proxy-Authorization."""

    tls: bool
    host: str
    port: int
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


def through_proxy(target: Target, environ: Mapping[str, str]) -> Target:
    """The same server, by the proxy that the environment names for it. ValueError when that is none."""
    return replace(target, proxy=_proxy_for(target, environ))


def _proxy_for(target: Target, environ: Mapping[str, str]) -> Proxy | None:
    if target.is_loopback or _is_direct(target.host, _variable(environ, "no_proxy")[1]):
        return None
    cgi = "REQUEST_METHOD" in environ
    name, said = _variable(environ, f"{target.scheme}_proxy", upper=target.tls or not cgi)
    if not said:
        name, said = _variable(environ, "all_proxy")
    return parse_proxy(said, name) if said else None


def parse_proxy(said: str, name: str) -> Proxy:
    """A variable's value. ValueError names the variable, and never shows the value: it may hold a password."""
    try:
        parts = urlsplit(said if "://" in said else f"http://{said}")
        port, host = parts.port, parts.hostname
    except ValueError:
        raise ValueError(f"{name} cannot be read: write it as http://host:port") from None
    if parts.scheme not in _PORTS:
        raise ValueError(f"{name} must start with http:// or https://: other kinds of proxies are not spoken to")
    if not host or port == 0 or any(c <= " " or c == "\x7f" for c in said):
        raise ValueError(f"{name} names no host: write it as http://host:port")
    authorization = None
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(user.encode()).decode("ascii")
    return Proxy(tls=parts.scheme == "https", host=host, port=port or _PORTS[parts.scheme], authorization=authorization)


def _variable(environ: Mapping[str, str], name: str, *, upper: bool = True) -> tuple[str, str]:
    """(its name as it is spelled, its value); lower case wins, also when it is empty."""
    spelled = name if name in environ or not upper else name.upper()
    return spelled, environ.get(spelled, "").strip()


def _is_direct(host: str, no_proxy: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for entry in filter(None, _SEPARATORS.split(no_proxy.lower())):
        if entry == "*":
            return True
        if address is not None:
            try:
                if address in ipaddress.ip_network(entry.strip("[]"), strict=False):
                    return True
            except ValueError:
                continue
        else:
            name = entry.strip(".")
            if host == name or host.endswith(f".{name}"):
                return True
    return False
