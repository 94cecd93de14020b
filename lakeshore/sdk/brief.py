"""What a mistake of the caller's, or Ctrl-C in a wait, looks like in a plain script: below the line that made it.

Rule: nothing is shown of what a public verb went through inside. Where code of somebody else was on the way (a codec, a
plane, what pickles itself) everything stays, for the mistake may be there. A cause that the sentence repeats is put
aside into `__context__`, which Python then does not print.
"""

from __future__ import annotations

import os
from types import TracebackType

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PYTHONS = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = ("site-packages", "dist-packages")
_CODECS = (f"{os.sep}cloudpickle{os.sep}", "msgpack/", f"{os.sep}msgpack{os.sep}")


def brief(error: BaseException) -> None:
    """Of an error that is on its way out of a public verb."""
    if _is_foreign(error.__traceback__):
        return
    error.__traceback__ = None
    error.__suppress_context__ = True
    cause = error.__cause__
    if cause is not None and not _is_foreign(cause.__traceback__):
        error.__cause__ = None
        error.__context__ = cause
        error.__suppress_context__ = True


class _Briefly:
    """`with briefly:` around what a public verb does."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) or type(error) is KeyboardInterrupt:  # what stops a body on a worker is neither
            brief(error)


briefly = _Briefly()


def _is_foreign(trace: TracebackType | None) -> bool:
    """Whether a frame of it is neither ours, nor Python's, nor of what packs values and functions."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        python = file.startswith(_PYTHONS) and not any(part in file for part in _INSTALLED)
        if not (python or file.startswith((_OURS, "<frozen ")) or any(part in file for part in _CODECS)):
            return True
        trace = trace.tb_next
    return False
