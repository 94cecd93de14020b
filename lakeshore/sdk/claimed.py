"""A claimed invocation, as every plane hands it out, and the orders in which one may be asked for."""

from __future__ import annotations

from dataclasses import dataclass

from ..plane.contract import KINDS
from .errors import DispatchError


@dataclass(slots=True, unsafe_hash=True)  # nobody changes one; frozen it would take three times as long to make
class Claimed:
    """A claimed invocation: `envelope` as submitted, `attempt` counts executions from 1, `claim` is the fence."""

    id: str
    envelope: bytes
    attempt: int
    queue: str
    claim: int = 0
    first_seq: int = 0
    timeout_s: float | None = None


def check_kind(kind: str) -> None:
    """Raise DispatchError for an ordering that no plane knows."""
    if kind not in KINDS:
        raise DispatchError(f"unknown queue kind {kind!r}; use fifo|filo|boltzmann")
