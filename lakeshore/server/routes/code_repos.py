"""Code repos: where the archive of each pushed commit lies.

Rule: a remote and a commit have one archive in a namespace; who registers it again is told where the first one is.
Reference: get-started/architecture, "CodeRepo"; python-sdk/happy-paths/10; S-244…S-249.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..records import CodeRepoRow
from ..render import answer, iso
from ..structure import bad_field, read_map
from .entries import notes_of, page_of, text_of

USUAL_STORAGE: Final = "code-staging"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LONGEST: Final = 2048


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/code-repos?remote&commit&limit&cursor: newest first."""
    commit = request.query.get("commit")
    known = app.records.code_repos.of(caller.ns, request.query.get("remote"))
    known = [row for row in known if commit in (None, row.commit_hash)]
    rows, following = page_of(request, known, lambda row: row.id)
    return answer(request, {"codeRepos": [_shown(row) for row in rows], "next": following})


async def register(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/code-repos {remote, commit, archiveKey, storageName?, ref?}

    201; 200 with `alreadyArchived` and the row that is there when the commit has an archive. 422 for a storage that the
    namespace does not have.
    """
    body, _encoding = await read_map(request)
    remote, commit = text_of(body.get("remote"), "remote", _LONGEST), body.get("commit")
    if type(commit) is not str or not _COMMIT.fullmatch(commit):
        raise bad_field("commit", "must be a whole commit hash, in lower case")
    ref = body.get("ref")
    storage = text_of(body.get("storageName", USUAL_STORAGE), "storageName")
    row = CodeRepoRow(
        ns=caller.ns,
        id=app.records.new_id(),
        remote=remote,
        commit_hash=commit,
        ref=None if ref is None else text_of(ref, "ref"),
        archive_key=text_of(body.get("archiveKey"), "archiveKey"),
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
