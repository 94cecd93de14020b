"""What the run config of a call asks of a worker, and whether one has it; what lies over what.

    tags      labels of a worker: every one of them, letter by letter
    runner    one that the worker has. A kind that nobody knows asks nothing: the daemon refuses such a call, by name
    match     {tags: […], runners: […]}: more of both

Rules: a call goes to workers that have all of it. Who says nothing of its runners runs any call; who says nothing of
its tags has none. `resources` and `provider` are for launchers.
Reference: get-started/elasticity, "match"; api/configuration, "Mode fields"; S-505.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .values import value

RUNNERS: Final = frozenset({"process", "docker", "gvisor", "slurm", "kube"})
ALIASES: Final = {"subprocess": "process"}
MOST: Final = 100
"""That a list of tags or runners may have."""
LONGEST: Final = 200
"""Characters of a tag."""
TABLES: Final = ("resources", "env")
_MATCH: Final = ("tags", "runners")


class BadAsk(ValueError):
    """What a run config asks makes no sense: `field` and `problem`."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field, self.problem = field, problem


@value
class Offer:
    """What a worker has. `runners` None: it does not say."""

    tags: frozenset[str] = frozenset()
    runners: frozenset[str] | None = None


@value
class Needs:
    """What a call asks, each list sorted."""

    tags: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()


def over(below: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """What `call` says over what is below it (its mode, its queue); `env` and `resources` key by key."""
    found = {**below, **call}
    for table in TABLES:
        if isinstance(below.get(table), Mapping) and isinstance(call.get(table), Mapping):
            found[table] = {**below[table], **call[table]}
    return found


def needs_of(config: Mapping[str, Any], at: str = "run_config") -> str | None:
    """What a run config asks, as the text that equal needs share; None for nothing. Raises BadAsk, naming a field
    below `at`.
    """
    tags = set(_words(config.get("tags"), f"{at}.tags"))
    match = config.get("match")
    runners: set[str] = set()
    if match is not None:
        if not isinstance(match, Mapping):
            raise BadAsk(f"{at}.match", "must be a map of tags and runners")
        for name in match:
            if name not in _MATCH:
                raise BadAsk(f"{at}.match.{name!s:.80}", "is none of tags and runners")
        tags |= set(_words(match.get("tags"), f"{at}.match.tags"))
        runners |= {ALIASES.get(one, one) for one in _words(match.get("runners"), f"{at}.match.runners")}
    runner = config.get("runner")
    if isinstance(runner, str) and (runner := ALIASES.get(runner, runner)) in RUNNERS:
        runners.add(runner)
    if not tags and not runners:
        return None
    return json.dumps({"runners": sorted(runners), "tags": sorted(tags)}, ensure_ascii=False, separators=(",", ":"))


@functools.lru_cache(maxsize=4096)
def needs(text: str) -> Needs:
    """Of what `needs_of` made."""
    told = json.loads(text)
    return Needs(tags=tuple(told["tags"]), runners=tuple(told["runners"]))


@functools.lru_cache(maxsize=16_384)
def meets(offer: Offer, text: str) -> bool:
    """Whether a worker has all that such a call asks."""
    asked = needs(text)
    return offer.tags.issuperset(asked.tags) and (offer.runners is None or offer.runners.issuperset(asked.runners))


def lacking(offer: Offer, text: str) -> str | None:
    """What keeps a worker from such a call, in words; None when nothing does."""
    asked = needs(text)
    told = []
    if missing := [tag for tag in asked.tags if tag not in offer.tags]:
        told.append(f"lacks the tag{'s' if len(missing) > 1 else ''} {', '.join(missing)}")
    if offer.runners is not None and not offer.runners.issuperset(asked.runners):
        told.append(f"has {', '.join(sorted(offer.runners))}")
    return "; ".join(told) or None


def offer_of(tags: Any, runners: Any) -> Offer:
    """What a worker said of itself, as far as it makes sense."""
    said = list(_texts(runners))
    return Offer(
        tags=frozenset(_texts(tags)),
        runners=frozenset(ALIASES.get(one, one) for one in said) if said else None,
    )


def _texts(said: Any) -> Iterable[str]:
    return (one for one in said if isinstance(one, str)) if isinstance(said, list | tuple) else ()


def _words(said: Any, field: str) -> Iterator[str]:
    if said is None:
        return
    if not isinstance(said, list | tuple) or len(said) > MOST:
        raise BadAsk(field, f"must be an array of at most {MOST} strings")
    for place, one in enumerate(said):
        if not isinstance(one, str) or not 0 < len(one) <= LONGEST or not one.isprintable():
            raise BadAsk(f"{field}[{place}]", f"must be a string of 1 to {LONGEST} printable characters")
        yield one
