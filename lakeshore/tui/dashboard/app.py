"""`lakeshore tui`: the keys, and what is asked of the server when.

Rules: all tabs are read once at the start, then the one that is seen, every `interval` seconds, after an action and on
`R`. The first picture is drawn before anything is asked, and before what asks is imported. While a question stands no
other key counts. A server that is away is a banner over what was read last; it is asked again until it is back.
Reference: cli/tui.md; C-386…C-429.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text
from textual import events as ui
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from .. import garbage
from ..leaving import leave
from ..theme import THEME
from . import chrome, following
from .actions import Action, offered
from .drawn import Line
from .help import Help
from .history import History
from .items import Item
from .listing import Head, Listing
from .pane import Pane
from .server import Server
from .tabs import NAMES, QUEUES, TABS
from .tally import Tally
from .view import View

if TYPE_CHECKING:
    from lakeshore.client.watch import News, Watch

    from .feed import Feed
    from .reading import Lane, Reader

LEAST_S: Final = 1.0
USUAL_S: Final = 4.0
RETRY_S: Final = 2.0
"""A server that is away is asked no more seldom."""
_AGES_S: Final = 1.0
_SHARE: Final = 0.1
"""So much of a core is used at most to show what changes all the time, as long as that takes a rest of no more than"""
_REST_S: Final = 0.1
"""before the server is asked on: it answers after 0.1 s at most, and a change is to be seen 0.2 s after it."""
_LONG_REST_S: Final = 0.15
"""The same where each change sorts or filters ten thousand rows anew."""
_KEY_S: Final = 0.02
"""So long a change waits for the picture of a key."""


class Dashboard(App[None]):
    """The fleet of one namespace of `server`, from the tab `tab` on. `told`: said in the status line at first.
    `follows`: what the server tells of changes is shown at once.
    """

    ALLOW_SELECT = False
    AUTO_FOCUS = None
    TITLE = "lakeshore"
    CSS = """
    Screen { layout: vertical; overflow: hidden; }
    #banner { display: none; }
    #banner.-shown { display: block; }
    #filter { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
    #filter.-shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "turn(1)", show=False, priority=True),
        Binding("shift+tab", "turn(-1)", show=False, priority=True),
        *(Binding(str(number), f"tab('{name}')", show=False) for number, name in enumerate(NAMES, start=1)),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(-1)", show=False),
        Binding("end", "end(1)", show=False),
        Binding("enter", "open", show=False),
        Binding("left", "neighbour(-1)", show=False),
        Binding("right", "neighbour(1)", show=False),
        Binding("R", "refresh_now", show=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "escape", show=False),
        Binding("less_than_sign", "sort(-1)", show=False),
        Binding("greater_than_sign", "sort(1)", show=False),
        Binding("S", "reverse", show=False),
        Binding("Y", "copy", show=False),
        Binding("question_mark", "help", show=False),
        Binding("ctrl+z", "suspend_process", show=False),
        Binding("q", "quit", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        server: Server,
        *,
        interval: float = USUAL_S,
        tab: str = NAMES[0],
        told: str | None = None,
        follows: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        # With the terminal's own colours NO_COLOR leaves none; with a theme's it would leave greys.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._server, self._interval = server, max(interval, LEAST_S)
        self._follows = follows
        self._views = {one.name: View(one) for one in TABS}
        self._active = self._views[tab]
        self._tally = Tally()
        self._who: dict[str, Any] | None = None
        self._question: tuple[Action, Item | None] | None = None
        self._status: Text | None = None if told is None else chrome.outcome(told, good=False)
        self._failure: str | None = None
        self._last_at: float | None = None
        self._again = asyncio.Event()
        self._reader: Reader | None = None
        self._told_by: Watch | None = None
        self._actions: Lane | None = None
        self._places: list[tuple[int, int, str]] = []
        self._bar, self._line, self._banner = Line(id="bar"), Line(id="server"), Line(id="banner")
        self._head = Head(self._active, id="head")
        self._list = Listing(self._active, server.namespace, clock, self._moved, id="list")
        self._quiet = garbage.Quiet(time.monotonic())
        self._history = History()
        self._pane = Pane(self._history, clock, id="pane")
        self._feed: Feed | None = None
        self._input = Input(id="filter", placeholder="words, or column:word", select_on_focus=False)
        self._say, self._legend = Line(id="say"), Line(id="legend")

    # -- what is there ---------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield from (
            self._bar,
            self._line,
            self._banner,
            self._head,
            self._list,
            self._pane,
            self._input,
            self._say,
            self._legend,
        )

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        self._draw()
        loop = asyncio.get_running_loop()
        if not self.is_headless:
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, leave, self, number)
        self.set_interval(_AGES_S, self._age)
        self.call_after_refresh(self._start)

    async def on_unmount(self) -> None:
        if self._reader is not None and self._actions is not None:
            await asyncio.gather(self._reader.close(), self._actions.close())

    def on_resize(self) -> None:
        self._draw()

    def _age(self) -> None:
        if not self.is_headless:
            self._quiet.look(time.monotonic())
        (self._list if self._pane.item is None else self._pane).redraw()

    def _draw(self) -> None:
        """All but the rows."""
        width = self.size.width
        bar, self._places = chrome.bar(self._server.namespace, list(self._views.values()), self._active.tab, width)
        self._bar.say(bar)
        self._line.say(chrome.server_line(self._server.url, self._who, self._tally, width))
        self._banner.set_class(self._failure is not None, "-shown")
        if self._failure is not None:
            again = min(self._interval, RETRY_S)
            self._banner.say(chrome.banner(self._server.url, self._failure, self._last_at, again))
        self._legend.say(chrome.legend(width, pane=self._pane.item is not None))
        self._draw_line()

    def _draw_line(self) -> None:
        if self._question is not None:
            action, item = self._question
            assert action.question is not None
            self._say.say(chrome.question(action.question(item)))
        elif self._status is not None:
            self._say.say(self._status)
        else:
            self._say.say(chrome.idle(self._active, self._target(), self._offered(), self.size.width))

    def _offered(self) -> list[Action]:
        return offered(self._active.tab.actions, self._target(), self._server.namespace)

    def _target(self) -> Item | None:
        """The row that actions are of: the pane's, while it is there; else the selected one."""
        of = self._pane.item
        return self._active.selected if of is None else next((o for o in self._active.items if o.id == of.id), None)

    # -- asking ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        from .reading import Lane, Reader  # wall: after the first picture

        self._reader, self._actions = Reader(self._server), Lane(self._server)
        self._spare()
        self.run_worker(self._watch(), exit_on_error=True)
        if self._follows:
            self.run_worker(self._follow(), exit_on_error=True)

    def _spare(self) -> None:
        if not self.is_headless:
            garbage.spare()

    async def _watch(self) -> None:
        """Until the end."""
        await self._read(self._active)
        others = [view for view in self._views.values() if view is not self._active]
        while True:
            if self._failure is None:
                while others and self._failure is None:
                    if await self._read(others[0], counts=False):
                        others.pop(0)
                await self._read_on()
            wait = min(self._interval, RETRY_S) if self._failure is not None else self._interval
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._again.wait()
            self._again.clear()
            await self._read(self._active)

    async def _follow(self) -> None:
        """What changes of the tab that is seen, as it changes; another tab is another question.

        A server that does not tell is read every `interval` seconds all the same.
        """
        from lakeshore.client.errors import ApiError  # wall: as above
        from lakeshore.client.watch import Watch  # wall: as above
        from lakeshore.net.errors import NetError  # wall: as above

        server, before = self._server, time.process_time()
        with contextlib.suppress(ApiError, NetError):
            while True:
                view = self._active
                kind = following.KINDS[view.tab.name]
                self._told_by = Watch(server.url, namespace=server.namespace, token=server.token, kinds=[kind])
                async with contextlib.aclosing(aiter(self._told_by)) as told:
                    async for news in told:
                        if view is not self._active:
                            break
                        # a key that has just come is drawn first
                        await asyncio.sleep(max(self._quiet.pressed_at + _KEY_S - time.monotonic(), 0))
                        self._take(view, news)
                        used, before = time.process_time() - before, time.process_time()
                        await asyncio.sleep(min(used / _SHARE, _REST_S if view.is_plain else _LONG_REST_S))

    def _take(self, view: View, news: News) -> None:
        """What it says of the rows of that tab."""
        if news.away or news.reset:
            self._again.set()
        elif news.changes and view.loaded and self._reader is not None:
            items = self._reader.changed(view.tab, view.items, news.changes)
            if items is None:
                self._again.set()
            else:
                self._put(view, items)

    async def _read(self, view: View, *, counts: bool = True) -> bool:
        """That tab anew, and the counts; whether the server answered."""
        from .reading import Unanswered  # wall: as above

        reader = self._reader
        assert reader is not None
        try:
            if self._who is None:
                self._who = await reader.who()
            items = await reader.look(view.tab.name, self._list.top if view is self._active else 0)
            self._put(view, items)  # at once: what is told of later on is put upon these
            if counts:
                self._tally.put(await reader.counts(), time.monotonic())
        except Unanswered as error:
            self._failure = str(error)
            self._draw()
            return False
        self._failure, self._last_at = None, time.time()
        self._draw()
        return True

    async def _read_on(self) -> None:
        """Older invocations, a page at a time, unless something else is wanted."""
        from .reading import Unanswered  # wall: as above

        reader, view = self._reader, self._views["invocations"]
        assert reader is not None
        while reader.wants_more and not self._again.is_set():
            try:
                self._put(view, await reader.more())
                self._spare()
            except Unanswered as error:
                self._failure = str(error)
                self._draw()
                return

    def _put(self, view: View, items: Iterable[Item]) -> None:
        before = view.at
        view.show(list(items))
        if view is self._active:
            self._list.settle(before)
            if self._feed is not None:
                self._feed.look()
        if view.tab is QUEUES:
            self._history.keep(item.id for item in view.items)
            for item in view.items:
                self._history.put(item.id, item.row, time.monotonic())
        self._draw()

    # -- keys ------------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a question stands no key but its answers does anything; before another screen only its own do."""
        if self._question is not None:
            return False
        if len(self.screen_stack) > 1:
            return action not in ("turn", "tab", "filter", "help", "open", "neighbour", "escape")
        return self._pane.item is None or action not in ("filter", "sort", "reverse", "open")

    async def on_event(self, event: ui.Event) -> None:
        if isinstance(event, ui.InputEvent):
            self._quiet.pressed_at = time.monotonic()
        await super().on_event(event)

    def on_key(self, event: ui.Key) -> None:
        if self._question is not None:
            event.stop()
            event.prevent_default()
            if event.key in ("y", "n", "escape"):
                action, item = self._question
                self._question = None
                if event.key == "y":
                    self._do(action, item)
                self._draw_line()
            return
        if len(self.screen_stack) > 1 or self._input.has_focus:
            return
        pressed = next((one for one in self._offered() if one.key == event.character), None)
        if pressed is not None:
            event.stop()
            self.act(pressed)

    def act(self, action: Action) -> None:
        """Do it to the selected row; ask first, where it destroys."""
        item = None if action.everywhere else self._target()
        self._status = None
        if action.question is not None:
            self._question = (action, item)
        else:
            self._do(action, item)
        self._draw_line()

    def _do(self, action: Action, item: Item | None) -> None:
        self._status = chrome.doing(action, item)
        self.run_worker(self._done(action, item), exit_on_error=True)

    async def _done(self, action: Action, item: Item | None) -> None:
        from .reading import Unanswered  # wall: as above

        assert self._actions is not None
        try:
            said = await self._actions.ask(lambda api: action.run(api, item))
            self._status = chrome.outcome(said, good=True)
        except Unanswered as error:
            what = action.name if item is None else f"{action.name} {item.name}"
            self._status = chrome.outcome(f"{what}: {error}", good=False)
        self._draw_line()
        self._again.set()

    def action_turn(self, step: int) -> None:
        self.action_tab(NAMES[(NAMES.index(self._active.tab.name) + step) % len(NAMES)])

    def action_tab(self, name: str) -> None:
        if name == self._active.tab.name:
            return
        self._close_pane()
        self._active = self._views[name]
        self._close_filter()
        self._status = None
        self._list.show(self._active)
        self._head.show(self._active)
        self._draw()
        self._again.set()
        if self._told_by is not None:
            self._told_by.close()

    def action_move(self, rows: int) -> None:
        self._mover.move(rows)

    def action_page(self, pages: int) -> None:
        self._mover.move(pages * self._mover.page)

    def action_end(self, direction: int) -> None:
        self._mover.move(direction * self._mover.length)

    @property
    def _mover(self) -> Listing | Pane:
        return self._list if self._pane.item is None else self._pane

    def action_open(self) -> None:
        """The detail pane of the selected row."""
        item = self._active.selected
        if item is not None:
            self._status = None
            self._pane.open(self._active.tab, item)
            self._head.display = self._list.display = False
            self._attend(item)
            self._draw()

    def action_neighbour(self, rows: int) -> None:
        """In the pane, the row after or before."""
        if self._pane.item is not None:
            self._active.move(rows)
            self.action_open()

    def _attend(self, item: Item) -> None:
        """Read what there is of it, as long as its pane is open."""
        from .feed import Feed  # wall: after the first picture

        self._feed = Feed(self._server, self._active.tab, item, interval=self._interval, tell=self._pane.put)
        self.run_worker(self._feed.run(), group="feed", exclusive=True, exit_on_error=True)

    def _close_pane(self) -> None:
        if self._pane.item is not None:
            self.workers.cancel_group(self, "feed")
            self._feed = None
            self._pane.close()
            self._head.display = self._list.display = True
            self._list.settle()
            self._draw()

    def action_refresh_now(self) -> None:
        self._status = None
        self._draw_line()
        self._again.set()
        if self._feed is not None:
            self._feed.look()

    def action_filter(self) -> None:
        self._input.value = self._active.filter
        self._input.add_class("-shown")
        self._input.focus()

    def action_escape(self) -> None:
        """From the pane to the list; there, show all rows."""
        if self._pane.item is not None:
            self._close_pane()
            return
        self._close_filter()
        self._status = None
        self._look_for("")

    def action_sort(self, step: int) -> None:
        self._active.sort_next(step)
        self._sorted()

    def action_reverse(self) -> None:
        self._active.sort(self._active.column, descending=not self._active.descending)
        self._sorted()

    def action_copy(self) -> None:
        item = self._target()
        if item is not None:
            self.copy_to_clipboard(item.id)
            self._status = chrome.outcome(f"copied {item.id}", good=True)
            self._draw_line()

    def action_help(self) -> None:
        self.push_screen(Help())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: what may be done to the selected row, the tabs, and Textual's own."""
        for action in self._offered():
            target = self._target()
            item = "" if action.everywhere or target is None else f" {target.name}"
            yield SystemCommand(f"{action.name}{item}", action.what, lambda action=action: self.act(action))
        for view in self._views.values():
            name = view.tab.name
            yield SystemCommand(view.tab.title, f"show the {name}", lambda name=name: self.action_tab(name))
        if self._target() is not None and self._pane.item is None:
            yield SystemCommand("Open", "all that is known of the selected row", self.action_open)
        yield SystemCommand("Refresh", "read this tab now", self.action_refresh_now)
        yield SystemCommand("Help", "every key", self.action_help)
        for command in super().get_system_commands(screen):
            if command.title in ("Theme", "Quit"):
                yield command

    # -- the mouse and the filter ----------------------------------------------------------------------------------

    def on_click(self, event: ui.Click) -> None:
        if event.widget is self._bar and self._question is None:
            for left, right, name in self._places:
                if left <= event.x < right:
                    self.action_tab(name)

    def on_head_chosen(self, event: Head.Chosen) -> None:
        if self._question is None:
            again = event.column == self._active.column
            self._active.sort(event.column, descending=again and not self._active.descending)
            self._sorted()

    def on_listing_opened(self) -> None:
        if self._question is None:
            self.action_open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._look_for(event.value)

    def on_input_submitted(self) -> None:
        self._close_filter()

    # -- within ----------------------------------------------------------------------------------------------------

    def _moved(self) -> None:
        self._status = None
        self._draw_line()

    def _close_filter(self) -> None:
        self._input.remove_class("-shown")
        self.screen.set_focus(None)

    def _look_for(self, words: str) -> None:
        self._active.look_for(words)
        self._list.settle()
        self._draw_line()

    def _sorted(self) -> None:
        self._status = None
        self._head.show(self._active)
        self._list.settle()
        self._draw_line()
