"""`Dispatch`: the plane on this machine, in memory or in one file that processes share. No server, no network.

The rules are the plane package's; this class gives them the documented verbs, waits with doorbells, and knows which
claims it handed out. Safe in threads; a file plane is reopened after a fork.
Reference: python-sdk/dispatch.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..plane import frames, queues, reports, retries, rows, submits
from ..plane.contract import TERMINAL, Ended, Payload, Refused, Submission
from ..plane.database import Durability
from ..plane.statements import SQL, Values
from ..plane.transaction import Transaction
from ..wire.states import LOCAL_NAMES
from . import forks, local_losses, local_wait, outcomes
from .claimed import Claimed
from .errors import DispatchError
from .ids import check_id
from .local_claims import LocalClaims
from .local_source import LocalSource
from .local_submission import Call, each, held, is_new, plain, refusal, submission
from .open_plane import OpenPlane

__all__ = ["Claimed", "Dispatch", "DispatchError"]

T = TypeVar("T")
_INWARD = {shown: state for state, shown in LOCAL_NAMES.items()}


class Dispatch:
    """The local plane: the verbs of a control plane without one. Safe to share among threads.

    `path` is a file, which any number of processes of this machine share (on a local disk; beside it a directory
    `<path>.d`), or `:memory:` for this process alone. `ns` keeps namespaces apart. `durability="process"` survives
    kill -9 but not a power cut, and is faster. Payloads and results are packed bytes here; queues pack and unpack.
    """

    local = True
    shows_names = True
    trusts_new_ids = True

    def __init__(self, path: str | Path = ":memory:", *, ns: str = "default", durability: Durability = "power") -> None:
        self.path = str(path)
        self.ns = ns
        self._durability: Durability = durability
        self._handed: dict[tuple[str, str], set[int]] = {}
        with forks.gate:
            self._current: OpenPlane | None = OpenPlane(self.path, durability)

    def __repr__(self) -> str:
        return f"Dispatch({self.path!r}, ns={self.ns!r})"

    # -- producers

    def submit(
        self,
        queue: str,
        envelope: bytes,
        *,
        id: str,  # the documented spelling
        key: str | None = None,
        priority: float = 0.0,
        parent: str | None = None,
        run_config: dict[str, Any] | None = None,
        retry_failed: str | None = None,
        delay: float | None = None,
        due: float | None = None,
        name: str | None = None,
        new: bool = False,
    ) -> str:
        """Put one invocation on a queue, durably; the id that holds it (an earlier one when `key` was used before).

        `run_config` may carry `max_attempts` and `timeout_s`. Nobody gets it for `delay` seconds, or before the instant
        `due` (epoch seconds). `name` is what lists show as the function. `new`: the id was made for this call alone.
        Where the queue is to hold what finds it full, this waits for room. Raises DispatchError: the id is taken, the
        queue is full or not active, over 100 MiB.
        """
        args = self._kept(id, envelope)
        item = submission(self.ns, queue, id, args, key, priority, parent, run_config, retry_failed, delay, due, name)
        if new and (mark := self._state().leave((item,))) is not None:
            self._ring_work(queue)  # who claims it syncs its row, while this syncs the inbox
            self._state().keep_mail(mark)
            return id
        done = held(lambda: self._write(lambda tx: submits.submit(tx, item, time.time())))
        if done.due is None:
            self._ring_work(done.queue)
        else:  # whoever sleeps is to know until when
            self._state().bells.ring(f"work/{self.ns}/{done.queue}", f"work/{self.ns}/*")
        return done.id

    def submit_together(self, calls: Sequence[Call]) -> list[str | Exception]:
        """New calls in one sync; of each its id, or what `submit` would raise: also that its queue is full, at once."""
        made = each(self.ns, calls, self._kept)
        items = [one for one in made if isinstance(one, Submission)]
        told: Iterator[str | Exception] = iter([item.id for item in items])
        mark = self._state().leave(items) if items else None
        if items and mark is None:
            done = self._write(lambda tx: submits.submit_many(tx, items, time.time()))
            told = iter([refusal(one) if isinstance(one, Refused) else one.id for one in done])
        for queue in {item.queue for item in items}:
            self._ring_work(queue)
        if mark is not None:
            self._state().keep_mail(mark)
        return [next(told) if isinstance(one, Submission) else one for one in made]

    def cancel(self, inv_id: str) -> bool:
        """Cancel what has not begun: True when this call did. What runs is asked, and may still win. DispatchError."""
        check_id(inv_id)
        local_losses.settle_whether_begun(self._state(), self.ns, inv_id)
        done = self._write(lambda tx: reports.cancel(tx, self.ns, inv_id, time.time()))
        self._state().bells.ring("done", f"frames/{inv_id}")
        return done.cancelled

    def retry(self, inv_id: str, *, claim: int | None = None) -> str:
        """Queue what failed, was cancelled or timed out again; its id. Raises DispatchError in any other state."""
        check_id(inv_id)
        queue = self._write(lambda tx: retries.retry(tx, self.ns, inv_id, time.time(), claim=claim))
        self._ring_work(queue)
        return inv_id

    def get(self, inv_id: str) -> dict[str, Any] | None:
        """The invocation's row (`state`, `attempt`, `claim`, `error`, times in epoch seconds, ...), or None."""
        check_id(inv_id)
        row = rows.get(self._rows, self.ns, inv_id)
        if row is not None:
            row["state"] = LOCAL_NAMES.get(row["state"], row["state"])
        return row

    def count(self, queue: str, state: str = "queued") -> int:
        """How many invocations of a queue are in one state: queued, running, succeeded, failed, cancelled, timeout."""
        return rows.count(self._rows, self.ns, queue, _INWARD.get(state, state))

    def result(self, inv_id: str, *, timeout: float | None = 30.0, poll: float = 0.02) -> bytes:
        """Wait for the packed result; `timeout=None` waits for ever. `poll` is accepted and not needed: bells wake us.

        Raises DispatchError (failed, cancelled, timed out, unknown, purged) and TimeoutError (the id stays valid).
        """
        check_id(inv_id)
        return local_wait.result(self._state(), inv_id, lambda: self._ended(inv_id), timeout)

    def submit_and_wait(self, queue: str, envelope: bytes, *, id: str, timeout: float | None, **options: Any) -> bytes:
        """`submit` and `result`; a new call whose result comes soon costs no sync but its worker's."""
        if is_new(options):
            args = self._kept(id, envelope)
            item = submission(self.ns, queue, id, args, **plain(options))
            found = local_wait.call(self._state(), item, lambda: self._ended(id), timeout)
            if found is not None:
                return found
        return self.result(self.submit(queue, envelope, id=id, **options), timeout=timeout)

    # -- workers

    def claim(
        self, queue: str, worker_id: str, *, kind: str = "fifo", temperature: float = 1.0, draw: float | None = None
    ) -> Claimed | None:
        """Take the next invocation, or None at once. It counts as begun, and is lost with this process."""
        found = self._claims().turn((), queue, worker_id, kind=kind, temperature=temperature, draw=draw)
        return found[0] if found else None

    def source(self, queue: str, worker_id: str, *, once: bool, **options: Any) -> LocalSource:
        """Where a worker loop gets its jobs from; with `once` one at a time."""
        return LocalSource(self, self._claims(), queue, worker_id, once=once, **options)

    def wait_for_work(self, queue: str, timeout_s: float) -> None:
        """Sleep until `queue` may have work, or for `timeout_s`."""
        with self._state().bells.listen(f"work/{self.ns}/{'*' if queue.endswith('*') else queue}") as bell:
            if self._state().has_mail():
                return
            now = time.time()
            opens_in_s = queues.opens_at(self._rows, self.ns, queue, now) - now
            if opens_in_s > 0 or queue.endswith("*"):
                turn_s = max(opens_in_s, 0.001) if opens_in_s > 0 else timeout_s
                bell.wait(min(timeout_s, turn_s, self._state().due_in_s(self.ns, queue)))

    def ack(
        self,
        inv_id: str,
        worker_id: str,
        *,
        result: bytes | None = None,
        claim: int | None = None,
        last_seq: int | None = None,
    ) -> None:
        """Settle a claimed invocation as succeeded. Raises DispatchError when it is not this worker's any more."""
        mine = self._claims()
        mine.settle(mine.success(inv_id, worker_id, result or b"", claim=claim, last_seq=last_seq))

    def nack(
        self,
        inv_id: str,
        worker_id: str,
        *,
        error: object,
        retry: bool = True,
        claim: int | None = None,
        retries: int | None = None,
        outcome: str = "failed",
    ) -> None:
        """Report a failed attempt: the invocation runs again while attempts remain and `retry` is true."""
        mine = self._claims()
        mine.settle(mine.failure(inv_id, worker_id, error, retry=retry, claim=claim, retries=retries, outcome=outcome))

    # -- frames

    def journal_append(
        self, inv_id: str, seq: int | None, frame_bytes: bytes, *, final: bool = False, claim: int | None = None
    ) -> int:
        """Append a frame of a claimed invocation; the seq it has. The same seq of the same claim again is absorbed.

        The END of a stream is written when the invocation is settled; a `final` frame is answered and not stored.
        """
        number = claim if claim is not None else self._claims().any_claim_of(inv_id)
        done = self._write(
            lambda tx: frames.append(tx, self.ns, inv_id, frame_bytes, time.time(), claim=number, seq=seq, final=final)
        )
        self._state().bells.ring(f"frames/{inv_id}")
        return done.seq

    def journal_read(
        self, inv_id: str, *, since: int = -1, timeout: float | None = 30.0, poll: float = 0.02
    ) -> Iterator[tuple[int, bytes]]:
        """Frames after `since`, live, until the final frame or a terminal state. Raises TimeoutError after silence."""
        check_id(inv_id)
        found = rows.channel_of(self._rows, self.ns, inv_id)
        if found is None:
            raise outcomes.not_there(inv_id, self._ended(inv_id).state)
        channel = found[0]

        def over() -> bool:
            now = rows.channel_of(self._rows, self.ns, inv_id)
            return now is None or now[1] in TERMINAL

        return self._follow(channel, f"frames/{inv_id}", f"invocation {inv_id}", since, timeout, over)

    def journal_trim(self, inv_id: str, *, keep_last: int = 0) -> int:
        """Forget all but the last frames; how many were forgotten. The result stays."""
        check_id(inv_id)
        return self._write(lambda tx: frames.trim(tx, self.ns, inv_id, keep_last=keep_last))

    def topic_post(self, queue: str, name: str, body: bytes, *, final: bool = False) -> int:
        """Append one packed value to a topic (`final`: its END instead); the seq it got."""
        seq = self._write(lambda tx: frames.post(tx, self.ns, queue, name, body, time.time(), final=final))
        self._state().bells.ring(f"topic/{queue}/{name}")
        return seq

    def topic_read(
        self, queue: str, name: str, *, since: int = -1, timeout: float | None = 5.0
    ) -> Iterator[tuple[int, bytes]]:
        """Frames of a topic after `since`, live, until its END. Raises TimeoutError after silence."""
        bell_name, what = f"topic/{queue}/{name}", f"topic {name!r}"
        channel = rows.topic_channel(self._rows, self.ns, queue, name)
        if channel is None:
            deadline = local_wait.deadline(timeout)
            with self._state().bells.listen(bell_name) as bell:
                while (channel := rows.topic_channel(self._rows, self.ns, queue, name)) is None:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise outcomes.silent(what, timeout)
                    bell.wait(left)
        yield from self._follow(channel, bell_name, what, since, timeout, lambda: False)

    # -- many waits at once

    def watch_done(self, since: float, timeout_s: float) -> tuple[list[str], float]:
        """Wait for invocations to end: the ids that ended after `since`, and the `since` of the next call."""
        with self._state().bells.listen("done") as bell:
            for last_look in (False, True):
                found = self._state().combiner.rows(SQL.finished_since, {"since": since})
                if found or last_look:
                    return [id_ for id_, _at in found], max((at for _id, at in found), default=since)
                bell.wait(timeout_s)
        raise AssertionError("the second look returns")

    def endings(self, inv_ids: Sequence[str]) -> list[Ended]:
        """How far each of these is, in order; `pending` is to be waited for. A commit for what is in the inbox is left
        to the workers.
        """
        state = self._state()
        found = rows.ended_many(state.combiner.rows, self.ns, inv_ids)
        if any(one.state == "unknown" for one in found):  # in the inbox, or a row since that was looked at
            left = {item.id for item in state.mail() if item.ns == self.ns}
            again = rows.ended_many(state.combiner.rows, self.ns, inv_ids)
            found = [
                Ended(id=one.id, state="pending", row_state="queued")
                if one.state == "unknown" and one.id in left
                else one
                for one in again
            ]
        return found

    # -- housekeeping

    def close(self) -> None:
        """Close the plane: claims that this process still holds are lost to it."""
        with forks.gate:
            state, self._current = self._current, None
        if state is not None and state.pid == os.getpid():
            state.close()

    # -- inside

    def _state(self) -> OpenPlane:
        state = self._current
        if state is not None and state.pid == os.getpid():
            return state
        with forks.gate:
            if self._current is None:
                raise DispatchError(f"{self!r} is closed")
            if self._current.pid != os.getpid():
                if self.path == ":memory:":
                    raise DispatchError("a ':memory:' plane does not cross a fork; give Dispatch a file")
                self._current = OpenPlane(self.path, self._durability)
            return self._current

    def _claims(self) -> LocalClaims:
        return LocalClaims(self.ns, self._state, self._handed)

    def _write(self, verb: Callable[[Transaction], T]) -> T:
        return self._state().write(verb)

    def _rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        return self._state().rows(statement, values)

    def _ended(self, inv_id: str) -> Ended:
        (one,) = self.endings((inv_id,))
        return one

    def _kept(self, id_: str, envelope: bytes) -> Payload:
        """The arguments in their place."""
        refused = outcomes.too_large(len(envelope), "the call's arguments")
        if refused is not None:
            raise refused
        return self._state().keep(id_, "args", envelope)

    def _ring_work(self, queue: str) -> None:
        self._state().ring_work(self.ns, queue)

    def _follow(
        self, channel: int, bell_name: str, what: str, since: int, timeout: float | None, over: Callable[[], bool]
    ) -> Iterator[tuple[int, bytes]]:
        state = self._state()
        deadline = local_wait.deadline(timeout)
        with state.bells.listen(bell_name) as bell:
            while True:
                ended = over()  # asked before reading, so that nothing written until then is missed
                page, looked_at = frames.read(self._rows, state.plane.journal, channel, since)
                for seq, data, final in page:
                    yield seq, data
                    if final:
                        return
                if looked_at > since:
                    since, deadline = looked_at, local_wait.deadline(timeout)
                    continue
                if ended:
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    raise outcomes.silent(what, timeout)
                bell.wait(left)
