"""The daemons of each namespace: in which state they are, and what people may order them to do.

A daemon that said hello has a row. Its state follows from what it sends (`wire/states.WORKER`); `stale` is only shown,
for who has been silent for a minute. After `gone_after_s` of silence the sweeper moves it to `gone`, by this server's
monotonic clock alone: time in which the server itself was away counts for nobody. An idle poll costs two dictionary
writes here, whatever the number of workers.

A removed worker's next poll is told to leave (410); like one that a newer session has fenced, it still ends what it
holds. The token of scope `daemon` that is bound to it goes with it: at its goodbye, or a while later.
Reference: nymph/daemon-lifecycle, get-started/architecture; S-300…S-319, S-595…S-607, S-748, S-778, S-812, S-827.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio

from ..plane.contract import PlaneError
from ..wire.messages import DEFAULT_QUEUE, InvocationStatus
from ..wire.run_configs import Offer, offer_of
from ..wire.states import STALE_AFTER_S, WORKER
from .leases import PAUSE_S
from .orders import Order, Orders
from .records import Records, WorkerRow
from .records.events import EventRow

log = logging.getLogger(__name__)

_MOST_TOLD: Final = 256
_TAIL: Final = 4096

GONE_AFTER_S: Final = 600.0
MOST_ORDERS: Final = 100
"""That may wait for one worker."""
EVENT: Final = "invocation.event"
SETUP: Final = "setup"
_SWEEP_S: Final = 30.0
_REVOKE_AFTER_S: Final = 600.0
_REMEMBER_S: Final = 30 * 86_400.0
_LARGEST_INFO: Final = 64 * 1024
_SERVING: Final = frozenset({"active", "joining", "setting_up"})


NOTHING_SAID: Final = Offer()


@functools.lru_cache(maxsize=4096)
def offer_in(info: str) -> Offer:
    """What a worker told of itself, as its row keeps it."""
    return offer_of(json.loads(info).get("tags"), capabilities_in(info).get("runners"))


def capabilities_in(info: str) -> Mapping[str, Any]:
    """What it told that it can do."""
    return json.loads(info).get("capabilities") or {}


class TooMany(Exception):
    """More is waiting for the worker than may."""


class Workers:
    """The workers of one server. `clock` is Unix time in seconds. Run `run()` in the server's nursery."""

    def __init__(
        self,
        records: Records,
        orders: Orders,
        *,
        gone_after_s: float = GONE_AFTER_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.gone_after_s = gone_after_s
        self._records = records
        self._rows = records.workers
        self._orders = orders
        self._clock = clock
        self._heard: dict[tuple[str, str], float] = {}
        """When each was last heard of, on the monotonic clock."""
        self._signed: dict[tuple[str, str], bool] = {}
        """Whether each one's last poll was signed by its own key."""
        self._unsigned: Counter[tuple[str, str]] = Counter()
        """How many polls and acks of each were not, since this server started."""
        self._progress: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        """What each one's last poll told of its runs, by their ids."""
        self._kept_idle: set[tuple[str, str]] = set()
        """Those that get no work now, whatever they ask for."""
        self._since = -math.inf
        """Nobody is silent for longer than since then."""

    # --- what workers send

    def first_state(self, ns: str, id_: str) -> str:
        """The state after a hello."""
        known = self._rows.get(ns, id_)
        event = "hello_with_setup" if self._orders.setting_up(ns, id_) else "hello"
        return WORKER.after("pending" if known is None else known.state, event, key=id_)

    async def greeted(self, ns: str, id_: str, session: str) -> None:
        """Its hello is stored. A script that its older process had, and did not report, is lost."""
        self._heard[ns, id_] = trio.current_time()
        await self._orders.superseded(ns, id_, session)
        for row in self._orders.delivered(ns, id_):
            await self.setup_ended(ns, id_, row.id, {"exit_code": -1, "error": "daemon restarted"})

    def polled(self, ns: str, id_: str, *, capacity: int, draining: bool, holds: bool, signed: bool = False) -> bool:
        """A poll came. True for the goodbye of a worker: call `left` then."""
        row = self._rows.get(ns, id_)
        if row is None:
            return draining and not holds and self._rows.is_removed(ns, id_)
        self._rows.touch((ns, id_))
        self._heard[ns, id_] = trio.current_time()
        self._signed[ns, id_] = signed
        if row.state == "active" and not draining:
            return False
        for event in self._events(row, capacity, draining, holds):
            row = self._move(row, event)
        return draining and not holds

    def _events(self, row: WorkerRow, capacity: int, draining: bool, holds: bool) -> Sequence[str]:
        if draining:
            return ("drain",) if holds else ("goodbye",)
        if row.state == "hibernating" and capacity < 1 and (row.hibernate_until or 0.0) > self._clock():
            return ()  # it renews what it holds
        if row.state == "setting_up" and not self._orders.setting_up(row.ns, row.id):
            return ("setup_done", "poll")
        return ("poll",)

    def _move(self, row: WorkerRow, event: str, **changed: Any) -> WorkerRow:
        return self._rows.note(row, state=WORKER.after(row.state, event, key=row.id), **changed)

    async def left(self, ns: str, id_: str) -> None:
        """A worker said goodbye."""
        if self._rows.is_removed(ns, id_):
            await self.revoke_token(ns, id_)
        else:
            await self._orders.abandoned(ns, id_, "daemon gone", for_good=False)

    def told_to_hibernate(self, ns: str, id_: str, until: float) -> None:
        """The order was handed out: the worker says nothing before `until` (Unix seconds)."""
        row = self._rows.get(ns, id_)
        if row is not None and ("hibernate" in _events_of(row.state)):
            self._move(row, "hibernate", hibernate_until=until)

    async def learn(self, ns: str, id_: str, told: Mapping[str, Any]) -> bool:
        """Merge what a poll said of the host into the row; False when that would make it too large (S-418)."""
        row = self._rows.get(ns, id_)
        if row is None:
            return True
        info = json.loads(row.info)
        capabilities = dict(told)
        versions = capabilities.pop("versions", None)
        tags = capabilities.pop("tags", None)
        info["capabilities"] = {**info.get("capabilities", {}), **capabilities}
        if isinstance(versions, Mapping):
            info["versions"] = {**info.get("versions", {}), **versions}
        if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags):
            info["tags"] = tags
        text = json.dumps(info, ensure_ascii=False)
        if len(text) > _LARGEST_INFO:
            return False
        if text != row.info:
            await self._rows.change(row, info=text)
        return True

    def tell(self, ns: str, id_: str, statuses: Sequence[InvocationStatus]) -> None:
        """What a poll says of its worker's runs; one that says nothing new of the output has it as it was."""
        known = self._progress.get((ns, id_), {})
        if (not statuses and not known) or self._rows.get(ns, id_) is None:
            return
        told: dict[str, dict[str, Any]] = {}
        for one in statuses[:_MOST_TOLD]:
            tail = one.stdout_tail or known.get(one.invocation_id, {}).get("stdoutTail")
            told[one.invocation_id] = {
                "state": one.state,
                "startedAt": one.started_at,
                "stdoutTail": None if tail is None else tail[-_TAIL:],
            }
        self._progress[ns, id_] = told

    def progress(self, ns: str, id_: str, invocation: str) -> dict[str, Any] | None:
        """What a worker told of a run last, since this server started."""
        return self._progress.get((ns, id_), {}).get(invocation)

    def came(self, ns: str, id_: str, *, signed: bool) -> None:
        """A poll or an ack of a worker came, with a signature or by its bearer alone."""
        if signed or self._rows.get(ns, id_) is None:
            return
        if not self._unsigned[ns, id_]:
            log.info("worker %s of %s signs nothing: daemon-bearer", id_, ns)
        self._unsigned[ns, id_] += 1

    def unsigned(self, ns: str, id_: str) -> int:
        """How many of its polls and acks had no signature, since this server started."""
        return self._unsigned[ns, id_]

    def last_poll_signed(self, ns: str, id_: str) -> bool | None:
        """Whether it was; None before the first poll since this server started."""
        return self._signed.get((ns, id_))

    def offer(self, ns: str, id_: str) -> Offer:
        """What a worker has, by what it said last; one without a row has said nothing."""
        row = self._rows.get(ns, id_)
        return NOTHING_SAID if row is None else offer_in(row.info)

    def takes_no_work(self, ns: str, id_: str) -> bool:
        """Whether its poll claims nothing: it must leave, is about to, is drained, or a script comes first (S-426)."""
        row = self._rows.get(ns, id_)
        if (row is not None and row.state == "draining") or (ns, id_) in self._kept_idle:
            return True
        return self._rows.is_removed(ns, id_) or self._orders.setting_up(ns, id_)

    def keep_idle(self, ns: str, id_: str) -> None:
        """It gets no work from here on; what is being claimed for it is seen once the writer has gone round."""
        self._kept_idle.add((ns, id_))
        self._orders.rouse(ns, id_)

    def let_work(self, ns: str, id_: str) -> None:
        """It gets work again, if it is there."""
        self._kept_idle.discard((ns, id_))
        self._orders.rouse(ns, id_)

    def is_removed(self, ns: str, id_: str) -> bool:
        """Whether it must leave: it was removed, and has not said hello since."""
        return self._rows.is_removed(ns, id_)

    async def setup_ended(self, ns: str, id_: str, setup_id: str, result: Mapping[str, Any]) -> None:
        """Log how a script ended, once; it is what `GET …/workers/:id` shows from then on."""
        known = [row for row in (*self._orders.delivered(ns, id_), *self._orders.of(ns, id_)) if row.id == setup_id]
        name = known[0].body.get("name") if known else None
        payload = {"type": SETUP, "setup_id": setup_id, **({"name": name} if name else {}), **result}
        row = EventRow(ns=ns, kind=EVENT, type=SETUP, worker=id_, ref=setup_id, at=self._clock(), payload=payload)
        await self._records.events.add([row])
        await self._orders.ended(ns, id_, {setup_id})

    # --- what is shown

    def shown_state(self, row: WorkerRow) -> str:
        """Its state as readers see it: `stale` after a minute without a word, unless it was told to be silent."""
        heard = self._rows.seen_at(row)
        if row.state in ("gone", "pending") or (row.state == "setting_up" and heard is None):  # launched: it will come
            return row.state
        seen = heard or row.hello_at
        if row.state == "hibernating":
            seen = max(seen, row.hibernate_until or 0.0)
        return "stale" if self._clock() - seen > STALE_AFTER_S else row.state

    def members(self, ns: str, queue: str) -> list[WorkerRow]:
        """Who serves a queue, there or not."""
        rows = self._rows.of(ns)
        return [row for row in rows if any(_matches(name, queue) for name in row.subscriptions or (DEFAULT_QUEUE,))]

    def serves(self, row: WorkerRow) -> bool:
        """Whether it takes work now."""
        return self.shown_state(row) in _SERVING

    # --- what people order

    async def order(self, row: WorkerRow, order: Order, *, actor: str) -> None:
        """Leave an order for a worker; durable. Raises TooMany."""
        if len(self._orders.of(row.ns, row.id)) >= MOST_ORDERS:
            raise TooMany(f"{MOST_ORDERS} orders wait for this worker already")
        subject = f"{row.id} {order.kind} {order.id}"
        await self._orders.put(row.ns, row.id, order, self._records.note(actor, row.ns, "worker.order", subject))
        current = self._rows.get(row.ns, row.id)
        if order.kind == SETUP and current is not None and SETUP in _events_of(current.state):
            self._move(current, SETUP)

    async def drain(self, row: WorkerRow, *, off: bool, actor: str) -> WorkerRow:
        """Give it no more work, from now on, or work again; durable."""
        now = self._rows.get(row.ns, row.id) or row
        state = WORKER.after(now.state, "undrain" if off else "drain", key=row.id)
        if state == now.state:
            return now
        note = self._records.note(actor, row.ns, "worker.drain", f"{row.id} {'off' if off else 'on'}")
        made = await self._rows.change(now, note, state=state)
        self._orders.rouse(row.ns, row.id)
        return made

    async def set_queues(self, row: WorkerRow, queues: Sequence[str], *, actor: str) -> WorkerRow:
        """Which queues it serves, from its next poll on; that is now."""
        note = self._records.note(actor, row.ns, "worker.queues", f"{row.id} {','.join(queues)}")
        made = await self._rows.change(row, note, queues=tuple(queues))
        self._orders.rouse(row.ns, row.id)
        return made

    async def remove(self, rows: Sequence[WorkerRow], *, action: str, actor: str) -> None:
        """Forget these workers: each is told to leave, and what waited for it goes."""
        if not rows:
            return
        notes = [self._records.note(actor, row.ns, action, f"{row.id} {row.label}") for row in rows]
        await self._rows.remove(rows, *notes)
        for row in rows:
            self._heard.pop((row.ns, row.id), None)
            self._signed.pop((row.ns, row.id), None)
            self._unsigned.pop((row.ns, row.id), None)
            self._progress.pop((row.ns, row.id), None)
            self._orders.rouse(row.ns, row.id)
            await self._orders.abandoned(row.ns, row.id, "daemon killed", for_good=True)

    def silent_for(self, ns: str, older_than_s: float) -> list[WorkerRow]:
        """Those not heard of for so long, the longest silent first. Who hibernates was told to be silent."""
        now = self._clock()
        found = [
            row
            for row in self._rows.of(ns)
            if now - (self._rows.seen_at(row) or row.hello_at) > older_than_s and (row.hibernate_until or 0.0) < now
        ]
        return sorted(found, key=lambda row: self._rows.seen_at(row) or row.hello_at)

    # --- life

    async def run(self) -> None:
        """Move on who fell silent, until cancelled."""
        every = min(_SWEEP_S, self.gone_after_s / 4)
        last = self._since = trio.current_time()
        while True:
            await trio.sleep(every)
            now = trio.current_time()
            if now - last > every + PAUSE_S:
                self._since = now
            last = now
            try:
                await self.sweep(now)
            except PlaneError as error:  # a full disk, say: it is tried again
                log.warning("workers could not be looked after, and will be: %s", error)

    async def sweep(self, now: float) -> None:
        """Look at every worker once. `now` is monotonic."""
        wall = self._clock()
        for row in self._rows.all():
            # One that was launched, or that this server has not heard of yet, is silent from its first look on.
            heard = max(self._heard.setdefault((row.ns, row.id), now), self._since)
            asleep = row.state == "hibernating" and wall < (row.hibernate_until or 0.0) + self.gone_after_s
            if row.state == "gone" or asleep or now - heard <= self.gone_after_s:
                continue
            log.warning("worker %s (%s) of %s is gone: silent for %.0f s", row.id, row.label, row.ns, now - heard)
            await self._orders.abandoned(row.ns, row.id, "daemon gone", for_good=False)
            current = self._rows.get(row.ns, row.id)
            if current is not None and self._heard.get((row.ns, row.id), heard) <= heard:
                self._move(current, "silence")
        removed = self._rows.removed()
        for (ns, id_), at in removed.items():
            if wall - at > _REVOKE_AFTER_S:
                await self.revoke_token(ns, id_)
        if old := [key for key, at in removed.items() if wall - at > _REMEMBER_S]:
            await self._records.forget_tokens(set(old))
            await self._rows.forget_removed(old)

    async def revoke_token(self, ns: str, id_: str) -> None:
        """Those that are bound to this worker, and are a daemon's."""
        for token in self._records.tokens(ns):
            if token.worker == id_ and token.scope == "daemon" and token.revoked_at is None:
                await self._records.revoke_token(ns, token.id, actor="<worker removed>")


def _events_of(state: str) -> frozenset[str]:
    return frozenset(event for from_, event in WORKER.transitions if from_ == state)


def _matches(subscription: str, queue: str) -> bool:
    return queue.startswith(subscription[:-1]) if subscription.endswith("*") else subscription == queue
