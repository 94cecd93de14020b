"""How what was found joins what is configured.

Rules: a tag's key is what stands before its first "=" or ":". Configured tags stay as they are and come first; a
detected one is added unless its key is there. The configured runners stay first; detected ones are added.
Reference: nymph/daemons, "Host detection"; N-075…N-078, N-410.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


def key_of(tag: str) -> str:
    """The part of a tag that collides."""
    return re.split("[=:]", tag, maxsplit=1)[0].strip()


def merge_tags(configured: Iterable[str], detected: Iterable[str]) -> tuple[str, ...]:
    """All configured tags, verbatim, and of the detected ones those whose key nobody has configured."""
    merged = list(dict.fromkeys(configured))
    taken = {key_of(tag) for tag in merged}
    return (*merged, *(tag for tag in dict.fromkeys(detected) if key_of(tag) not in taken))


def merge_runners(configured: Iterable[str], detected: Iterable[str]) -> tuple[str, ...]:
    """The configured runners in their order, then the detected ones that are not there."""
    return tuple(dict.fromkeys((*configured, *detected)))


def host_tags(
    *,
    slurm: bool = False,
    cluster: str | None = None,
    kube: bool = False,
    context: str | None = None,
    aws: tuple[str, ...] | None = None,
    gcp: tuple[str, ...] | None = None,
) -> tuple[str, ...]:
    """The tags of a host; the first context that fired says what `host` is, `local` when none did."""
    tags: list[str] = []
    if slurm:
        tags += ["host=slurm", *([f"slurm:cluster={cluster}"] if cluster else [])]
    if kube:
        tags += ["host=kube", *([f"kube:context={context}"] if context else [])]
    tags += ["host=aws", *aws] if aws is not None else []
    tags += ["host=gcp", *gcp] if gcp is not None else []
    first = next((tag for tag in tags if tag.startswith("host=")), "host=local")
    return (first, *dict.fromkeys(tag for tag in tags if not tag.startswith("host=")))
