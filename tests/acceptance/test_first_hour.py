"""docs/first-hour.md, line by line, as its reader: with an empty home here, and in a bare Debian. Run with -s to see
how long each step takes.
"""

from __future__ import annotations

import re
from pathlib import Path

from bare_root import enter, make
from follow_page import followed
from one_file import ROOT

PAGE = ROOT / "docs" / "first-hour.md"
TOTAL = re.compile(r" +\d+\.\d s  first-hour.md, a machine's time for all \d+ steps\Z")


def test_a_new_user_gets_from_nothing_to_results_with_an_empty_home(pyz: Path, private_cache: Path) -> None:
    said = followed(PAGE, pyz, private_cache / "user")
    print(f"\n{said}")
    assert TOTAL.search(said)
    assert list((private_cache / "user" / "home" / ".cache" / "lakeshore").iterdir())  # its own, unpacked by the page


def test_a_new_user_gets_from_nothing_to_results_in_a_bare_debian(pyz: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root)
    script = "/srv/lakeshore/tests/acceptance/follow_page.py"
    page = f"/srv/lakeshore/{PAGE.relative_to(ROOT)}"
    follow = ["env", "PYTHONPATH=/srv/lakeshore", "python3", "-B", script, page]
    done = enter(root, pyz, *follow, "/srv/release/lakeshore", "/home/guest/user")
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"\n{done.stdout}")
    assert TOTAL.search(done.stdout.rstrip())
