"""The same request for many things, some at a time.

Rules: what was begun is waited for, however it goes on, for its answer tells what was made; nothing is begun after the
first Ctrl-C, and the second one leaves at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.net.errors import NetError

from ..output import say

T = TypeVar("T")
R = TypeVar("R")
Refusal = ApiError | NetError
AT_ONCE = 5
"""As many as a cloud account may launch in a moment without being told to wait."""


def each(
    items: Sequence[T],
    work: Callable[[ApiClient, T], R],
    *,
    client: Callable[[], ApiClient],
    done: Callable[[T, R], None],
    refused: Callable[[T, Refusal], None],
) -> None:
    """Do `work` for every item, each thread with a client of its own. `done` hears of each what came of it, `refused`
    why it did not come about: never two of them at once.
    """
    waiting = list(reversed(items))
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    notes, stopped = threading.Lock(), threading.Event()
    threads = min(AT_ONCE, len(items))

    def some() -> None:
        try:
            with client() as server:
                while not stopped.is_set():
                    with notes:
                        if not waiting:
                            break
                        item = waiting.pop()
                    try:
                        made = work(server, item)
                    except (ApiError, NetError) as error:
                        with notes:
                            refused(item, error)
                    else:
                        with notes:
                            done(item, made)
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for this thread
            ended.put(error)
        else:
            ended.put(None)

    for _ in range(threads):
        threading.Thread(target=some, daemon=True).start()
    failed: BaseException | None = None
    try:
        for _ in range(threads):
            failed = ended.get() or failed
            threads -= 1
    except (KeyboardInterrupt, SystemExit):
        stopped.set()
        say("\ninterrupted: waiting for the answers to what was begun …")
        for _ in range(threads):
            ended.get()
        raise
    if failed is not None:
        raise failed
