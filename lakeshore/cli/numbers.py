"""Numbers on the command line, refused in plain words: click says "not a valid integer range"."""

from __future__ import annotations

from typing import Any

import click


class Whole(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = None
        if number is None or not _within(self.min, number, self.max):
            self.fail(f"{value} is not a whole number{_bounds(self.min, self.max)}", param, ctx)
        return number


class Seconds(click.FloatRange):
    """A length of time within bounds, in seconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = None
        if number is None or not _within(self.min, number, self.max):
            self.fail(f"{value} is not a number of seconds{_bounds(self.min, self.max)}", param, ctx)
        return number


def _within(least: float | None, number: float, most: float | None) -> bool:
    return number == number and (least is None or least <= number) and (most is None or number <= most)


def _bounds(least: float | None, most: float | None) -> str:
    if least is None:
        return ""
    return f" of {least:g} or more" if most is None else f" from {least:g} to {most:g}"
