"""Numbers on the command line, refused in plain words: click says "not a valid integer range"."""

from __future__ import annotations

import re
from typing import Any

import click

from ..config.lengths import UNITS_S, seconds_of


def _in_words(numbers: Any) -> str:
    """Bounds as `--help` says them: none where there are none, of which click makes `x<=None`."""
    return _bounds(numbers.min, numbers.max).removeprefix(" of ").removeprefix(" from ")


class Whole(click.IntRange):
    """A whole number within bounds."""

    _describe_range = _in_words

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

    _describe_range = _in_words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = None
        if number is None or not _within(self.min, number, self.max):
            self.fail(f"{value} is not a number of seconds{_bounds(self.min, self.max)}", param, ctx)
        return number


class Days(click.FloatRange):
    """A number of days within bounds."""

    _describe_range = _in_words


class Age(click.FloatRange):
    """A length of time as `90s`, `30m`, `12h`, `5d`, `2w` or a bare number of hours; in hours."""

    _describe_range = _in_words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", str(value).strip())
        if found is None:
            self.fail(f"{value} is no length of time: write 30m, 12h, 7d or a number of hours", param, ctx)
        hours = float(found[1]) * UNITS_S[found[2] or "h"] / 3600
        if (self.min_open and hours == self.min) or not _within(self.min, hours, self.max):
            least = f"more than {self.min:g}h" if self.min_open else f"{self.min or 0:g}h or more"
            most = "" if self.max is None else f", {self.max:g}h at most"
            self.fail(f"{value} is not within bounds: {least}{most}", param, ctx)
        return hours


class Length(click.FloatRange):
    """A length of time as `90s`, `5m`, `1h30m`, `2d`, `1w`; in seconds."""

    _describe_range = _in_words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        seconds = seconds_of(str(value))
        if seconds is None:
            self.fail(f"{value} is no length of time: write 90s, 5m, 1h30m or 1d", param, ctx)
        if not _within(self.min, seconds, self.max):
            self.fail(f"{value} is not a length of time{_bounds(self.min, self.max)} seconds", param, ctx)
        return seconds

    @staticmethod
    def text(seconds: float) -> str:
        """The same length in as few units as say it exactly."""
        parts = []
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
            n, seconds = divmod(seconds, size)
            if n:
                parts.append(f"{int(n)}{unit}")
        return "".join([*parts, f"{seconds:.12g}s"] if seconds or not parts else parts)


class Bytes(click.IntRange):
    """A size in bytes, as `500M`, `20G`, `1T` (powers of 1,024) or a bare number."""

    _describe_range = _in_words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if found is None or int(found[1]) == 0:
            self.fail(f"{value} is no size: write 500M, 20G or a number of bytes", param, ctx)
        power: int = " KMGT".index(found[2].upper() or " ")
        return int(found[1]) * int(1024**power)


def _within(least: float | None, number: float, most: float | None) -> bool:
    return number == number and (least is None or least <= number) and (most is None or number <= most)


def _bounds(least: float | None, most: float | None) -> str:
    if least is None:
        return ""
    return f" of {least:g} or more" if most is None else f" from {least:g} to {most:g}"
