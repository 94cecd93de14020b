"""What a profile of AWS or a configuration of gcloud on this machine makes: a provider, and a secret that it refers to.

Rules: a key goes to the server as a secret, `aws-<provider>` or `gcp-<provider>`, never as an argument. Where a name is
taken nothing is kept. A profile whose keys expire, or that has none, is registered without keys.
Reference: cli/examples/providers-and-discover, "providers add"; C-090, C-091.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.providers import Providers, Secrets

from ..failures import Failure
from ..output import say
from ..secrets import keep_secret
from ..values import merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is to be kept secret: the argument that refers to it, its kind, how its name begins."""

    argument: str
    kind: str
    begins: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What this machine says; `note` is for the person."""

    launcher: str
    kwargs: Mapping[str, Any]
    key: Key | None = None
    note: str | None = None


def of_aws(name: str) -> Found:
    """A profile of AWS. ToolError."""
    from lakeshore.clouds.aws import profile  # wall: only who names a profile reads it

    one = profile(name)
    region = {} if one.region is None else {"region": one.region}
    if one.keypair is not None:
        key = Key(argument="aws_credentials", kind="aws_keypair", begins="aws", text=one.keypair)
        return Found(launcher="EC2", kwargs=region, key=key)
    why = "its keys expire" if one.kind == "session" else "it has none of its own"
    note = f"profile {name} is registered without keys: {why}"
    return Found(launcher="EC2", kwargs={**region, "profile": name}, note=note)


def of_gcloud(name: str) -> Found:
    """A configuration of gcloud. ToolError."""
    from lakeshore.clouds.gcloud import configuration, key_of  # wall: as above

    one = configuration(name)
    told = {"project_id": one.project, "region": one.region, "zone": one.zone}
    kwargs = {argument: said for argument, said in told.items() if said is not None}
    text = key_of(one)
    if text is None:
        note = f"configuration {name} is registered without a service account: none was activated on this machine"
        return Found(launcher="GCE", kwargs=kwargs, note=note)
    key = Key(argument="service_account_json", kind="gcp_sa_json", begins="gcp", text=text)
    return Found(launcher="GCE", kwargs=kwargs, key=key)


def registered(
    server: ApiClient,
    name: str,
    found: Found,
    more: Mapping[str, Any],
    *,
    dispatch: str | None = None,
    tunnel: str | None = None,
) -> dict[str, Any]:
    """Register it, with the arguments of `more` over its own; the row. Failure, ApiError."""
    ours = Providers(server)
    kwargs = dict(found.kwargs)
    key = found.key
    if key is not None and key.argument not in more:
        if _is_there(ours, name):
            raise Failure(
                f"there is a provider {name} already",
                hint=f"give this one another name, or `lakeshore providers remove {name}` first",
            )
        secret = f"{key.begins}-{name}"
        otherwise = f"`lakeshore secrets remove {secret}`, or give the provider another name"
        keep_secret(Secrets(server), secret, key.kind, key.text, says=f"of provider {name}", otherwise=otherwise)
        kwargs[key.argument] = {"$secret": secret}
        say(f"its key is kept on the server as secret {secret}")
    if found.note is not None:
        say(f"note: {found.note}")
    return ours.add(name, found.launcher, merged(kwargs, more), dispatch=dispatch, tunnel=tunnel)


def _is_there(ours: Providers, name: str) -> bool:
    try:
        ours.show(name)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
