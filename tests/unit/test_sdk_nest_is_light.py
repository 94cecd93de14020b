"""What a nest has loaded is paid for by each function that is forked from it, as it begins and as it ends."""

from __future__ import annotations

import hashlib
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from lakeshore._sha256 import sha256

HEAVY = ("_hashlib", "_ssl", "ssl", "_bz2", "_lzma", "shutil", "argparse", "gettext", "tempfile", "subprocess")


def test_a_nest_has_loaded_no_library_that_a_job_may_not_need() -> None:
    program = (
        "import sys\n"
        "from lakeshore.sdk.entry import job, warm\n"
        "warm._rehearse()\n"
        "assert job._arguments(['--allow-pickled']) == (None, True, 'minor')\n"
        "assert job._arguments([]) == (None, False, 'minor')\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))\n"
    )
    env = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == []


@given(st.binary(max_size=300))
def test_its_own_digest_is_everybodys(data: bytes) -> None:
    assert sha256(data).hexdigest() == hashlib.sha256(data).hexdigest()
