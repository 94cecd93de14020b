"""`udf-daemon.toml`: nine sections, their keys, types and defaults; read, checked and written.

Rules: read once, at the start. An unknown section and a key outside of any are errors. An unknown key in a section is
a warning that names the nearest known one. A value of the wrong kind is an error that names file, section and key, and
never shows a token. `daemon.queues` is `daemon.lanes`. A length of time is a number of seconds, or text such as "5m".
What `render` writes, `parse` reads to the same. Where the file lies, flags and variables: `lookup.py`.
Reference: api/configuration, "udf-daemon.toml"; N-024…N-063, C-792…C-814.
"""

from __future__ import annotations

import difflib
import ipaddress
import tomllib
from collections.abc import Callable, Collection, Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

from ..config.errors import ConfigError
from ..config.lengths import seconds_of
from ..net.target import parse_target
from ..wire.names import MAX_NAME, check_namespace, check_subscription

DEFAULT_URL: Final = "http://localhost:8080"
AUTO: Final = "auto"
POOL: Final = -1
RUNNERS: Final = ("process", "docker", "gvisor", "slurm", "kube")
RUNNER_ALIASES: Final = {"subprocess": "process"}
LEVELS: Final = ("error", "warn", "info", "debug", "trace")
FORMATS: Final = ("human", "json")

Reader = Callable[[Any], Any]
"""A value as TOML has it -> as we keep it. ValueError says what it must be."""


# ---- values


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 - one kind of error, to which the key's name is put
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - as above
    return value


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a path")
    return value


def _secret(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.strip().isprintable():
        raise ValueError("must be the token, a string of one line")
    return value.strip()


def server_url(value: Any) -> str:
    """A control plane's base URL. ValueError says what is wrong with it."""
    text = _string(value)
    try:
        parse_target(text)
    except ValueError as error:
        raise ValueError(f"must be a server's address: {error}") from None
    return text


def _namespace(value: Any) -> str:
    check_namespace(value)
    return str(value)


def _name(value: Any) -> str:
    text = _string(value)
    if len(text) > MAX_NAME or (text and not text.isprintable()):
        raise ValueError(f"must be a string of at most {MAX_NAME} printable characters")
    return text


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one for one in value):
        raise ValueError("must be a list of strings")
    return tuple(_name(one) for one in value)


def _paths(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list of paths")  # noqa: TRY004 - one kind of error, as above
    return tuple(dict.fromkeys(_path(one) for one in value))


def _subscriptions(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_subscription(one, "a queue") for one in _names(value)))


def _runner(value: Any) -> str:
    text = _string(value)
    text = RUNNER_ALIASES.get(text, text)
    if text not in RUNNERS:
        raise ValueError(f"must be one of {', '.join(RUNNERS)}")
    return text


def _runners(value: Any) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(_runner(one) for one in _names(value)))
    if not found:
        raise ValueError(f"must name at least one of {', '.join(RUNNERS)}")
    return found


def _one_of(choices: Collection[str]) -> Reader:
    def read(value: Any) -> str:
        text = _string(value).lower()
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return read


def _whole(least: int, most: int | None = None) -> Reader:
    says = f"must be a whole number from {least}" + (f" to {most}" if most is not None else "")

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least or (most and value > most):
            raise ValueError(says)
        return value

    return read


