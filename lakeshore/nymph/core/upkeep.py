"""Keys and versions: rotation, updates by command and by the target version (nymph/key-rotation, nymph/protocol)."""

from __future__ import annotations

from typing import Any

from . import events
from .instructions import InstallUpdate, RotateKey
from .leaving import begin_drain
from .state import State


def rotate(it: State) -> None:
    """The directive. Without an identity a no-op that is logged; one rotation at a time."""
    if not it.settings.has_identity:
        it.say("info", "rotate_key: this daemon has no identity, nothing to rotate")
    elif not it.rotating:
        it.rotating = True
        it.out.append(RotateKey())


def key_rotated(it: State, event: events.KeyRotated, _now: float) -> None:
    it.rotating = False
    it.say("info", f"the key is now {event.key_id}")


def rotation_failed(it: State, event: events.RotationFailed, _now: float) -> None:
    it.rotating = False
    it.say("warning", f"the key was not rotated, the old one stays: {event.reason}")


def look_for_update(it: State, target: Any, now: float) -> None:
    """The namespace's target version came with an answer: follow it, if this host is configured to, at its pace."""
    if not it.settings.auto_update or type(target) is not str or target == it.settings.version:
        return
    last = it.looked_for_update_at
    if last is None or now - last >= it.settings.auto_update_check_interval_s:
        it.looked_for_update_at = now
        update(it, target, None, None)


def update(it: State, version: str, url: str | None, sha256: str | None) -> None:
    """Fetch and install; one at a time, and not on the way out."""
    if it.drain is not None:
        it.say("info", f"not updating to {version}: {it.drain.why}")
    elif it.updating is not None:
        it.say("info", f"not updating to {version}: the update to {it.updating} is under way")
    else:
        it.updating = version
        it.out.append(InstallUpdate(version=version, url=url, sha256=sha256))


def update_installed(it: State, event: events.UpdateInstalled, now: float) -> None:
    it.updating, it.pending_version = None, event.version
    begin_drain(it, f"updated to {event.version}", 0, now, restart=event.version)


def update_failed(it: State, event: events.UpdateFailed, _now: float) -> None:
    it.updating = None
    it.say("error", f"not updated to {event.version}: {event.reason}")
