"""`07_sweep.py` is killed in the middle and started again: every point is computed once, and the table is whole."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from pathlib import Path

from example_places import EXAMPLES, needs_scikit_learn
from snippets.processes import Place, clean, daemon, processes, serving

SWEEP = str(EXAMPLES / "07_sweep.py")
POINTS = 24
KILLED_AFTER = 6
RANKED = re.compile(r" +(\d+) +([\d.]+) +([\d.]+) +(0\.\d{4}) +\d+\.\d\d(  already done)?")

# In the workers alone: each time that a classifier learns, a line says so. It is a plug of Python's, not of ours.
COUNTING = """\
import os, sys
if "dreamlake.lakeshore.daemon" in sys.orig_argv:
    from sklearn.svm import SVC
    fit = SVC.fit
    def counted(self, *args, **options):
        with open(os.environ["COUNTED"], "a") as file:
            file.write(f"{self.C} {self.gamma}\\n")
        return fit(self, *args, **options)
    SVC.fit = counted
"""


def user(directory: Path, lakeshore: str, **more: str) -> Place:
    """A user whose workers count what they compute, in `counted`."""
    needs_scikit_learn()
    (directory / "plug").mkdir()
    (directory / "plug" / "sitecustomize.py").write_text(COUNTING, "utf-8")
    path = f"{lakeshore}:{directory / 'plug'}"
    env = clean(path=path, HOME=str(directory), COUNTED=str(directory / "counted"), **more)
    return Place(directory=directory, env=env)


def without_scikit_learn(directory: Path, path: str) -> Place:
    """A user who has not installed it."""
    (directory / "bare").mkdir()
    (directory / "bare" / "sitecustomize.py").write_text("import sys\nsys.modules['sklearn'] = None\n", "utf-8")
    return Place(directory=directory, env=clean(path=f"{path}:{directory / 'bare'}", HOME=str(directory)))


def killed(place: Place) -> None:
    """Start the sweep, and kill it with -9 as soon as it has told some results."""
    with place.started(place.python, SWEEP) as script:
        assert script.stdout is not None
        for line in script.stdout:
            if line.startswith(f"  {KILLED_AFTER:2} of {POINTS}"):
                script.send_signal(signal.SIGKILL)
                break
        assert script.wait(60) == -signal.SIGKILL


def swept(place: Place) -> list[tuple[float, float, float, bool]]:
    """Run the sweep to its end: the rows of its table as (c, gamma, accuracy, was done already)."""
    done = place.run(SWEEP, timeout_s=240)
    assert done.returncode == 0, done.stderr
    told = re.search(rf"^{POINTS} points, (\d+) already done$", done.stdout, re.MULTILINE)
    assert told, done.stdout
    rows = [found.groups() for found in map(RANKED.fullmatch, done.stdout.splitlines()) if found]
    assert [int(row[0]) for row in rows] == list(range(1, POINTS + 1)), done.stdout
    table = [(float(c), float(gamma), float(accuracy), note is not None) for _, c, gamma, accuracy, note in rows]
    assert sum(was_done for *_, was_done in table) == int(told[1])
    return table


def is_whole(table: list[tuple[float, float, float, bool]], directory: Path) -> None:
    accuracies = [accuracy for _, _, accuracy, _ in table]
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[0] > 0.97, "the digits are easy to learn"
    assert sum(was_done for *_, was_done in table) >= KILLED_AFTER
    computed = Counter((directory / "counted").read_text().splitlines())
    assert computed == {f"{c} {gamma}": 1 for c, gamma, _, _ in table}, "each point once, whatever was killed"
    assert len(computed) == POINTS


def test_a_sweep_whose_points_failed_and_whose_script_is_killed_goes_on_with_the_same_server(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with serving(tmp_path / "server") as served:
        place = user(tmp_path, f"{EXAMPLES.parent}:{EXAMPLES}", LAKESHORE_URL=served.url)
        worker = daemon(place.python, "sweep")  # as it is: nothing by value
        with without_scikit_learn(tmp_path, f"{EXAMPLES.parent}:{EXAMPLES}").working(*worker, "--url", served.url):
            failed = place.run(SWEEP)
        assert failed.returncode == 1
        assert "No module named 'sklearn" in failed.stderr.splitlines()[-1]
        with place.working(*worker), place.working(*worker):
            killed(place)
            is_whole(swept(place), tmp_path)


def test_a_sweep_that_brings_its_own_server_leaves_nothing_running_when_it_is_killed_and_goes_on_from_its_files(
    tmp_path: Path, pyz: Path, warm_cache: Path
) -> None:
    place = user(tmp_path, str(pyz), XDG_CACHE_HOME=str(warm_cache))
    killed(place)
    until = time.monotonic() + 60
    while processes(tmp_path / "sweep-state") and time.monotonic() < until:
        time.sleep(0.05)
    assert processes(tmp_path / "sweep-state") == []
    is_whole(swept(place), tmp_path)
    assert processes(tmp_path / "sweep-state") == []


def test_a_sweep_without_scikit_learn_says_what_to_install(tmp_path: Path) -> None:
    done = without_scikit_learn(tmp_path, str(EXAMPLES.parent)).run(SWEEP)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install scikit-learn" in done.stderr
