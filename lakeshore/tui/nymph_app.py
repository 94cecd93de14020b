"""`lakeshore nymph tui`: one daemon of this host, watched; nothing is changed.

Header, log and legend, from a status page that is asked every `interval` seconds. The first picture is drawn before
anything is asked, and before what asks is imported. However it ends the terminal is as it was: on a key, on SIGTERM and
SIGHUP, and on a defect of ours, whose traceback is printed after that.
Reference: nymph/status-tui.md; N-307…N-323.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from .event_log import EventLog
from .leaving import leave
from .poller import Poller
from .status_text import banner, fields
from .theme import FAINT, KEY, THEME

if TYPE_CHECKING:
    from lakeshore.client.introspection import Look

LEGEND: Final = "[e]rror [w]arn [i]nfo [d]ebug [t]race  [f]ollow  [space]pause  ↑/↓ scroll  [enter]expand  [q]uit"
_KEYS: Final = re.compile(r"\[\w+\]|↑/↓")
_LEVELS: Final = ("ERROR", "WARN", "INFO", "DEBUG", "TRACE")


class NymphApp(App[None]):
    """The monitor of the daemon whose status page is at `url`. `hint` is shown while it has never answered."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    #status { height: auto; max-height: 50%; border: round $primary; padding: 0 1; border-title-color: $primary; }
    #events { border: round $secondary; padding: 0 1; border-title-color: $secondary; }
    #legend { height: auto; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(level[0].lower(), f"level('{level}')", show=False) for level in _LEVELS),
        Binding("f", "follow", show=False),
        Binding("space", "pause", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(False)", show=False),
        Binding("end", "end(True)", show=False),
        Binding("enter", "expand", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("q,escape,ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, url: str, *, interval: float, hint: str | None = None) -> None:
        # With the terminal's own colours NO_COLOR leaves none; with a theme's it would leave greys.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._url, self._hint = url, hint
        self._interval = interval
        self._status = Static(id="status")
        self._log_ = EventLog(id="events")
        self._poller: Poller[Look] | None = None
        self._frozen_at: float | None = None
        self._rows = 0

    def compose(self) -> ComposeResult:
        yield self._status
        yield self._log_
        legend = Text(LEGEND, style=FAINT)
        legend.highlight_regex(_KEYS, KEY)
        yield Static(legend, id="legend")

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        self._status.border_title = "nymph"
        self._draw()
        loop = asyncio.get_running_loop()
        if not self.is_headless:
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, leave, self, number)
        self.call_after_refresh(self._start)

    def on_resize(self) -> None:
        self._draw()

    # -- asking ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        from lakeshore.client.introspection import Introspection, Unreachable  # wall: after the first picture

        page = Introspection(self._url)
        self._poller = Poller(page.look, interval=self._interval, expected=Unreachable, changed=self._changed)
        self.run_worker(self._poller.run(), exit_on_error=True)

    def _changed(self) -> None:
        assert self._poller is not None
        look = self._poller.last
        if look is not None and self._poller.failure is None:
            self._log_.show(look.events, look.capacity)
        self._draw()

    def _draw(self) -> None:
        poller = self._poller
        failure = poller.failure if poller else None
        look = poller.last if poller else None
        asked = bool(poller and poller.asked)
        text = Text().append_text(banner(self._url, asked=asked, failure=failure, interval=self._interval))
        text.append("\n")
        width = self.size.width - 4  # border and padding
        now = self._frozen_at or time.time()
        text.append_text(fields(look, width=width, now=now, stale=failure is not None))
        if look is None and failure is not None and self._hint:
            text.append(f"\n{self._hint}", style=FAINT)
        rows = len(text.wrap(self.console, max(width, 1)))
        self._status.update(text, layout=rows != self._rows)  # to lay it out anew draws the log anew
        self._rows = rows

    # -- keys ------------------------------------------------------------------------------------------------------

    def action_level(self, level: str) -> None:
        self._log_.filter(level)

    def action_follow(self) -> None:
        self._log_.toggle_follow()

    def action_pause(self) -> None:
        if self._poller is not None:
            self._poller.toggle()
            self._frozen_at = time.time() if self._poller.paused else None
            self._log_.freeze(self._poller.paused)

    def action_move(self, rows: int) -> None:
        self._log_.move(rows)

    def action_end(self, newest: bool) -> None:
        self._log_.select_end(newest=newest)

    def action_page(self, pages: int) -> None:
        self._log_.move_pages(pages)

    def action_expand(self) -> None:
        self._log_.toggle()
