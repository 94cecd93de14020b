"""Starts Lakeshore: from the one-file archive, whose root holds a copy of this file, and as `python -m lakeshore`.

Rule: any Python can parse it, so that an old one says a sentence and shows no traceback. `zipimport` compiles it twice
at each start of the archive, so it holds nothing else: how the archive is entered is in `_start.py`, what an old Python
does in `_old_python.py`.
"""

import os
import sys


def run(name):  # type: (str) -> dict[str, object]
    """What a file of ours in the archive defines. Not imported: the package must come from the unpacked tree alone."""
    names = {"__name__": os.path.basename(name)[:-3], "__file__": name}
    exec(compile(globals()["__loader__"].get_data(name), name, "exec", 0, True), names)  # noqa: S102
    return names  # type: ignore[return-value]


def main():  # type: () -> None
    """Run the CLI; called `nymph`, its `nymph` group."""
    here = os.path.dirname(os.path.abspath(__file__))
    inside = getattr(globals().get("__loader__"), "archive", "")
    if sys.version_info < (3, 11):  # noqa: UP036  (whatever `python3` is starts it)
        if inside:
            run(os.path.join("lakeshore", "_old_python.py"))["hand_over"](sys.argv)  # type: ignore[operator]
        sys.path.insert(0, here)
        __import__("_old_python").hand_over(sys.argv)
    if inside and __package__:  # `python -m lakeshore` with the archive on PYTHONPATH
        os.execv(sys.executable, [sys.executable, inside] + sys.argv[1:])  # noqa: RUF005, S606  (any Python parses it)
    elif inside:
        run(os.path.join("lakeshore", "_start.py"))["enter"](os.path.abspath(inside), run)  # type: ignore[operator]
    else:
        root = os.path.dirname(here)
        sys.path[:] = [root] + [entry for entry in sys.path if os.path.abspath(entry) not in (root, here)]
        from lakeshore import _vendored  # wall: sys.path is right only now

        if _vendored.archive:  # `python -m lakeshore` as above, where the package was imported from the unpacked tree
            os.execv(sys.executable, [sys.executable, _vendored.archive] + sys.argv[1:])  # noqa: RUF005, S606
        _vendored.extend_path(first=True)
    if os.path.basename(sys.argv[0]) == "nymph":
        sys.argv.insert(1, "nymph")
    from lakeshore.cli.main import main as cli  # wall: sys.path is right only now

    sys.exit(cli())


if __name__ == "__main__":
    main()
