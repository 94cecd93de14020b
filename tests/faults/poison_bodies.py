"""What bodies do to the process that runs them, by name. `poison` runs one as a plain body, `apoison` as a coroutine.

`sees` is the neighbour of them all: what it finds must be the same whoever ran before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import locale
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from lakeshore.sdk.functions import udf

POISONS: dict[str, Callable[[str], Any]] = {}
"""Each takes a directory that is its own."""
T = Callable[[str], Any]


def _poison(body: T) -> T:
    POISONS[body.__name__] = body
    return body


@udf
def poison(name: str, directory: str) -> Any:
    return POISONS[name](directory)


@udf
async def apoison(name: str, directory: str) -> Any:
    await asyncio.sleep(0)
    return POISONS[name](directory)


@udf
def yields_poison(name: str, directory: str) -> Iterator[Any]:
    yield 1
    yield POISONS[name](directory)


@udf
def sees(*_: Any) -> dict[str, Any]:
    """What a body may count on."""
    began = time.monotonic()
    time.sleep(0.02)
    slept = time.monotonic() - began
    print("to stdout")
    print("to stderr", file=sys.stderr)
    import colorsys  # first asked for here

    os.fstat(0), os.fstat(1), os.fstat(2)
    mask = os.umask(0)
    os.umask(mask)
    handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD)]
    with socket.socket() as plain:
        waits = plain.gettimeout()
    policy = type(asyncio.get_event_loop_policy()).__module__
    shell = subprocess.run(["sh", "-c", "echo $HOME"], capture_output=True, text=True, check=True).stdout
    return {
        "cwd": os.getcwd(),
        "umask": mask,
        "handlers": [getattr(h, "__qualname__", str(h)) for h in handlers],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "waits": waits,
        "policy": policy,
        "slept": 0.01 < slept < 30,
        "sane": abs(time.time() - Path(__file__).stat().st_atime) < 10 * 365 * 86400,
        "home": shell,
        "recursion": sys.getrecursionlimit(),
        "colours": colorsys.__name__,
    }


@udf
async def asees(*_: Any) -> bool:
    await asyncio.sleep(0.01)
    return await asyncio.to_thread(lambda: True)


# -- that end the process


@_poison
def segfaults(_: str) -> None:
    ctypes.string_at(0)


@_poison
def aborts(_: str) -> None:
    os.abort()


@_poison
def exits_0(_: str) -> None:
    os._exit(0)


@_poison
def exits_3(_: str) -> None:
    os._exit(3)


@_poison
def kills_itself(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


@_poison
def leaves_a_child_and_dies(directory: str) -> None:
    forks(directory)
    os._exit(4)


@_poison
def closes_everything(_: str) -> None:
    os.closerange(0, 1000)


# -- that it must outlive


@_poison
def forks(directory: str) -> str:
    """A child that keeps whatever it inherits, and that no handler of Python's has a say in."""
    child = ctypes.CDLL(None).fork()
    if child == 0:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        Path(directory, f"child-{os.getpid()}").touch()
        time.sleep(600)
        os._exit(0)
    while not Path(directory, f"child-{child}").exists():
        time.sleep(0.01)
    return "forked"


@_poison
def forks_and_both_return(_: str) -> str:
    os.fork()
    return "forked"


@_poison
def closes_standard_files(_: str) -> str:
    for name in ("stdin", "stdout", "stderr"):
        getattr(sys, name).close()
    for number in range(3):
        with contextlib.suppress(OSError):
            os.close(number)
    return "closed"


@_poison
def loses_stdout(_: str) -> str:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]
    return "lost"


@_poison
def floods_stdout(_: str) -> int:
    line = "x" * 65535 + "\n"
    for _number in range(1600):
        sys.stdout.write(line)
    return 100


@_poison
def recurses(directory: str) -> Any:
    return recurses(directory)


@_poison
def lifts_the_recursion_limit(_: str) -> str:
    sys.setrecursionlimit(10**6)
    return "lifted"


@_poison
def returns_an_object(_: str) -> object:
    return object()


class Spiteful:
    def __reduce__(self) -> NoReturn:
        raise RuntimeError("never packed")

    __repr__ = __str__ = __reduce__  # type: ignore[assignment]

    @property
    def __class__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("never looked at")


@_poison
def returns_spite(_: str) -> Any:
    return [Spiteful()]


@_poison
def returns_itself_within_itself(_: str) -> Any:
    found: list[Any] = []
    found.append(found)
    return found


