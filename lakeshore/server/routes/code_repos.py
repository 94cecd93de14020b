"""Code repos: where the archive of each pushed commit lies; and the archives that the control plane keeps itself.

Rule: a remote and a commit have one archive in a namespace; who registers it again is told where the first one is.
Who may submit may send one, who may run a call may fetch one, both in their own namespace.
Reference: get-started/architecture, "CodeRepo"; python-sdk/happy-paths/10; S-244…S-249.
"""

from __future__ import annotations

import time
from typing import Annotated, Final, NotRequired, TypedDict

import trio

from ...archives.stamp import USUAL_STORAGE, sha256_of
from ..app import App
from ..auth import Caller
from ..code_archives import OWN
from ..http import HttpError, Request, Response, StreamResponse
from ..records import CodeRepoRow
from ..render import answer, iso
from ..shapes import Time, like, printable
from .answers import RAW
from .blobs import send_file
from .entries import PageQuery, notes_of, page_of
from .stated import route

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


class CodeArchiveOf(TypedDict):
    """Which commit's it is. `sha256` of the body, where it is known; `ref` names a snapshot of a tree with changes."""

    remote: Annotated[str, printable(1, 2048)]
    commit: Annotated[str, _COMMIT]
    sha256: NotRequired[Annotated[str, like("[0-9a-f]{64}", "must be 64 hex digits, in lower case")]]
    ref: NotRequired[Annotated[str, _TEXT]]


class CodeRepoShown(TypedDict):
    """`storageName` is null for an archive that the control plane keeps itself; `sha256` is null where only who sent it
    knows it.
    """

    id: str
    remote: str
    commit: str
    ref: str | None
    archiveKey: str
    storageName: str | None
    sha256: str | None
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
    if commit is not None:  # who pushes asks so, and goes by the answer
        known = [row for row in known if await trio.to_thread.run_sync(app.code.used, row)]
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
            return answer(request, {**_shown(there), "alreadyArchived": True})
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
    return answer(request, {**_shown(row), "alreadyArchived": False}, status=201)


@route(CodeRepoShown, body=RAW, query=CodeArchiveOf, refuses=(409, 413))
async def keep(app: App, request: Request, caller: Caller, *, query: CodeArchiveOf) -> Response:
    """POST /v1/namespaces/:ns/code-archives?remote=&commit=&sha256=&ref=: the body is the archive, a .tar.gz.

    With `alreadyArchived` the row that is there when the commit has an archive.
    """
    most = app.blobs.sizes.most_bytes
    size = request.content_length
    if size is not None and size > most:
        hint = "keep data out of git, or out of the archive with `export-ignore` in .gitattributes"
        raise HttpError(413, f"an archive of {size} bytes is over the limit of {most} bytes", hint=hint, limit=most)
    row, is_new = await app.code.receive(
        request.stream(most),
        ns=caller.ns,
        remote=query["remote"],
        commit=query["commit"],
        ref=query.get("ref"),
        sha256=query.get("sha256"),
        notes=notes_of(app, caller, "code", "register", query["commit"]),
    )
    return answer(request, {**_shown(row), "alreadyArchived": not is_new})


@route({200: RAW, 206: RAW}, refuses=(404, 416))
async def fetch(app: App, request: Request, caller: Caller) -> Response | StreamResponse:
    """GET /v1/namespaces/:ns/code-archives/<archiveKey>: the archive that the control plane keeps under this key."""
    key = request.params["key"]
    row = app.code.find(caller.ns, key)
    path = None if row is None else app.code.path(row)
    if row is None or path is None or not await trio.to_thread.run_sync(app.code.used, row):
        hint = "it was removed, or is another namespace's: push the commit again with `lakeshore code push`"
        raise HttpError(404, f"no archive {key!r:.120}", field="key", hint=hint)
    return await send_file(request, path, "archive", size=None, sha256=sha256_of(key))


@route(CodeRepoShown, refuses=(404,))
async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/code-repos/:id: forget an archive, and delete it where the control plane keeps it."""
    wanted = request.params["id"]
    row = next((row for row in app.records.code_repos.of(caller.ns) if row.id == wanted), None)
    if row is None:
        raise HttpError(404, f"no archive {wanted!r:.80}", field="id", hint="`lakeshore code list` shows them")
    await app.code.remove(row, *notes_of(app, caller, "code", "remove", row.commit_hash))
    return answer(request, _shown(row))


def _shown(row: CodeRepoRow) -> CodeRepoShown:
    return {
        "id": row.id,
        "remote": row.remote,
        "commit": row.commit_hash,
        "ref": row.ref,
        "archiveKey": row.archive_key,
        "storageName": None if row.storage == OWN else row.storage,
        "sha256": sha256_of(row.archive_key),
        "namespace": row.ns,
        "createdAt": iso(row.created_at),
    }