def _seconds(value: Any) -> float | None:
    """A length of time in seconds; None when it is none."""
    if isinstance(value, str):
        return seconds_of(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        return None
    return float(value)


def _time(*, above: bool) -> Reader:
    says = f'must be a number of seconds {"above" if above else "from"} 0, or a text such as "30s" or "5m"'

    def read(value: Any) -> float:
        seconds = _seconds(value)
        if seconds is None or seconds < 0 or (above and seconds == 0):
            raise ValueError(says)
        return seconds

    return read


def _keep_alive(value: Any) -> int:
    seconds = _seconds(value)
    if seconds is None or seconds < POOL or seconds != int(seconds):
        raise ValueError('must be whole seconds (or a text such as "5m"), 0 to leave when idle, or -1 to stay')
    return int(seconds)


_UNSHOWN: Final = (_secret, server_url)  # a URL may hold a password


# ---- sections


def _key(default: Any, read: Reader, *, aka: str | None = None) -> Any:
    return field(default=default, metadata={"read": read, "aka": aka})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSection:
    """`token_file` as it is written (see `lookup`); `namespace` is for routes that name one."""

    url: str = _key(DEFAULT_URL, server_url)
    token_file: str | None = _key(None, _path)
    tls_verify: bool = _key(True, _flag)
    namespace: str = _key("default", _namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSection:
    """`machine_id` `auto` or empty is the host's name; `lanes` are queues, or prefixes that end in `*`."""

    machine_id: str = _key(AUTO, _name)
    label: str = _key("", _name)
    tags: tuple[str, ...] = _key((), _names)
    lanes: tuple[str, ...] = _key((), _subscriptions, aka="queues")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSection:
    """`max_invocations` 0 is no bound; `keep_alive_s` -1 never leaves, 0 leaves when it is idle. `python_path` are the
    directories of functions' modules; `allow_pickled` lets functions in that were sent by value.
    """

    workdir: str = _key("/var/lib/dreamlake/udf", _path)
    max_invocations: int = _key(100, _whole(0))
    runners: tuple[str, ...] = _key(("process",), _runners)
    default_runner: str = _key("process", _runner)
    keep_alive_s: int = _key(300, _keep_alive)
    python_path: tuple[str, ...] = _key((), _paths)
    allow_pickled: bool = _key(False, _flag)
    auto_update: bool = _key(False, _flag)
    auto_update_check_interval_s: float = _key(300.0, _time(above=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class PollSection:
    """How long a poll is held, and the bounds of the back-off; in seconds."""

    wait_max_s: float = _key(20.0, _time(above=True))
    retry_min_s: float = _key(1.0, _time(above=True))
    retry_max_s: float = _key(60.0, _time(above=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """`event_buffer` lines are kept for the status page, 0 keeps none."""

    level: str = _key("info", _one_of(LEVELS))
    format: str = _key("human", _string)
    event_buffer: int = _key(1024, _whole(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownSection:
    """How long jobs may go on after SIGTERM, in seconds."""

    grace_s: float = _key(60.0, _time(above=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class MountsSection:
    """Where mounts are cached, and how much."""

    cache_dir: str = _key("/var/lib/dreamlake/cache", _path)
    cache_max_bytes: int = _key(21_474_836_480, _whole(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrospectSection:
    """The local status page: off unless this file switches it on."""

    enabled: bool = _key(False, _flag)
    bind: str = _key("127.0.0.1", _string)
    port: int = _key(9876, _whole(0, 65_535))

    def refusal(self) -> str | None:
        """Why it must not be bound there: it asks nobody who they are. None where it may."""
        try:
            local = self.bind == "localhost" or ipaddress.ip_address(self.bind).is_loopback
        except ValueError:
            local = False
        return None if local else f"introspect.bind — {self.bind} is no loopback address, so there is no status page"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySection:
    """Off: no request carries a signature. The inline token wins over its file."""

    enabled: bool = _key(False, _flag)
    key_file: str = _key("/etc/dreamlake/daemon.key", _path)
    enroll_token: str | None = _key(None, _secret)
    enroll_token_file: str | None = _key(None, _path)

    def __repr__(self) -> str:
        return f"IdentitySection(enabled={self.enabled}, key_file={self.key_file!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole file. A section that is not there has its defaults."""

    server: ServerSection = field(default_factory=ServerSection)
    daemon: DaemonSection = field(default_factory=DaemonSection)
    runtime: RuntimeSection = field(default_factory=RuntimeSection)
    poll: PollSection = field(default_factory=PollSection)
    log: LogSection = field(default_factory=LogSection)
    shutdown: ShutdownSection = field(default_factory=ShutdownSection)
    mounts: MountsSection = field(default_factory=MountsSection)
    introspect: IntrospectSection = field(default_factory=IntrospectSection)
    identity: IdentitySection = field(default_factory=IdentitySection)


SECTIONS: Final[dict[str, type]] = {
    "server": ServerSection,
    "daemon": DaemonSection,
    "runtime": RuntimeSection,
    "poll": PollSection,
    "log": LogSection,
    "shutdown": ShutdownSection,
    "mounts": MountsSection,
    "introspect": IntrospectSection,
    "identity": IdentitySection,
}

INSTALLED_KEYS: Final = (
    "server.url",
    "server.token_file",
    "server.namespace",
    "daemon.label",
    "daemon.tags",
    "runtime.runners",
    "runtime.default_runner",
    "runtime.keep_alive_s",
)
"""What `daemon install` writes, always all of it."""


# ---- reading


def parse(text: str, where: str) -> tuple[Config, tuple[str, ...]]:
    """(the configuration, warnings) of a file's text; `where` names the file. Raises ConfigError."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{where}: nests too deeply") from None
    warnings: list[str] = []
    sections: dict[str, Any] = {}
    for name, table in tables.items():
        if name not in SECTIONS:
            raise ConfigError(f"{where}: {_unknown(name, table)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{where}: {name} — must be a section: write [{name}] and its keys below")
        sections[name] = SECTIONS[name](**dict(_read(where, name, table, warnings)))
    config = Config(**sections)
    if config.poll.retry_max_s < config.poll.retry_min_s:
        raise ConfigError(
            f"{where}: poll.retry_max_s — must be at least poll.retry_min_s "
            f"(got {config.poll.retry_max_s:g} and {config.poll.retry_min_s:g})"
        )
    return config, tuple(warnings)


def _read(where: str, section: str, table: dict[str, Any], warnings: list[str]) -> Iterator[tuple[str, Any]]:
    known: dict[str, Field[Any]] = {one.name: one for one in fields(SECTIONS[section])}
    aliases = {one.metadata["aka"]: one.name for one in known.values() if one.metadata["aka"]}
    for written, value in table.items():
        name = aliases.get(written, written)
        if name not in known:
            near = difflib.get_close_matches(written, [*known, *aliases], n=1, cutoff=0.6)
            meant = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"{where}: [{section}] has no key {written!r:.80}, it is ignored{meant}")
            continue
        if written != name and name in table:
            if table[name] != value:
                raise ConfigError(f"{where}: {section}.{written} — is the same key as {name}: keep one of them")
            continue
        try:
            read = known[name].metadata["read"](value)
        except ValueError as error:
            got = "" if known[name].metadata["read"] in _UNSHOWN else f" (got {value!r:.80})"
            raise ConfigError(f"{where}: {section}.{written} — {error}{got}") from None
        if (section, name) == ("log", "format"):
            read = log_format(read, warnings)
        yield name, read


def log_format(said: str, warnings: list[str]) -> str:
    """The format of the log; an unknown one is `human`, with a warning in the documented words."""
    if said.lower() in FORMATS:
        return said.lower()
    warnings.append(f'unknown log.format {said:.80}; falling back to "human"')
    return "human"


def _unknown(name: str, value: Any) -> str:
    nine = ", ".join(SECTIONS)
    if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
        near = difflib.get_close_matches(name, SECTIONS, n=1, cutoff=0.6)
        meant = f"did you mean [{near[0]}]? " if near else ""
        return f"[{name}] is no section of this file: {meant}there are {nine}"
    places = {
        f"{section}_{one.name}": (section, one.name) for section, kind in SECTIONS.items() for one in fields(kind)
    }
    near = difflib.get_close_matches(name, places, n=1, cutoff=0.8)
    bare = [(section, key) for section, key in places.values() if key == name]
    place = places[near[0]] if near else bare[0] if bare else None
    meant = f"did you mean {place[1]} in [{place[0]}]? " if place else ""
    return f"{name} stands outside of any section: {meant}The sections are {nine}"


# ---- writing


def render(config: Config, keys: Collection[str] | None = None) -> str:
    """The file's text: all keys that have a value, or those that `keys` names as `section.key`."""
    import tomli_w  # wall: only who writes such a file needs it

    tables: dict[str, dict[str, Any]] = {}
    for section, kind in SECTIONS.items():
        for one in fields(kind):
            value = getattr(getattr(config, section), one.name)
            if value is not None and (keys is None or f"{section}.{one.name}" in keys):
                tables.setdefault(section, {})[one.name] = list(value) if isinstance(value, tuple) else value
    return tomli_w.dumps(tables)
