"""A disk as the standard promises it, and no better: what is not synced may be there, or not, or in part.

A file's bytes are kept by a sync of that file; its name by a sync of its directory, for every name in it. The state of
the disk after a cut is made of what was synced and of any part of the rest: nothing of it, all of it, or a drawn part,
where a write may be torn at a sector. A rename is one step, there or not.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from power_trace import Call

SECTOR = 512
Keep = Callable[[list["Change"]], list["Change"]]
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not synced yet: bytes at an offset, a new size (`data` is None), or names that changed."""

    offset: int = 0
    data: bytes | None = None
    names: dict[str, Node | None] | None = None


@dataclass(slots=True, eq=False)
class Node:
    """A file, or a directory with `entries`."""

    content: bytearray = field(default_factory=bytearray)
    entries: dict[str, Node] | None = None
    live: dict[str, Node] = field(default_factory=dict)
    """A directory's names as a running process sees them."""
    size: int = 0
    pending: list[Change] = field(default_factory=list)
    synced: int = 0
    """So many changes are durable."""
    number: int = field(default_factory=lambda: next(_numbers))
    version: int = 0
    mapped: bool = False
    """Changed by memory, which no trace shows: SQLite's -shm, rebuilt at the next open."""


def nothing(_pending: list[Change]) -> list[Change]:
    """All that was not synced is lost."""
    return []


def everything(pending: list[Change]) -> list[Change]:
    """All of it had reached the disk."""
    return pending


def drawn(rng: random.Random) -> Keep:
    """A part of it, in whole or in torn pieces."""

    def keep(pending: list[Change]) -> list[Change]:
        kept: list[Change] = []
        for change in pending:
            if rng.random() < 0.5:
                continue
            if change.data is None or len(change.data) <= SECTOR or rng.random() < 0.5:
                kept.append(change)
                continue
            kept += [
                Change(change.offset + start, change.data[start : start + SECTOR])
                for start in range(0, len(change.data), SECTOR)
                if rng.random() < 0.7
            ]
        return kept

    return keep


