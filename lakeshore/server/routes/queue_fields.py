"""What a queue may be told: its fields, their rules, and the columns that they go to.

Reference: get-started/queues; S-274…S-281, S-726, S-763.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

from ...plane.contract import KINDS
from ...plane.queues import ON_FULL
from ...wire.run_configs import BadAsk, needs_of
from ..elasticity import spec as elasticity
from ..primitives import Wrong
from ..shapes import SLUG, above, checked, closed_shape, limited, one_of, open_shape, printable, refused, whole
from ..structure import bad_field

_ELASTICITY: Final = frozenset(
    "kind min max threshold threshold_low pool match steal_delay_s cost_weight".split()  # noqa: SIM905 - a set of words
)
_LONGEST: Final = 1000
_KIB: Final = 16
_MOST_DEPTH: Final = 2**53
_OWN_ROUTES: Final = {"draining": "drain", "archived": "archive"}
_COLUMNS: Final = {
    "description": "description",
    "kind": "kind",
    "kindParams": "kind_params",
    "elasticity": "elasticity",
    "daemonTemplate": "template",
    "runConfig": "run_config",
    "providerRef": "provider",
}
_ADMISSION: Final = {
    "max_depth": "max_depth",
    "on_full": "on_full",
    "rate_limit": "rate_limit",
    "deadline_cutoff_s": "cutoff_s",
}
_POSITIVE: Final = above(0, 1e9)
_ONE_CALLS: Final = refused("belongs to one call: a queue has no default of it")


def _provider(value: Any) -> Any:
    return value and SLUG.check(value)  # an empty one clears


def _settable(value: Any) -> str:
    if type(value) is str and value in _OWN_ROUTES:
        hint = f"POST …/queues/<name>/{_OWN_ROUTES[value]} does that"
        raise Wrong("must be paused or active here", hint=hint)
    if value not in ("paused", "active"):
        raise Wrong("must be paused or active")
    return str(value)


@open_shape
class KindParams(TypedDict, total=False):
    """What the queue's kind goes by."""

    temperature: Annotated[float, _POSITIVE]
    priority_field: Annotated[str, printable(1, 200)]


def _elasticity_kind(value: Any) -> str:
    if value not in elasticity.KINDS:
        meant = value.replace("-", "_") if type(value) is str else None
        hint = f"write {meant}" if meant in elasticity.KINDS else None
        raise Wrong(f"must be one of {', '.join(elasticity.KINDS)}", hint=hint)
    return str(value)


@open_shape
class Elasticity(TypedDict):
    """How many daemons a queue has."""

    kind: Annotated[str, checked(_elasticity_kind, enum=list(elasticity.KINDS))]


@open_shape
class DaemonTemplate(TypedDict, total=False):
    """What a daemon that is made for a queue is like."""

    instance_type: str
    image_id: str
    runner: str


@open_shape
class QueueRunConfig(TypedDict, total=False):
    """What a call of this queue has where it says nothing itself."""

    queue: Annotated[Any, _ONE_CALLS]
    key: Annotated[Any, _ONE_CALLS]
    prefix: Annotated[Any, _ONE_CALLS]
    priority: float
    max_attempts: Annotated[int, whole(1, 10_000)]
    timeout_s: Annotated[float, _POSITIVE]


@closed_shape
class Admission(TypedDict, total=False):
    """What a queue takes. `deadline_cutoff_s` and `rate_limit` in seconds and calls a second."""

    max_depth: Annotated[int, whole(1, _MOST_DEPTH)] | None
    on_full: Annotated[str, one_of(*ON_FULL)] | None
    rate_limit: Annotated[float, _POSITIVE] | None
    deadline_cutoff_s: Annotated[float, _POSITIVE] | None


class QueueFields(TypedDict, total=False):
    """Null clears; `elasticity`, `admission` and the like are whole objects."""

    description: Annotated[str, printable(0, _LONGEST)] | None
    kind: Annotated[str, one_of(*KINDS)] | None
    kindParams: Annotated[KindParams, limited(_KIB)] | None
    elasticity: Annotated[Elasticity, limited(_KIB)] | None
    admission: Admission | None
    providerRef: Annotated[str, checked(_provider, pattern="^([a-z0-9][a-z0-9-]*)?$")] | None
    daemonTemplate: Annotated[DaemonTemplate, limited(_KIB)] | None
    runConfig: Annotated[QueueRunConfig, limited(_KIB)] | None


class QueueAdd(QueueFields):
    """A new queue is active."""

    name: Annotated[str, SLUG]
    state: NotRequired[Annotated[str, refused("a new queue is active: drain, archive or pause it afterwards")]]


class QueueChange(QueueFields, total=False):
    """What is sent is changed; null clears."""

    state: Annotated[str, checked(_settable, enum=["paused", "active"])]


def columns(body: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that a body names."""
    made = {column: body[name] for name, column in _COLUMNS.items() if name in body}
    made |= {column: made[column] or None for column in ("description", "provider") if column in made}
    if "kind" in made:
        made["kind"] = made["kind"] or "fifo"
    if "admission" in body:
        said = body["admission"] or {}
        made |= {column: said.get(name) for name, column in _ADMISSION.items()}
    try:
        needs_of(made.get("run_config") or {}, "runConfig")
    except BadAsk as error:
        raise bad_field(error.field, error.problem) from None
    return made


def unread(body: Mapping[str, Any]) -> list[str]:
    """What of `elasticity` is stored in vain: keys that nobody reads, values that nothing is decided by (S-763)."""
    told = body.get("elasticity") or {}
    unread = sorted(set(told) - _ELASTICITY)
    warnings = [f"elasticity.{name} is stored, and nobody reads it" for name in unread]
    try:
        elasticity.read(told)
    except elasticity.BadSpec as error:
        warnings.append(str(error))
    return warnings
