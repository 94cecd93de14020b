"""Modules are loaded without looking for garbage among what they define.

Rule: what an import makes stays for as long as the process. Python's collector looks through it again and again while
it is made, and twice more at exit: a fifth of the time that a short command takes. So it rests while a command is
loaded, and does not look at that afterwards. What a command itself makes is collected as ever.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Any


def load(module: str) -> Any:
    """The module of that name."""
    found = sys.modules.get(module)
    if found is not None:
        return found
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        if collects:
            gc.enable()
