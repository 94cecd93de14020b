"""What the daemon says: one line an event on stdout, human or JSON, and the last of them in a ring for the status page.

    human    2025-06-15T12:00:00.123456Z  WARN nymph::drain: poll failed reason=connection timeout
    json     {"timestamp": …, "level": "WARN", "target": "nymph::drain", "fields": {"message": …, "reason": …}}

Fields are what a caller gives as `extra`. Whoever reads stdout may stop reading (a stopped terminal, a shipper that
hangs): the daemon goes on, and what does not fit meanwhile is counted and given up. No record holds a token: that is
the affair of whoever logs. Reference: nymph/telemetry, "Structured logging"; N-054…N-056, N-290…N-294.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from lakeshore.wire.values import value

from .log_filter import LEVELS, TRACE, LogFilter, target_of
from .lookup import Boot

WAITING: Final = 10_000
"""Lines that wait for a reader."""
FAREWELL_S: Final = 2.0
DEFAULT_LIMIT: Final = 200
_RANKS: Final = {"ERROR": 1, "WARN": 2, "INFO": 3, "DEBUG": 4, "TRACE": 5}
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_log = logging.getLogger(__name__)


@value
class Event:
    """One thing that was said. `ts` in Unix seconds; `fields` are in the order of their names."""

    ts: float
    level: str
    target: str
    message: str
    fields: dict[str, str]

    @staticmethod
    def of(record: logging.LogRecord) -> Event:
        """Of a log record: its `extra` and, where there is one, its traceback are fields."""
        found = {name: str(what) for name, what in vars(record).items() if name not in _PLAIN}
        if record.exc_info and record.exc_info[0] is not None:
            found["traceback"] = logging.Formatter().formatException(record.exc_info)
        return Event(
            ts=record.created,
            level=_level(record.levelno),
            target=target_of(record.name),
            message=record.getMessage(),
            fields=dict(sorted(found.items())),
        )

    def told(self) -> dict[str, Any]:
        """As `/events` shows it."""
        return {
            "ts": self.ts,
            "level": self.level,
            "target": self.target,
            "message": self.message,
            "fields": self.fields,
        }

    def human(self) -> str:
        more = "".join(f" {name}={what}" for name, what in self.fields.items() if name != "traceback")
        text = f"{_time(self.ts)} {self.level:>5} {self.target}: {self.message}{more}"
        return f"{text}\n{self.fields['traceback']}" if "traceback" in self.fields else text

    def json(self) -> str:
        fields = {"message": self.message, **self.fields}
        told = {"timestamp": _time(self.ts), "level": self.level, "target": self.target, "fields": fields}
        return json.dumps(told, ensure_ascii=False)


class Ring(logging.Handler):
    """The last `capacity` events; 0 keeps none."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._events: deque[Event] = deque(maxlen=capacity)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, in the place of the oldest."""
        if self.capacity:
            self._events.append(Event.of(record))

    def page(self, *, limit: int = DEFAULT_LIMIT, level: str | None = None) -> dict[str, Any]:
        """`{count, capacity, events}`: the last `limit` from this level on, oldest first. An unknown level is none."""
        number = LEVELS.get((level or "").lower())
        most = len(_RANKS) if number is None else _RANKS[_level(number)]
        with self.lock or contextlib.nullcontext():
            found = [event for event in self._events if _RANKS[event.level] <= most]
        found = found[-limit:] if limit > 0 else []
        return {"count": len(found), "capacity": self.capacity, "events": [event.told() for event in found]}


class Lines(logging.Handler):
    """Writes to a stream from a thread of its own; nobody who logs waits for the stream."""

    def __init__(self, stream: TextIO, format_: str) -> None:
        super().__init__()
        self._stream = stream
        self._render = Event.json if format_ == "json" else Event.human
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING)
        self._given_up = 0
        self._thread = threading.Thread(target=self._run, name="nymph-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Hand it to the thread, or give it up."""
        try:
            if self._given_up:
                told = Event(ts=time.time(), level="WARN", target="nymph::logs", message="", fields={})
                said = f"{self._given_up} lines were not written: nobody read them"
                self._lines.put_nowait(self._render(Event(**{**told.told(), "message": said})))
                self._given_up = 0
            self._lines.put_nowait(self._render(Event.of(record)))
        except queue.Full:
            self._given_up += 1
        except Exception:  # noqa: BLE001  (an argument that cannot be printed costs its own line only)
            self.handleError(record)

    def flush(self) -> None:
        """Until everything is written, for a moment at most."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, FAREWELL_S)

    def close(self) -> None:
        """Write what waits, for a moment at most."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(FAREWELL_S)
        super().close()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            with contextlib.suppress(OSError, ValueError):  # a full disk, a reader that has gone
                self._stream.write(f"{line}\n")
                if self._lines.empty():
                    self._stream.flush()
            self._lines.task_done()


def install(boot: Boot, stream: TextIO | None = None) -> Ring:
    """Send what is logged from now on to `stream` (stdout) and into the ring; say what is odd about the configuration.

    Call `logging.shutdown()` before the process becomes another program: the last lines are on their way.
    """
    settings = boot.config.log
    logging.addLevelName(TRACE, "TRACE")
    logging.addLevelName(logging.WARNING, "WARN")
    filter_ = LogFilter(boot.log_filter)
    ring = Ring(settings.event_buffer)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in (ring, Lines(sys.stdout if stream is None else stream, settings.format)):
        handler.addFilter(filter_)
        root.addHandler(handler)
    root.setLevel(min(filter_.lowest, logging.CRITICAL))
    for written in filter_.refused:
        _log.warning("RUST_LOG: ignoring %r: it is no directive", written)
    for warning in boot.warnings:
        if warning.startswith("unknown log.format"):
            print(f"nymph: {warning}", file=sys.stderr, flush=True)  # noqa: T201  (the documented words, and place)
        else:
            _log.warning("%s", warning)
    return ring


def _level(number: int) -> str:
    if number >= logging.ERROR:
        return "ERROR"
    if number >= logging.WARNING:
        return "WARN"
    if number >= logging.INFO:
        return "INFO"
    return "DEBUG" if number >= logging.DEBUG else "TRACE"


def _time(ts: float) -> str:
    return datetime.fromtimestamp(ts, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
