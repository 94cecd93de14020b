"""How this server reaches the store of one storage: its keys, opened for this use, its region and its endpoint.

Rule: the keys are those of the secret that the storage names, in the storage's own namespace; of kind aws_keypair.
Reference: get-started/storages; S-106, S-238…S-240.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..app import App
from ..aws import DEFAULT_REGION, KIND, Aws, AwsError, Keypair, keypair_of
from ..opening import value_of
from ..records import StorageRow
from ..references import MARKER
from ..structure import bad_field

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One storage and the keys to it."""

    row: StorageRow
    keypair: Keypair
    aws: Aws

    @property
    def region(self) -> str:
        """The one that requests are signed for."""
        return str(self.row.config.get("region") or DEFAULT_REGION)

    @property
    def endpoint(self) -> str | None:
        """Of the store; None is AWS."""
        return self.row.config.get("endpoint") or None

    def client(self, service: str) -> Any:
        """A botocore client, in a thread. AwsError."""
        return self.aws.client(service, self.keypair, region=self.region, endpoint=self.endpoint)

    async def compute(self, work: Callable[[], T]) -> T:
        """`work()` without a network, in a thread. HttpError 422, 501."""
        try:
            return await self.aws.compute(work)
        except AwsError as error:
            raise error.refusal() from error

    async def ask(self, work: Callable[[], T]) -> T:
        """`work()` in one of the namespace's threads. HttpError 422, 501, 502."""
        try:
            return await self.aws.ask(self.row.ns, work)
        except AwsError as error:
            raise error.refusal() from error


def secret_of(row: StorageRow) -> str | None:
    """The name of the secret with its keys."""
    creds = row.config.get("creds")
    return creds.get(MARKER) if isinstance(creds, dict) else None


def access_to(app: App, row: StorageRow, what: str) -> Access:
    """The way to its store, for `what` is to be done. HttpError 422 without keys that do, 409 for a secret that does
    not open.
    """
    secret = secret_of(row)
    if secret is None:
        has = "keeps its keys in its config" if row.config.get("creds") else "has none"
        hint = f"`lakeshore storage update {row.name} --kwarg 'creds.{MARKER}=<secret>'`"
        raise bad_field("config.creds", f"{what} needs a secret of kind {KIND}, and {row.name} {has}", hint=hint)
    text = value_of(app, row.ns, secret, kind=KIND, field="config.creds")
    try:
        return Access(row=row, keypair=keypair_of(text), aws=app.aws)
    except ValueError as error:
        hint = f"`lakeshore secrets rotate {secret}`"
        raise bad_field("config.creds", f"secret {secret!r}: {error}", hint=hint) from error
