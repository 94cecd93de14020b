"""What the dashboard looks like: each tab, a detail pane and the confirm bar, as they were last looked at.

A difference is a change of what people see: look at it (`scripts/screenshots` makes pictures of it), and keep it with
UPDATE_GOLDEN=1.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up_fleet import picture

PICTURES = Path(__file__).resolve().parents[1] / "fixtures" / "pictures"
SIZES = ((80, 24), (140, 40))
SHOWN = {
    **{tab: (tab, ()) for tab in ("workers", "queues", "invocations", "storage")},
    "invocation": ("invocations", ("end", "enter")),
    "confirm": ("queues", ("end", "r")),
}


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def plain(svg: str) -> str:
    """Without what is drawn by lot."""
    return "\n".join(line.rstrip() for line in re.sub(r"terminal-\d+", "terminal-0", svg).splitlines()) + "\n"


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SHOWN)
def test_the_screen_is_as_it_was_looked_at(name: str, size: tuple[int, int]) -> None:
    tab, keys = SHOWN[name]
    found = plain(asyncio.run(picture(tab, size, *keys)))
    kept = PICTURES / f"dashboard-{name}-{size[0]}x{size[1]}.svg"
    if os.environ.get("UPDATE_GOLDEN"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(found, "utf-8")
    assert found == kept.read_text("utf-8")
