"""One-file programs for the tests of updates: this checkout, in a file that can be replaced, with its own version."""

from __future__ import annotations

import io
import secrets
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_MAIN = """
import sys
sys.path.insert(0, {root!r})
import lakeshore._version as version
version.__version__ = {version!r}
from lakeshore import _self
_self.started_from(sys.argv[0])
{before}
from lakeshore.cli.main import main
sys.exit(main())
"""
DIES = "if 'nymph' in sys.argv[1:]: sys.exit('it dies at once')"
IS_BROKEN = "sys.exit('it does not start')"


def program(version: str, before: str = "") -> bytes:
    """A file such as ours; `before` runs first in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("__main__.py", _MAIN.format(root=str(ROOT), version=version, before=before))
        made.writestr("lakeshore/_version.py", f'__version__ = "{version}"\n')
        made.writestr("salt", secrets.token_bytes(16))
    return f"#!{sys.executable}\n".encode() + file.getvalue()


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o755)
    return path
