"""Watches a program that was just put in another one's place; run by its path, by the old program, in plain Python.

    python -I -S trial.py <pipe> <trial file> [argv of the old program…]

`UP` on the pipe, or a minute: it stays. The pipe's end before: the new program has ended, so the old one is put back,
and started where nobody else does that. Reference: `update.py`.
"""

from __future__ import annotations

import json
import os
import select
import sys

UP = b"up"
TRIAL_S = 60.0


def put_back(note: str) -> bool:
    """Rename the old program back, once; whether that was done."""
    try:
        taken = f"{note}.{os.getpid()}"
        os.rename(note, taken)  # of two that try, one succeeds
        with open(taken, encoding="utf-8") as file:
            told = json.load(file)
        os.unlink(taken)
        os.replace(told["previous"], told["program"])
        refused = note.rpartition(".trial")[0] + ".refused"
        with open(refused, "w", encoding="utf-8") as file:
            json.dump({"version": told["version"]}, file)
    except (OSError, ValueError, KeyError):
        return False
    sys.stderr.write(f"nymph: {told['version']} did not come up: back to the program before\n")
    return True


def main() -> None:
    """See above."""
    pipe, note, argv = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    ready, _, _ = select.select([pipe], [], [], TRIAL_S)
    if not ready or os.read(pipe, len(UP)) == UP:
        return
    if put_back(note) and argv:
        os.close(pipe)
        os.execv(argv[0], argv)  # noqa: S606 - it ran here before


if __name__ == "__main__":
    main()
