"""What of this server's own account launches may use. Nothing, unless the operator says so.

    LAKESHORE_OWN_ACCESS    words, with commas between them
        slurm    this machine's sbatch: jobs of the server's account
        kube     this account's kubectl configuration, or the service account of the pod that the server is

Whoever may add a provider chooses what it leads to; with the server's own rights he would have them, too.
"""

from __future__ import annotations

import os

from ..http import HttpError

VARIABLE = "LAKESHORE_OWN_ACCESS"
KNOWN = ("slurm", "kube")


def need(what: str, why: str, otherwise: str) -> None:
    """HttpError 403 where it is not allowed; `why` is what would be used, `otherwise` what needs no permission."""
    said = {word.strip() for word in os.environ.get(VARIABLE, "").split(",")}
    if what not in said:
        raise HttpError(
            403, why, field="provider", hint=f"{otherwise}; or the operator starts the server with {VARIABLE}={what}"
        )
