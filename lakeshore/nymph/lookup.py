"""What a daemon is started with: its file, the flags and the variables, each in its rank.

    the file      --config, LAKESHORED_CONFIG, LAKESHORE_CONFIG, /etc/dreamlake/udf-daemon.toml,
                  ~/.config/dreamlake/udf-daemon.toml, else the defaults; a named file must be there, and the first that
                  is found is the only one
    server        --server, LAKESHORE_SERVER, server.url
    token         --token, LAKESHORE_TOKEN, server.token_file
    queue         --queue, DREAMLAKE_QUEUE, LAKESHORE_QUEUE, the first of daemon.lanes, "default"
    worker id     --worker-id, else {machine id}-{ULID}
    by value      --allow-pickled, runtime.allow_pickled
    log filter    RUST_LOG, log.level                    log format    LAKESHORE_LOG_FORMAT, log.format

An empty variable is as one that is not set. A relative path of the file is taken from the working directory, and where
nothing lies there, from the file's own directory. A variable that looks ours and is not read is a warning, and so is
one that is read for want of the documented one.
Reference: nymph/installation, "Daemon flags and env vars"; N-013…N-023, N-029, N-381…N-383, N-409, N-420.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..config.errors import ConfigError
from ..wire.errors import NameError_
from ..wire.messages import DEFAULT_QUEUE
from ..wire.names import check_subscription
from .config import AUTO, Config, log_format, parse, server_url

SYSTEM_FILE: Final = Path("/etc/dreamlake/udf-daemon.toml")
_LONGEST_TOKEN: Final = 64 * 1024
_NOT_READ: Final = {
    "LAKESHORE_INTROSPECT": "[introspect] enabled = true in the configuration file switches the status page on",
}
_INSTEAD: Final = {"LAKESHORED_CONFIG": "LAKESHORE_CONFIG", "DREAMLAKE_QUEUE": "LAKESHORE_QUEUE"}
"""Variables that are spelled unlike all others, and how one would have spelled them."""
_NOT_READ_PREFIX: Final = "LAKESHORE_RELAY_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The daemon's flags; None where one was not given."""

    config: str | None = None
    server: str | None = None
    token: str | None = None
    queue: str | None = None
    worker_id: str | None = None
    allow_pickled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """Everything that a daemon starts with. `path` is None without a file; `config.server.url` is the one to use.

    `log_filter` is a level, or what RUST_LOG says (`nymph::drain=debug,warn`); `queue` is what is polled.
    """

    config: Config
    path: Path | None
    token: str | None
    enroll_token: str | None
    queue: str
    worker_id: str | None
    log_filter: str
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:  # holds tokens
        return f"Boot(path={self.path}, server={self.config.server.url!r}, queue={self.queue!r})"

    def place(self, written: str) -> Path:
        """Where a path of the file leads."""
        return _place(written, self.path)

    def machine_id(self, hostname: str) -> str:
        """What this machine is called: the file's word, else the host's name."""
        said = self.config.daemon.machine_id
        return hostname if said in ("", AUTO) else said

    def provisional_id(self, hostname: str, new_ulid: Callable[[], str]) -> str:
        """The worker's id until hello names it."""
        return self.worker_id or f"{self.machine_id(hostname)}-{new_ulid()}"


def find_file(flag: str | None, environ: Mapping[str, str], system: Path = SYSTEM_FILE) -> Path | None:
    """The configuration file; None when there is none and none was named."""
    named = flag or _either(environ, "LAKESHORED_CONFIG")[1]
    if named:
        return Path(named).expanduser()
    home = environ.get("HOME")
    places = [system, *([Path(home) / ".config" / "dreamlake" / "udf-daemon.toml"] if home else [])]
    return next((place for place in places if _is_there(place)), None)


def read_file(path: Path | None) -> Config:
    """What the file alone says; the defaults where there is none. Raises ConfigError."""
    return _parsed(path)[0]


