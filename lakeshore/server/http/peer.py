"""Which user owns the other end of a loopback connection. Linux only; None means unknown, which no rule may trust.

The kernel lists every TCP socket with its owner in /proc/net/tcp and tcp6; the client's is the row whose local address
is our peer. A socket whose process has already closed it is listed with owner 0 and inode 0: such a row says nothing,
so a client cannot pass for root by closing early.
"""

from __future__ import annotations

import ipaddress
import struct
import sys
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def uid_of_peer(*, peer: tuple[str, int] | None, local: tuple[str, int] | None) -> int | None:
    """The uid owning the client socket of a connection from `peer` to `local`, both (address, port)."""
    if peer is None or local is None or not sys.platform.startswith("linux"):
        return None
    try:
        addresses = ipaddress.ip_address(peer[0]), ipaddress.ip_address(local[0])
    except ValueError:
        return None
    if not all(_unmapped(address).is_loopback for address in addresses):
        return None  # another machine's sockets are not in our table
    client, server = _spellings(addresses[0], peer[1]), _spellings(addresses[1], local[1])
    for table in _TABLES:
        try:
            rows = table.read_bytes().splitlines()[1:]
        except OSError:
            continue  # no such table (IPv6 off, or a restricted /proc): unknown unless the other one has it
        for row in rows:
            columns = row.split()
            # sl local remote state tx:rx tr:when retransmits uid timeout inode
            if len(columns) > 9 and columns[1] in client and columns[2] in server and columns[9] != b"0":
                return int(columns[7])
    return None


def _unmapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _spellings(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> frozenset[bytes]:
    """Every way the tables may write an endpoint: an IPv4 address also as IPv6-mapped."""
    address = _unmapped(address)
    forms = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        forms.append(b"\0" * 10 + b"\xff\xff" + address.packed)
    return frozenset(f"{_words(packed)}:{port:04X}".encode("ascii") for packed in forms)


def _words(packed: bytes) -> str:
    """32-bit words as the kernel prints them: in the machine's own byte order."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
