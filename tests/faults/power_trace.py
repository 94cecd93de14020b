"""What a process did to its files and sockets, in one order: its system calls under strace.

A call has two instants, where it was entered and where it returned. What a write put in place is there when it has
returned, and a sync covers what had returned when it was entered; the bytes of a send may leave once it is entered.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_CALLS = (
    "open,openat,creat,close,dup,dup2,dup3,fcntl,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,fallocate,"
    "fsync,fdatasync,sync_file_range,msync,mmap,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,"
    "rmdir,symlink,symlinkat,copy_file_range,sendfile,splice,accept,accept4,sendto,sendmsg,sendmmsg"
)
_LINE = re.compile(rb"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)", re.DOTALL)
_ENDED = re.compile(rb"(.*)\) += (0x[0-9a-f]+|-?\d+|\?)( .*)?", re.DOTALL)
_TEXT = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_UNFINISHED = b" <unfinished ...>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One system call. `arguments` are as strace writes them; `result` is None when it never returned."""

    name: str
    arguments: bytes
    entered: int
    returned: int
    result: int | None

    def texts(self) -> list[bytes]:
        """The strings among its arguments: paths, or what was written."""
        return [bytes.fromhex(found[1].replace(b"\\x", b"").decode()) for found in _TEXT.finditer(self.arguments)]

    def number(self, place: int) -> int:
        """An argument that is a number; counted from the end when negative."""
        return int(self.bare().split(b",")[place], 0)

    def fd(self) -> int:
        """The first argument."""
        return int(self.arguments.partition(b",")[0])

    def bare(self) -> bytes:
        """The arguments with every string left out."""
        return _TEXT.sub(b"", self.arguments)


def traced(trace: Path, command: list[str]) -> list[str]:
    """The command that runs another under strace; the test is skipped where that is not allowed."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed (Debian: apt install strace)")
    options = ["-f", "-qq", "-xx", "-s", "100000000", "--seccomp-bpf", "-e", "signal=none", "-e", f"trace={_CALLS}"]
    probe = subprocess.run([strace, *options, "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"this machine lets nobody trace: {probe.stderr.strip()}")
    return [strace, *options, "-o", str(trace), *command]


def calls(trace: Path) -> Iterator[Call]:
    """Every call of a trace, in the order of their returns; those that never returned come last."""
    begun: dict[bytes, tuple[str, bytes, int]] = {}
    with trace.open("rb") as file:
        for number, raw in enumerate(file):
            found = _LINE.fullmatch(raw.rstrip(b"\n"))
            if found is None:
                continue  # how a thread ended
            pid, resumed, name, rest = found.groups()
            if resumed is not None:
                said, before, entered = begun.pop(pid)
                rest = before + rest
            else:
                said, entered = name.decode(), number
                if rest.endswith(_UNFINISHED):
                    begun[pid] = (said, rest.removesuffix(_UNFINISHED), entered)
                    continue
            ended = _ENDED.fullmatch(rest)
            assert ended is not None, raw[:200]
            result = None if ended[2] == b"?" else int(ended[2], 0)
            yield Call(name=said, arguments=ended[1], entered=entered, returned=number, result=result)
    for said, before, entered in begun.values():
        yield Call(name=said, arguments=before, entered=entered, returned=1 << 60, result=None)