class Nameless(type):
    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("no name")


class SpitefulError(Exception):
    def __str__(self) -> NoReturn:
        raise ValueError("no text")

    def __reduce__(self) -> NoReturn:
        raise ValueError("no parts")

    __repr__ = __str__  # type: ignore[assignment]


class NamelessError(Exception, metaclass=Nameless):
    pass


class ExitingError(Exception):
    def __str__(self) -> NoReturn:  # noqa: PLE0307  # that is the point
        sys.exit("from __str__")


@_poison
def raises_spite(_: str) -> NoReturn:
    raise SpitefulError(Spiteful())


@_poison
def raises_what_has_no_name(_: str) -> NoReturn:
    raise NamelessError("anonymous")


@_poison
def raises_what_exits_when_shown(_: str) -> NoReturn:
    raise ExitingError


@_poison
def raises_base_exception(_: str) -> NoReturn:
    raise BaseException("of no kind")  # noqa: TRY002  # that is the point


@_poison
def raises_keyboard_interrupt(_: str) -> NoReturn:
    raise KeyboardInterrupt


@_poison
def raises_generator_exit(_: str) -> NoReturn:
    raise GeneratorExit


@_poison
def raises_stop_iteration(_: str) -> NoReturn:
    raise StopIteration(7)


@_poison
def raises_a_group(_: str) -> NoReturn:
    raise BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit(3)])


@_poison
def exits_politely(_: str) -> NoReturn:
    sys.exit(3)


@_poison
def interrupts_itself(_: str) -> str:
    signal.raise_signal(signal.SIGURG)  # what the worker itself stops bodies with
    return "interrupted"


@_poison
def removes_its_directory(directory: str) -> str:
    os.chdir(directory)
    os.rmdir(directory)
    return "removed"


@_poison
def changes_umask(_: str) -> int:
    return os.umask(0o777)


@_poison
def ignores_signals(_: str) -> str:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGURG, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    return "ignored"


@_poison
def blocks_signals(_: str) -> str:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return "blocked"


@_poison
def takes_the_wakeup_fd(directory: str) -> str:
    signal.set_wakeup_fd(-1)
    return "taken"


@_poison
def leaves_a_timer(_: str) -> str:
    """Its signal ends a process that does not expect it."""
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    return "ticking"


@_poison
def leaves_a_handler_and_a_timer(_: str) -> str:
    def on_alarm(*_: Any) -> NoReturn:
        raise TimeoutError("of another body")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
    return "ticking"


class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> NoReturn:
        raise RuntimeError("no loop for you")


@_poison
def takes_the_loop_policy(_: str) -> str:
    asyncio.set_event_loop_policy(Policy())
    return "taken"


@_poison
def empties_the_import_path(_: str) -> str:
    sys.path.clear()
    sys.path_importer_cache.clear()
    return "emptied"


@_poison
def empties_the_environment(_: str) -> str:
    os.environ.clear()
    return "emptied"


@_poison
def takes_the_hooks(_: str) -> str:
    def raises(*_: Any) -> NoReturn:
        raise RuntimeError("in a hook")

    threading.excepthook = sys.excepthook = sys.unraisablehook = raises
    return "taken"


@_poison
def starts_a_thread_that_never_ends(_: str) -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "started"


@_poison
def removes_modules(_: str) -> str:
    for name in list(sys.modules):
        if name.partition(".")[0] in ("lakeshore", "dreamlake", "msgpack", "poison_bodies", "threading", "json"):
            del sys.modules[name]
    return "removed"


@_poison
def breaks_time(_: str) -> str:
    def broken(*_: Any) -> NoReturn:
        raise RuntimeError("time is frozen")

    for name in ("time", "monotonic", "sleep", "perf_counter", "monotonic_ns"):
        setattr(time, name, broken)
    return "broken"


@_poison
def shortens_every_socket(_: str) -> str:
    socket.setdefaulttimeout(1e-6)
    return "shortened"


@_poison
def speaks_another_language(_: str) -> str:
    return str(locale.setlocale(locale.LC_ALL, "C"))


@_poison
def asks_for_more_than_there_is(_: str) -> int:
    """What a limit on the address space refuses."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, hard))
    try:
        return len(bytearray(64 << 30))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (_soft, hard))


@udf
def fills_memory(_: str) -> None:
    """Not in the table: only for a worker whose memory is limited."""
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 16) * 160))
