"""Code repos: where the archive of each pushed commit lies.

Rule: a remote and a commit have one archive in a namespace; who registers it again is told where the first one is.
Reference: get-started/architecture, "CodeRepo"; python-sdk/happy-paths/10; S-244…S-249.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, NotRequired, TypedDict

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..records import CodeRepoRow
from ..render import answer, iso
from ..shapes import Time, like, printable
from .entries import PageQuery, notes_of, page_of
from .stated import route

USUAL_STORAGE: Final = "code-staging"
_COMMIT: Final = like(r"[0-9a-f]{40}|[0-9a-f]{64}", "must be a whole commit hash, in lower case")
_TEXT: Final = printable(1, 1024)


class CodeRepoAdd(TypedDict):
    """`ref` names a snapshot of a tree that had changes."""

    remote: Annotated[str, printable(1, 2048)]
    commit: Annotated[str, _COMMIT]
    archiveKey: Annotated[str, _TEXT]
    storageName: NotRequired[Annotated[str, _TEXT]]
    ref: NotRequired[Annotated[str, _TEXT]]


class CodeRepoQuery(PageQuery, total=False):
    """Of which remote, of which commit."""

    remote: str
    commit: str


class CodeRepoShown(TypedDict):
    """An object of a storage."""

    id: str
    remote: str
    commit: str
    ref: str | None
    archiveKey: str
    storageName: str
    namespace: str
    createdAt: Time
    alreadyArchived: NotRequired[bool]


class CodeRepoList(TypedDict):
    """Newest first; `next` is the cursor of the following page."""

    codeRepos: list[CodeRepoShown]
    next: str | None


@route(CodeRepoList, query=CodeRepoQuery)
async def listing(app: App, request: Request, caller: Caller, *, query: CodeRepoQuery) -> Response:
    """GET /v1/namespaces/:ns/code-repos?remote&commit&limit&cursor: newest first."""
    commit = query.get("commit")
    known = app.records.code_repos.of(caller.ns, query.get("remote"))
    known = [row for row in known if commit in (None, row.commit_hash)]
    rows, following = page_of(query, known, lambda row: row.id)
    return answer(request, {"codeRepos": [_shown(row) for row in rows], "next": following})


@route({200: CodeRepoShown, 201: CodeRepoShown}, body=CodeRepoAdd)
async def register(app: App, request: Request, caller: Caller, *, body: CodeRepoAdd) -> Response:
    """POST /v1/namespaces/:ns/code-repos {remote, commit, archiveKey, storageName?, ref?}

    201; 200 with `alreadyArchived` and the row that is there when the commit has an archive. 422 for a storage that the
    namespace does not have.
    """
    remote, commit, storage = body["remote"], body["commit"], body.get("storageName", USUAL_STORAGE)
    row = CodeRepoRow(
        ns=caller.ns,
        id=app.records.new_id(),
        remote=remote,
        commit_hash=commit,
        ref=body.get("ref"),
        archive_key=body["archiveKey"],
        storage=storage,
        created_at=time.time(),
    )
    repos = app.records.code_repos
    async with repos.turn:
        there = repos.get(caller.ns, remote, commit)
        if there is not None:
            return answer(request, _shown(there) | {"alreadyArchived": True})
        known = app.records.storages.get(caller.ns, storage)
        if known is None or known.deleted_at is not None:
            raise HttpError(
                422,
                f"storageName: no storage {storage!r:.80}",
                field="storageName",
                hint=f"lakeshore storage add {storage} --kind s3 --kwarg bucket=<your-bucket> "
                "--kwarg 'creds.$secret=<aws-creds>'",
            )
        await repos.add(row, *notes_of(app, caller, "code", "register", commit))
    return answer(request, _shown(row) | {"alreadyArchived": False}, status=201)


def _shown(row: CodeRepoRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "remote": row.remote,
        "commit": row.commit_hash,
        "ref": row.ref,
        "archiveKey": row.archive_key,
        "storageName": row.storage,
        "namespace": row.ns,
        "createdAt": iso(row.created_at),
    }
