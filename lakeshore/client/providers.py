"""The providers and secrets of a namespace.

What is safe to repeat is sent again when its answer was lost; an `add` is not: it may have been done.
Reference: cli/examples/providers-and-discover; api/auth-and-secrets, "Secrets".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .answers import rows_in
from .api import ApiClient, with_query

Row = dict[str, Any]
_MAKING_S = 240.0
"""What making a machine, and ending it, may take besides."""
_PAGE = 500


class Providers:
    """The providers of the namespace that `api` is for. ApiError 404 for one that is not there."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def all(self, *, hidden: bool = False, deleted: bool = False) -> list[Row]:
        """Rows of the whole org: `{name, namespace, launcher, kwargs, dispatch, hidden, deletedAt, …}`."""
        query = [(name, "true" if said else None) for name, said in (("hidden", hidden), ("deleted", deleted))]
        return list(self._api.pages(self._api.ours("providers"), "providers", query, page=_PAGE))

    def show(self, name: str) -> Row:
        """One row, with references to secrets as they are."""
        return self._api.map("GET", self._api.ours("providers", name))

    def add(
        self,
        name: str,
        launcher: str,
        kwargs: Mapping[str, Any],
        *,
        dispatch: str | None = None,
        tunnel: str | None = None,
    ) -> Row:
        """A new one, with `warnings`. ApiError 409 for a taken name, 422 for a secret or a tunnel that is not there."""
        body: Row = {"name": name, "launcher": launcher, "kwargs": kwargs}
        return self._api.map("POST", self._api.ours("providers"), body=body | _said(dispatch=dispatch, tunnel=tunnel))

    def change(
        self,
        name: str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        dispatch: str | None = None,
        tunnel: str | None = None,
        hidden: bool | None = None,
    ) -> Row:
        """`kwargs` replaces them all; an empty `tunnel` detaches it."""
        body = _said(kwargs=kwargs, dispatch=dispatch, tunnel=tunnel, hidden=hidden)
        return self._api.insist(lambda: self._api.map("PATCH", self._api.ours("providers", name), body=body), [])

    def remove(self, name: str) -> Row:
        """It is kept under another name."""
        return self._api.map("DELETE", self._api.ours("providers", name))

    def restore(self, name: str) -> Row:
        """Bring back one that was removed. ApiError 409 when its name is taken."""
        return self._api.map("POST", self._api.ours("providers", name, "restore"), body={})

    def resolved(self, name: str) -> Row:
        """An SSH or SLURM provider with its key in the place of the reference: for who connects to it now."""
        return self._api.map("POST", self._api.ours("providers", name, "resolve"), body={})

    def instances(self, name: str, *, timeout_s: float) -> list[Row]:
        """What its launcher runs now: `{id, state, name, type, address, since, worker}`, asked by the server, which has
        the secrets for it. ApiError 502 where the provider refuses.
        """
        path = self._api.ours("providers", name, "instances")
        answer = self._api.call("GET", with_query(path, [("timeout_s", f"{timeout_s:g}")]), timeout=timeout_s + 30)
        return rows_in(answer if isinstance(answer, dict) else {}, "instances", f"{self._api.url}{path}")

    def terminate(self, name: str, instance: str) -> Row:
        """End one of EC2 or GCE. ApiError 404, 502."""
        path = self._api.ours("providers", name, "instances", instance)
        return self._api.insist(lambda: self._api.map("DELETE", path), [])

    def test(self, name: str, *, timeout_s: float, script: str | None = None) -> Row:
        """Run a script on a machine that the server makes for it: `{exitCode, stdout, stderr, error, instanceId}`.
        Never sent twice: it is a machine. ApiError 502 when it took longer, or the provider refuses.
        """
        path, body = self._api.ours("providers", name, "test"), _said(timeout_s=timeout_s, script=script)
        answer = self._api.call("POST", path, body=body, timeout=timeout_s + _MAKING_S)
        return answer if isinstance(answer, dict) else {}


class Secrets:
    """The secrets of the namespace that `api` is for. No answer has a value."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def all(self) -> list[Row]:
        """Rows by name: `{name, kind, description, createdAt, updatedAt}`."""
        return self._api.rows(self._api.ours("secrets"), "secrets")

    def show(self, name: str) -> Row:
        """One row. ApiError 404."""
        return self._api.map("GET", self._api.ours("secrets", name))

    def add(self, name: str, kind: str, plaintext: str, *, description: str | None = None) -> Row:
        """A new one. ApiError 409 for a name that is taken."""
        body: Row = {"name": name, "kind": kind, "plaintext": plaintext}
        return self._api.map("POST", self._api.ours("secrets"), body=body | _said(description=description))

    def rotate(self, name: str, plaintext: str) -> Row:
        """Another value. ApiError 404."""
        body = {"plaintext": plaintext}
        return self._api.insist(lambda: self._api.map("PUT", self._api.ours("secrets", name), body=body), [])

    def remove(self, name: str) -> None:
        """Forget one. ApiError 404."""
        self._api.map("DELETE", self._api.ours("secrets", name))


def _said(**values: Any) -> Row:
    return {name: value for name, value in values.items() if value is not None}


class Rekeying:
    """The move of a server's secrets to another key. Needs the admin token."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def some(self, new_key: str | None) -> Row:
        """Go on for a few seconds: `{key, total, resealed, left, failed, done, setSecretsKey}`; ask again while `left`.

        `new_key` is base64; None: one that the server makes, or what was begun. ApiError 409.
        """
        body = {} if new_key is None else {"newKey": new_key}
        return self._api.map("POST", "/v1/admin/secrets/rekey", body=body)
