"""`value`: the decorator of what is passed around and never changed.

To a type checker such a class is frozen. At run time it is a plain slotted dataclass, for the `__init__` of a frozen
one takes three times as long, and a round trip makes dozens of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a class a slotted, keyword-only dataclass, equal and hashed by its fields."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
