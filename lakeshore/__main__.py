"""Starts Lakeshore: finds a Python that is new enough, enters the unpacked archive, hands over to the CLI.

`build_pyz.py` copies this file to the root of the one-file archive with `CONTENT` filled in; as `python -m lakeshore`
it runs in place. Python 3.6 must be able to parse it, so that an old interpreter says a sentence and shows no
traceback: no walrus, no `list[str]`, no `from __future__ import annotations`. Every start compiles it, so it holds what
a warm start needs; unpacking is in `_bootstrap.py`.

Rule: code is imported from the cache only if the effective user owns it, nobody else may write it or any directory
above it, and no link leads to it.
"""

import os
import stat
import sys

CONTENT = ""
OLDEST = (3, 11)
NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")
MARKER = ".lakeshore"  # in an unpacked tree: its content hash, then the directories whose times show what was removed
STAMP = 315532800  # the time of every directory of a whole tree (1980-01-01, the oldest that a zip can hold)


def find_python():  # type: () -> str
    """A Python >= 3.11 on PATH that really starts (a version manager's shim may not). Exits, saying what it found."""
    import subprocess  # wall: only an interpreter that is too old gets here

    found = ["{} is {}.{}".format(sys.executable, *sys.version_info[:2])]
    for name in NAMES:
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
            path = os.path.join(folder, name)
            if not os.access(path, os.X_OK):
                continue
            probe = "import sys; sys.exit(sys.version_info < (3, 11))"
            try:
                code = subprocess.call([path, "-c", probe], stdout=-3, stderr=-3)  # noqa: S603  (asks its version)
            except OSError:
                code = 127
            if code == 0:
                return path
            found.append(path + " does not start")
    sys.stderr.write(
        "lakeshore needs Python 3.11 or newer. Found: {}. Looked for {} on PATH.\n"
        "Install one (Debian, Ubuntu: apt install python3.11; Fedora, RHEL: dnf install python3.11; macOS: brew "
        "install python) and start lakeshore again.\n".format("; ".join(found), ", ".join(NAMES))
    )
    sys.exit(2)


def cache_root():  # type: () -> str
    """Where this archive's tree lies when it is unpacked; "" when the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        return ""
    return os.path.join(os.path.realpath(base), "lakeshore", CONTENT + "-" + platform())


def platform():  # type: () -> str
    """`linux_x86_64`, `linux_aarch64`, `darwin_arm64`: the folder of native modules."""
    system = os.uname()
    return system.sysname.lower() + "_" + system.machine


def unsafe_above(path):  # type: (str) -> str
    """Why a directory above `path` lets somebody else put code there; "" when none does. No links lead to `path`."""
    while path != "/":
        path = os.path.dirname(path)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            return path + " is not a directory"
        if found.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user (uid {found.st_uid})"
        if found.st_mode & 0o022:
            return path + " is writable by others"
    return ""


def unsafe(root):  # type: (str) -> str
    """Why nothing may be imported from `root`; "" when it may. Raises OSError where it does not exist."""
    found = os.lstat(root)
    if not stat.S_ISDIR(found.st_mode):
        return root + " is not a directory"
    if found.st_uid != os.geteuid():
        return f"{root} belongs to another user (uid {found.st_uid})"
    if found.st_mode & 0o777 != 0o700:
        return f"{root} has mode {found.st_mode & 0o777:o}, not 700"
    return unsafe_above(root)


def hold(root):  # type: (str) -> int
    """A shared lock on a whole tree, kept until the process ends, so that it is not pruned; -1 when it is not whole.

    A file that was removed from it shows in the time of its directory.
    """
    import fcntl  # wall: needed after the interpreter is known to be new enough
    import time  # wall: as above

    try:
        lock = os.open(os.path.join(root, MARKER), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)  # somebody is removing it
        return -1
    except OSError:
        pass  # a file system without locks: then nobody can prune either
    lines = os.read(lock, 1 << 20).decode("utf-8").split("\n")
    found = os.fstat(lock)
    try:
        whole = lines[-1] == "end" and found.st_nlink > 0
        whole = whole and all(os.stat(root + "/" + folder).st_mtime == STAMP for folder in lines[1:-1])
    except OSError:
        whole = False
    if not whole:
        os.close(lock)
        return -1
    if time.time() - found.st_mtime > 86400:
        try:  # noqa: SIM105  (contextlib is an import that no start can afford)
            os.utime(lock)  # last use, to the day: what pruning goes by
        except OSError:
            pass
    return lock


def enter_archive(archive):  # type: (str) -> None
    """Make `lakeshore` importable from the unpacked archive, unpacking it where that has not happened."""
    root = cache_root()
    try:
        lock = -1 if not root or unsafe(root) else hold(root)
    except OSError:
        lock = -1
    if lock < 0:
        path = "lakeshore/_bootstrap.py"
        names = {"__name__": "lakeshore._bootstrap", "__file__": path}
        # Not imported: the package `lakeshore` must come from the unpacked tree, and only from there.
        exec(compile(globals()["__loader__"].get_data(path), path, "exec"), names)  # noqa: S102  (our own file)
        prepare = names["prepare"]
        root, lock = prepare(archive, root, CONTENT, platform(), sys.modules[__name__])  # type: ignore[operator]
    put_first(root, archive)
    from lakeshore import _self, _vendored  # wall: they come from the unpacked tree

    _self.started_from(archive)
    _vendored.extend_path(first=True, lock=lock)


def put_first(root, instead_of):  # type: (str, str) -> None
    """`root` leads `sys.path`; the place that Python started this file from leaves it."""
    sys.path[:] = [root] + [entry for entry in sys.path if os.path.abspath(entry) not in (root, instead_of)]


def main():  # type: () -> None
    """Run the CLI; called `nymph`, its `nymph` group."""
    if sys.version_info < OLDEST:
        python = find_python()
        os.execv(python, [python, *sys.argv])  # noqa: S606  (the very same arguments)
    inside = getattr(globals().get("__loader__"), "archive", "")
    if CONTENT:
        enter_archive(os.path.abspath(inside))
    elif inside:  # `python -m lakeshore` with the archive on PYTHONPATH
        os.execv(sys.executable, [sys.executable, inside, *sys.argv[1:]])  # noqa: S606  (the very same arguments)
    else:
        here = os.path.dirname(os.path.abspath(__file__))
        put_first(os.path.dirname(here), here)
        from lakeshore import _vendored  # wall: sys.path is right only now

        _vendored.extend_path(first=True)
    if os.path.basename(sys.argv[0]) == "nymph":
        sys.argv.insert(1, "nymph")
    if sys.argv[1:] == ["--version"]:
        from lakeshore._version import __version__  # wall: answers without the CLI

        print("lakeshore " + __version__)  # noqa: T201  (the answer)
        return
    from lakeshore.cli.main import main as cli  # wall: sys.path is right only now

    sys.exit(cli())


if __name__ == "__main__":
    main()