class Disk:
    """The files below `root`, as they were after each system call of one process."""

    def __init__(self, root: Path, pool: Path) -> None:
        self.root = root
        self.top = Node(entries={})
        self._fds: dict[int, tuple[Node, bool]] = {}
        self._places: dict[int, int] = {}
        self._early: list[Call] = []
        self._pool = pool
        pool.mkdir(exist_ok=True)

    # -- the running process

    def returned(self, call: Call, covered: int) -> bool:
        """Take in a call that has returned; True when what is durable may have changed.

        `covered`: up to which of its file's changes a sync covers (see `pending_of`).
        """
        if call.result is None or call.result < 0:
            return False
        handler = getattr(self, f"_{call.name}", None)
        if call.name in ("fsync", "fdatasync"):
            return self._sync(call, covered)
        if handler is not None:
            handler(call)
        return False

    def entered(self, call: Call) -> None:
        """Take in a call that begins.

        A number of a file is free for others before its close returns, and a directory is there before its mkdir does.
        """
        if call.name == "close":
            self._fds.pop(call.fd(), None)
        elif call.name in ("mkdir", "mkdirat") and call.result == 0:
            self._early.append(call)
            self._early = [one for one in self._early if not self._appears(one)]

    def pending_of(self, call: Call) -> int:
        """Up to which of its file's changes, of all there ever were, a sync covers that is entered now; 0 for none."""
        found = self._fds.get(call.fd())
        return 0 if found is None or not found[0].pending else found[0].synced + len(found[0].pending)

    def _sync(self, call: Call, covered: int) -> bool:
        found = self._fds.get(call.fd())
        if found is None:
            return False
        node = found[0]
        count = max(0, covered - node.synced)  # another sync of the same file may have come before
        done, node.pending = node.pending[:count], node.pending[count:]
        node.synced += len(done)
        if node.entries is None:
            apply(node.content, done)
        else:
            rename(node.entries, done)
        node.version += 1
        return bool(done)

    def _openat(self, call: Call) -> None:
        assert call.result is not None
        (raw,) = call.texts()
        self._opened(call.result, os.fsdecode(raw), call.bare())

    def _open(self, call: Call) -> None:
        self._openat(call)

    def _opened(self, fd: int, path: str, flags: bytes) -> None:
        self._fds.pop(fd, None)
        place = self._place(path)
        if place is None:
            return
        parent, name = place
        node = self.top if parent is None else parent.live.get(name)
        if node is None:
            assert parent is not None
            if b"O_CREAT" not in flags:
                return  # made before the trace, or by mknod
            node = Node()
            self._name(parent, {name: node})
        elif b"O_TRUNC" in flags:
            self._resize(node, 0)
        self._fds[fd] = (node, b"O_APPEND" in flags)
        self._places[fd] = 0

    def _dup(self, call: Call) -> None:
        assert call.result is not None
        self._fds.pop(call.result, None)
        if call.fd() in self._fds:
            self._fds[call.result] = self._fds[call.fd()]
            self._places[call.result] = self._places[call.fd()]

    _dup2 = _dup3 = _dup

    def _fcntl(self, call: Call) -> None:
        if b"F_DUPFD" in call.arguments:
            self._dup(call)

    def _write(self, call: Call) -> None:
        fd = call.fd()
        if fd in self._fds:
            node, append = self._fds[fd]
            place = node.size if append else self._places[fd]
            self._put(call, place)
            assert call.result is not None
            self._places[fd] = place + call.result

    _writev = _write

    def _pwrite64(self, call: Call) -> None:
        if call.fd() in self._fds:
            self._put(call, call.number(-1))

    _pwritev = _pwrite64

    def _put(self, call: Call, offset: int) -> None:
        node = self._fds[call.fd()][0]
        data = b"".join(call.texts())[: call.result]
        assert len(data) == call.result, "strace cut a string"
        node.pending.append(Change(offset, data))
        node.size = max(node.size, offset + len(data))

    def _ftruncate(self, call: Call) -> None:
        if call.fd() in self._fds:
            self._resize(self._fds[call.fd()][0], call.number(1))

    def _resize(self, node: Node, size: int) -> None:
        node.pending.append(Change(size))
        node.size = size

    def _mmap(self, call: Call) -> None:
        fields = call.arguments.split(b", ")
        fd = int(fields[4])
        if b"MAP_SHARED" in fields[3] and b"PROT_WRITE" in fields[2] and fd in self._fds:
            self._fds[fd][0].mapped = True

    def _appears(self, call: Call) -> bool:
        """Show a new directory to the running process; False while the one above it has not been seen."""
        path = os.fsdecode(call.texts()[0])
        place = self._place(path)
        if place is None:
            return not path.startswith(f"{self.root}/")
        assert place[0] is not None
        place[0].live[place[1]] = Node(entries={})
        return True

    def _mkdir(self, call: Call) -> None:
        place = self._place(os.fsdecode(call.texts()[0]))
        if place is not None and place[0] is not None:
            self._name(place[0], {place[1]: place[0].live[place[1]]})

    _mkdirat = _mkdir

    def _rename(self, call: Call) -> None:
        old, new = (self._place(os.fsdecode(text)) for text in call.texts())
        if old is None and new is None:
            return
        assert old is not None
        assert old[0] is not None
        assert new is not None
        assert old[0] is new[0], "a rename stays in its directory here"
        self._name(old[0], {old[1]: None, new[1]: old[0].live[old[1]]})

    _renameat = _renameat2 = _rename

    def _link(self, call: Call) -> None:
        old, new = (self._place(os.fsdecode(text)) for text in call.texts())
        assert old is not None
        assert new is not None
        assert old[0] is not None
        assert new[0] is not None
        self._name(new[0], {new[1]: old[0].live[old[1]]})

    _linkat = _link

    def _unlink(self, call: Call) -> None:
        place = self._place(os.fsdecode(call.texts()[0]))
        if place is not None and place[0] is not None:
            self._name(place[0], {place[1]: None})

    _unlinkat = _rmdir = _unlink

    def _unmodelled(self, call: Call) -> None:
        touched = call.fd() in self._fds if call.name != "truncate" else True
        assert not touched, f"{call.name} is not part of this model of a disk"

    _truncate = _fallocate = _copy_file_range = _sendfile = _splice = _pwritev2 = _unmodelled

    def _name(self, parent: Node, names: dict[str, Node | None]) -> None:
        parent.pending.append(Change(names=names))
        rename(parent.live, [Change(names=names)])

    def _place(self, path: str) -> tuple[Node | None, str] | None:
        """(directory, name) of a path below the root; (None, "") for the root itself."""
        try:
            parts = Path(os.path.normpath(path)).relative_to(self.root).parts
        except ValueError:
            return None
        if not parts:
            return None, ""
        at = self.top
        for part in parts[:-1]:
            if part not in at.live:
                return None
            at = at.live[part]
        return at, parts[-1]

    # -- after the cut

    def after_cut(self, into: Path, keep: Keep) -> None:
        """Write what a cut leaves, as real files under `into`."""
        self._leave(self.top, into, keep)

    def _leave(self, node: Node, into: Path, keep: Keep) -> None:
        assert node.entries is not None
        into.mkdir(mode=0o700)
        entries = dict(node.entries)
        rename(entries, keep(node.pending))
        for name, child in entries.items():
            if child.entries is not None:
                self._leave(child, into / name, keep)
            elif not child.mapped:
                self._leave_file(child, into / name, keep)

    def _leave_file(self, node: Node, path: Path, keep: Keep) -> None:
        kept = keep(node.pending) if node.pending else []
        if kept or ".db" in path.name or ".sqlite" in path.name or path.name == "inbox":
            content = bytearray(node.content)
            apply(content, kept)
            path.write_bytes(content)
            path.chmod(0o600)
            return
        # What the check only reads is written once, and linked.
        pooled = self._pool / f"{node.number}-{node.version}"
        if not pooled.exists():
            pooled.write_bytes(node.content)
            pooled.chmod(0o600)
        os.link(pooled, path)


def apply(content: bytearray, changes: list[Change]) -> None:
    """Change a file's bytes."""
    for change in changes:
        if change.data is None:
            if change.offset < len(content):
                del content[change.offset :]
            else:
                content.extend(bytes(change.offset - len(content)))
            continue
        if change.offset > len(content):
            content.extend(bytes(change.offset - len(content)))
        content[change.offset : change.offset + len(change.data)] = change.data


def rename(entries: dict[str, Node], changes: list[Change]) -> None:
    """Change a directory's names."""
    for change in changes:
        assert change.names is not None
        for name, node in change.names.items():
            if node is None:
                entries.pop(name, None)
            else:
                entries[name] = node


def instants(calls: Iterator[Call]) -> list[tuple[str, Call]]:
    """("entered" | "returned", call) in the order of time; "entered" only of what counts from its entry on."""
    found: list[tuple[int, int, str, Call]] = []
    for call in calls:
        if call.name in ("fsync", "fdatasync", "sendto", "sendmsg", "write", "close", "mkdir", "mkdirat"):
            found.append((call.entered, 0, "entered", call))
        found.append((call.returned, 1, "returned", call))
    found.sort(key=lambda item: item[:2])
    return [(what, call) for _, _, what, call in found]


def wipe(path: Path) -> None:
    """Remove what a cut left."""
    shutil.rmtree(path, ignore_errors=True)
