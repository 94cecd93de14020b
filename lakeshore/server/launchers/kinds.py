"""What a provider's arguments may be, by its launcher, and what of them is worth a word.

Rules: a key that a launcher knows has its type, and who gives another is told which field; any other key is kept as it
is, for modes and launchers that know more. null is absent. A secret may stand wherever a text does. Nothing is needed:
a mode may give what a provider leaves out.
Reference: get-started/architecture, "Provider"; cli/examples/providers-and-discover; S-124, S-138…S-152.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..references import MARKER
from ..structure import bad_field

DISPATCHES: Final = ("direct", "daemon")
_SPACES: Final = re.compile(r"[\s\x00-\x1f\x7f]")
_LONGEST: Final = 1000

Check = Callable[[Any, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of provider. `dispatch`: what it is unless a provider says otherwise. `secrets`: the kind of secret that
    a key needs. `launches`: it makes machines, which can be listed and ended. `where`: keys that lead there, which are
    no launch's to say.
    """

    dispatch: str
    keys: Mapping[str, Check]
    secrets: Mapping[str, str]
    launches: bool
    where: tuple[str, ...] = ()


def _text(value: Any, field: str) -> None:
    if type(value) is not str or not value.strip() or len(value) > _LONGEST:
        raise bad_field(field, f"must be a text of 1 to {_LONGEST} characters")


def _word(value: Any, field: str) -> None:
    _text(value, field)
    if _SPACES.search(value):
        raise bad_field(field, "must be a text without spaces")


def _port(value: Any, field: str) -> None:
    number = int(value) if type(value) is str and value.isdecimal() and len(value) < 6 else value
    if type(number) is not int or not 0 < number < 65_536:
        raise bad_field(field, "must be an integer from 1 to 65535")


def _size(value: Any, field: str) -> None:
    if type(value) not in (int, float) or not 0 < value < 1e6:
        raise bad_field(field, "must be a number above 0")


def _texts(value: Any, field: str) -> None:
    if type(value) is not list:
        raise bad_field(field, "must be an array of texts")
    for index, one in enumerate(value):
        _text(one, f"{field}[{index}]")


def _key(value: Any, field: str) -> None:
    if type(value) is not str or not value:
        raise bad_field(field, 'must be {"$secret": "<name>"}, or the private key itself')


def _aws(value: Any, field: str) -> None:
    if type(value) is not dict:
        raise bad_field(field, 'must be {"$secret": "<name>"}, or a map of accessKeyId and secretAccessKey')
    for name in ("accessKeyId", "secretAccessKey"):
        if not _is_secret(value.get(name)):
            _word(value.get(name), f"{field}.{name}")


def _account(value: Any, field: str) -> None:
    if type(value) not in (dict, str) or not value:
        raise bad_field(field, 'must be {"$secret": "<name>"}, or the JSON of a service account')


_OVER_SSH: Final = {
    **dict.fromkeys(("ip", "host", "username", "user", "proxy_jump"), _word),
    **dict.fromkeys(("pem", "identity_file"), _text),
    "port": _port,
    "ssh_key": _key,
}
_OVER_SSH_SECRETS: Final = {"ssh_key": "ssh_key"}
LAUNCHERS: Final = {
    "SSH": Kind(
        dispatch="direct",
        keys=_OVER_SSH,
        secrets=_OVER_SSH_SECRETS,
        launches=False,
        where=tuple(_OVER_SSH),
    ),
    "SLURM": Kind(
        dispatch="direct",
        keys={**_OVER_SSH, **dict.fromkeys(("partition", "account", "qos"), _word)},
        secrets=_OVER_SSH_SECRETS,
        launches=False,
        where=tuple(_OVER_SSH),
    ),
    "EC2": Kind(
        dispatch="daemon",
        keys={
            **dict.fromkeys(("region", "instance_type", "image_id", "ami", "key_name", "subnet_id"), _word),
            "profile": _text,
            "aws_credentials": _aws,
            "root_volume_size_gb": _size,
            "security_group_ids": _texts,
        },
        secrets={"aws_credentials": "aws_keypair"},
        launches=True,
    ),
    "GCE": Kind(
        dispatch="daemon",
        keys={
            **dict.fromkeys(("project_id", "region", "zone", "machine_type"), _word),
            "image": _text,
            "service_account_json": _account,
            "root_volume_size_gb": _size,
        },
        secrets={"service_account_json": "gcp_sa_json"},
        launches=True,
    ),
    "Kube": Kind(
        dispatch="direct",
        keys={"context": _text, "namespace": _word, "image": _word, "kubeconfig": _text},
        secrets={},
        launches=True,
        where=("kubeconfig", "context", "namespace"),
    ),
}
"""By its name, as it is written in requests."""


def check_kwargs(launcher: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse what a launcher cannot use. HttpError 422 that names the field."""
    said = kwargs.get("dispatch")
    if said is not None and said not in DISPATCHES:
        raise bad_field("kwargs.dispatch", f"must be one of {', '.join(DISPATCHES)}")
    for name, check in LAUNCHERS[launcher].keys.items():
        value = kwargs.get(name)
        if value is not None and not _is_secret(value):
            check(value, f"kwargs.{name}")


def warnings_of(launcher: str, kwargs: Mapping[str, Any], *, kind_of: Callable[[str], str | None]) -> list[str]:
    """What is allowed, and yet probably not meant. `kind_of` tells the kind of a secret."""
    return [*_plaintext(launcher, kwargs), *_other_kinds(launcher, kwargs, kind_of)]


def _plaintext(launcher: str, kwargs: Mapping[str, Any]) -> Iterator[str]:
    for name, kind in LAUNCHERS[launcher].secrets.items():
        value = kwargs.get(name)
        inner = value.get("secretAccessKey") if kind == "aws_keypair" and isinstance(value, dict) else value
        if inner is not None and not _is_secret(value) and not _is_secret(inner):
            yield (
                f"kwargs.{name}: everybody who may read the providers of this org reads it; keep it as a secret: "
                f"`lakeshore secrets add <name> --kind {kind}`, and refer to it with "
                f"`--kwarg {name}.{MARKER}=<name>`"
            )


def _other_kinds(launcher: str, kwargs: Mapping[str, Any], kind_of: Callable[[str], str | None]) -> Iterator[str]:
    for name, kind in LAUNCHERS[launcher].secrets.items():
        value = kwargs.get(name)
        if isinstance(value, dict) and _is_secret(value):
            found = kind_of(str(value[MARKER]))
            if found is not None and found != kind:
                yield f"kwargs.{name}: secret {value[MARKER]!r} is of kind {found}, and {launcher} needs {kind}"


def _is_secret(value: Any) -> bool:
    return isinstance(value, dict) and MARKER in value