def boot(flags: Flags = Flags(), environ: Mapping[str, str] = os.environ, system: Path = SYSTEM_FILE) -> Boot:
    """Read it all, once. Raises ConfigError: then the daemon does not start."""
    path = find_file(flags.config, environ, system)
    config, found = _parsed(path)
    warnings = list(found)
    server = flags.server or environ.get("LAKESHORE_SERVER")
    if server:
        try:
            server_url(server)
        except ValueError as error:
            raise ConfigError(f"{'--server' if flags.server else 'LAKESHORE_SERVER'} — {error}") from None
        config = replace(config, server=replace(config.server, url=server))
    if flags.allow_pickled:
        config = replace(config, runtime=replace(config.runtime, allow_pickled=True))
    said = environ.get("LAKESHORE_LOG_FORMAT")
    if said:
        config = replace(config, log=replace(config.log, format=log_format(said, warnings)))
    warnings += [f"{name} is set, and read by nothing: {why}" for name, why in _NOT_READ.items() if environ.get(name)]
    warnings += [f"{name} is set, and read by nothing" for name in environ if name.startswith(_NOT_READ_PREFIX)]
    for name, by_flag in (("LAKESHORED_CONFIG", flags.config), ("DREAMLAKE_QUEUE", flags.queue)):
        used, said = _either(environ, name)
        if said and used != name and not by_flag:
            warnings.append(f"{used} is read, for {name} is not set: that is the daemon's own variable")
    identity = config.identity
    enroll_token = identity.enroll_token
    if identity.enabled and enroll_token is None and identity.enroll_token_file is not None:
        enroll_token = _token(identity.enroll_token_file, path, "identity.enroll_token_file", may_be_gone=True)
    token = flags.token or environ.get("LAKESHORE_TOKEN")
    if not token and config.server.token_file is not None:
        token = _token(config.server.token_file, path, "server.token_file")
    return Boot(
        config=config,
        path=path,
        token=token.strip() if token else None,
        enroll_token=enroll_token,
        queue=_queue(flags, environ, config),
        worker_id=flags.worker_id or None,
        log_filter=environ.get("RUST_LOG") or config.log.level,
        warnings=tuple(warnings),
    )


def _parsed(path: Path | None) -> tuple[Config, tuple[str, ...]]:
    return (Config(), ()) if path is None else parse(_text(path), str(path))


def _queue(flags: Flags, environ: Mapping[str, str], config: Config) -> str:
    variable, said = _either(environ, "DREAMLAKE_QUEUE")
    named = flags.queue or said
    if not named:
        return config.daemon.lanes[0] if config.daemon.lanes else DEFAULT_QUEUE
    try:
        return check_subscription(named)
    except NameError_ as error:
        raise ConfigError(f"{'--queue' if flags.queue else variable} — {error}") from None


def _either(environ: Mapping[str, str], name: str) -> tuple[str, str | None]:
    """What the variable says, or the one that stands in for it; and which of them it was."""
    return (name, environ[name]) if environ.get(name) else (_INSTEAD[name], environ.get(_INSTEAD[name]))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a directory that we may not enter: what is in it is not for us
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}; --config names another file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {path}: it is not UTF-8") from None


def _place(written: str, config_path: Path | None) -> Path:
    path = Path(written).expanduser()
    if path.is_absolute() or config_path is None or path.exists():
        return path.absolute()
    return config_path.absolute().parent / path


def _token(written: str, config_path: Path | None, key: str, *, may_be_gone: bool = False) -> str | None:
    """A token from its file, trimmed. A spent enroll token's file may be gone."""
    path = _place(written, config_path)
    where = f"{config_path}: {key} — "
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_TOKEN).strip()
    except FileNotFoundError:
        if may_be_gone:
            return None
        raise ConfigError(f"{where}there is no file {path}; put the token there, or take the key out") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}cannot read {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    if not text:
        raise ConfigError(f"{where}{path} is empty; put the token there, or take the key out")
    if not text.isprintable() or " " in text:
        raise ConfigError(f"{where}{path} holds no token: it must be one word")
    return text
