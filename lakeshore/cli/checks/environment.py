"""The variables of the environment: unknown ones, unusable ones, and those that contradict each other.

No value is shown that may be a secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lakeshore.config.auth import same_server
from lakeshore.config.variables import KNOWN, POLICIES, looks_ours, nearest
from lakeshore.net.target import parse_target
from lakeshore.wire.errors import NameError_
from lakeshore.wire.names import check_namespace

from .finding import Asked, Finding, failure, ok, warning

SUBJECT = "variables"
_DIRECTORIES = ("LAKESHORE_HOME", "LAKESHORE_STATE_DIR", "LAKESHORE_ROOT")


def check(asked: Asked) -> Iterator[Finding]:
    """Everything that begins with LAKESHORE, or was meant to."""
    names = sorted(name for name in asked.environ if name in KNOWN or looks_ours(name))
    environ = {name: asked.environ[name] for name in names}
    troubles = [*_unknown(environ), *_unusable(environ), *_contradictions(environ, asked)]
    known = [name for name in names if name in KNOWN]
    yield from troubles
    if not troubles:
        yield ok(SUBJECT, ", ".join(known) if known else "none is set")


def _unknown(environ: dict[str, str]) -> Iterator[Finding]:
    for name in environ:
        if name not in KNOWN:
            meant = nearest(name)
            yield warning(
                SUBJECT,
                f"{name} is set, and nothing reads it",
                f"was {meant} meant ({KNOWN[meant]})?" if meant else "unset it, or look at the documentation",
            )


def _unusable(environ: dict[str, str]) -> Iterator[Finding]:
    for name in ("LAKESHORE_URL", "LAKESHORE_SERVER"):
        try:
            if environ.get(name):
                parse_target(environ[name])
        except ValueError as error:
            yield failure(SUBJECT, f"{name}: {error}", f"export {name}=http://host:port")
    try:
        if environ.get("LAKESHORE_NAMESPACE"):
            check_namespace(environ["LAKESHORE_NAMESPACE"])
    except NameError_ as error:
        yield failure(SUBJECT, f"LAKESHORE_NAMESPACE: {error}", "use the namespace that your token is for")
    policy = environ.get("LAKESHORE_RUNTIME_POLICY")
    if policy and policy not in POLICIES:
        yield failure(SUBJECT, f"LAKESHORE_RUNTIME_POLICY={policy!r}", f"one of {', '.join(POLICIES)}")
    bundle = environ.get("LAKESHORE_CA_FILE")
    if bundle and not os.access(bundle, os.R_OK):
        yield failure(SUBJECT, f"LAKESHORE_CA_FILE={bundle} cannot be read", "point it at a PEM file, or unset it")
    for name in _DIRECTORIES:
        value = environ.get(name)
        if value and not Path(value).expanduser().is_absolute():
            yield warning(
                SUBJECT, f"{name}={value} is relative: each directory you start from has its own", "give a full path"
            )
    root = environ.get("LAKESHORE_ROOT")
    if root and not Path(root).expanduser().is_dir():
        yield warning(SUBJECT, f"LAKESHORE_ROOT={root} is no directory", "make it, or mount it")


def _contradictions(environ: dict[str, str], asked: Asked) -> Iterator[Finding]:
    url, server = environ.get("LAKESHORE_URL"), environ.get("LAKESHORE_SERVER")
    client, token = environ.get("LAKESHORE_CLIENT_TOKEN"), environ.get("LAKESHORE_TOKEN")
    if url and server and not same_server(url, server):
        yield warning(
            SUBJECT,
            "LAKESHORE_URL and LAKESHORE_SERVER name different servers",
            "calls and commands use LAKESHORE_URL, only `lakeshore auth` the other: unset one",
        )
    if client and token and client != token:
        yield warning(
            SUBJECT, "LAKESHORE_CLIENT_TOKEN and LAKESHORE_TOKEN differ", "LAKESHORE_CLIENT_TOKEN is sent: unset one"
        )
    if (client or token) and environ.get("LAKESHORE_ANON") == "1":
        yield warning(SUBJECT, "a token is set, and LAKESHORE_ANON=1 keeps commands from sending it", "unset one")
    if (client or token) and not url and not asked.url:
        yield warning(
            SUBJECT,
            "a token is set, and no LAKESHORE_URL: calls go to this machine's own queues",
            "export LAKESHORE_URL as well",
        )
    given = url is not None and asked.url is not None
    if given and (client or token) and not same_server(str(url), str(asked.url)):
        yield warning(
            SUBJECT,
            "--url is not LAKESHORE_URL, so the environment's token is not sent there",
            "give --token, or log in",
        )
    if environ.get("LAKESHORE_ENV") == "production":
        for name in ("LAKESHORE_ADMIN_TOKEN", "SECRETS_KEY"):
            if not asked.environ.get(name):
                yield warning(
                    SUBJECT, f"LAKESHORE_ENV=production, and {name} is not set", "`lakeshore serve` refuses to start"
                )
