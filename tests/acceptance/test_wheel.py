"""`pip install dreamlake-lakeshore`: wheels built from the checkout and installed from files alone."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from email.message import Message
from email.parser import Parser
from importlib.metadata import distributions
from pathlib import Path
from zipfile import ZipFile

import pytest

from lakeshore._version import __version__

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "wheels"
MARK = f"-cp{sys.version_info[0]}{sys.version_info[1]}-"


def shared_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers of this run
    (base / name).mkdir(exist_ok=True)
    return base / name


def pip(*arguments: str | Path, python: Path | None = None) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if python is not None:
        command += ["--python", str(python)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_the_checkout(to: Path) -> Path:
    """What a wheel is made of: builds write beside it."""
    for name in ("lakeshore", "dreamlake", "metapackage"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to / name)
    return to


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both of our wheels, built once for all processes."""
    folder = shared_folder(tmp_path_factory, "our-wheels")
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            source = copy_of_the_checkout(folder / "source")
            for project in (source, source / "metapackage"):
                pip("wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", folder, project)
            (folder / "done").touch()
    return folder


def kept_wheels() -> list[Path]:
    """The folders that build_pyz.py keeps for this Python and platform."""
    return [folder for folder in KEPT.glob("*") if MARK in folder.name and _platform() in folder.name]


@pytest.fixture(scope="session")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment into which `dreamlake-lakeshore` was installed, from files alone."""
    needed = kept_wheels()
    if not needed:
        pytest.skip(
            f"the wheels of this Python's third-party code are not in {KEPT}; python3 build_pyz.py fetches them"
        )
    folder = shared_folder(tmp_path_factory, "installed")
    python = folder / "venv" / "bin" / "python"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            venv.create(folder / "venv", with_pip=False, symlinks=True)
            before = run(python, "import dreamlake.lakeshore", fails=True)
            (folder / "before").write_text(before)
            links = [f"--find-links={found}" for found in (wheels, *needed)]
            pip("install", "--no-index", "--no-compile", "--quiet", *links, "dreamlake-lakeshore", python=python)
            (folder / "done").touch()
    return python


def _platform() -> str:
    system, machine = sysconfig.get_platform().split("-")[0], os.uname().machine
    return f"{'darwin' if system.startswith('macos') else system}_{machine}"


def run(python: Path, program: str, *, fails: bool = False) -> str:
    """Run a program from a directory where nothing of ours lies; what it printed, or how it failed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LAKESHORE_"))}
    done = subprocess.run(
        [python, "-c", program], cwd="/", env=clean, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode != 0) is fails, done.stderr
    return done.stderr if fails else done.stdout.strip()


def metadata(wheels: Path, name: str) -> Message:
    (wheel,) = wheels.glob(f"{name}-*.whl")
    with ZipFile(wheel) as opened:
        (path,) = [path for path in opened.namelist() if path.endswith(".dist-info/METADATA")]
        return Parser().parsestr(opened.read(path).decode())


def extra(found: Message, name: str) -> set[str]:
    """What an extra of ours pulls in, other extras followed."""
    pulled: set[str] = set()
    for line in found.get_all("Requires-Dist", []):
        requirement, _, marker = line.partition(";")
        if re.search(rf"""extra == ['"]{name}['"]""", marker) is None:
            continue
        ours = re.fullmatch(r"dreamlake-lakeshore\[(.+)\]", requirement.strip())
        for other in ours[1].split(",") if ours else ():
            pulled |= extra(found, other)
        if ours is None:
            pulled.add(requirement.strip())
    return pulled


@pytest.mark.inventory("P-001", "P-004")
def test_the_documented_name_installs_what_is_imported_by_the_documented_path(installed: Path) -> None:
    program = "import dreamlake.lakeshore as dls, lakeshore; print(dls.udf is lakeshore.udf, lakeshore.__file__)"
    same, where = run(installed, program).split()
    assert same == "True"
    assert where.startswith(str(installed.parents[1]))


@pytest.mark.inventory("P-002")
def test_the_short_import_path_gives_the_same_objects(installed: Path) -> None:
    program = (
        "import dreamlake.lakeshore as dls, lakeshore as short;"
        "print([name for name in dls.__all__ if getattr(dls, name) is not getattr(short, name)])"
    )
    assert run(installed, program) == "[]"


@pytest.mark.inventory("P-003")
def test_the_wheel_holds_our_packages_and_dreamlake_stays_open_to_others(wheels: Path) -> None:
    (wheel,) = wheels.glob("lakeshore-*.whl")
    with ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {name.split("/")[0] for name in names} == {"lakeshore", "dreamlake", f"lakeshore-{__version__}.dist-info"}
    assert "dreamlake/__init__.py" not in names
    assert "dreamlake/lakeshore/daemon/entry.py" in names
    for data in ("lakeshore/py.typed", "lakeshore/plane/statements.sql", "lakeshore/server/records/statements.sql"):
        assert data in names


@pytest.mark.inventory("P-005", "P-015", "P-739")
def test_the_version_is_read_from_the_installed_distribution(installed: Path, wheels: Path) -> None:
    program = (
        "import dreamlake.lakeshore as dls; from importlib.metadata import version as v;"
        "print(v('dreamlake-lakeshore'), v('lakeshore'), dls.__version__)"
    )
    assert run(installed, program).split() == [__version__] * 3
    assert [int(part) for part in re.findall(r"\d+", __version__)[:3]] > [0, 3, 7], "pages ask for 0.3.7 or newer"
    assert f"lakeshore=={__version__}" in metadata(wheels, "dreamlake_lakeshore").get_all("Requires-Dist", [])


@pytest.mark.inventory("P-006")
@pytest.mark.parametrize("name", ["lakeshore", "dreamlake_lakeshore"])
def test_python_311_is_the_oldest(wheels: Path, name: str) -> None:
    assert metadata(wheels, name)["Requires-Python"] == ">=3.11"


@pytest.mark.inventory("P-008")
def test_nothing_that_computes_is_a_dependency(installed: Path) -> None:
    program = (
        "import json; from importlib.metadata import distributions;"
        "print(json.dumps([found.name for found in distributions()]))"
    )
    brought = {name.lower() for name in json.loads(run(installed, program))}
    assert {"lakeshore", "dreamlake-lakeshore", "msgpack", "cloudpickle", "httpx"} <= brought
    assert not brought & {"numpy", "torch", "pillow", "boto3", "trio", "click"}


@pytest.mark.parametrize(
    ("name", "pulls"),
    [
        pytest.param("test", {"pytest", "pytest-xdist"}, marks=pytest.mark.inventory("P-009")),
        pytest.param("dev", {"pytest", "pytest-xdist", "build", "ruff"}, marks=pytest.mark.inventory("P-010")),
        pytest.param("server", set(), marks=pytest.mark.inventory("P-011", "P-741")),
        pytest.param("all", {"pytest", "pytest-xdist", "build", "ruff"}, marks=pytest.mark.inventory("P-012")),
    ],
)
def test_an_extra_of_the_metapackage_pulls_what_is_documented(wheels: Path, name: str, pulls: set[str]) -> None:
    found = metadata(wheels, "dreamlake_lakeshore")
    assert name in found.get_all("Provides-Extra", [])
    assert extra(found, name) == pulls


@pytest.mark.inventory("P-013")
def test_the_extra_for_developers_resolves(installed: Path, wheels: Path) -> None:
    """Beside what the extra names, which is installed where the linters are; else there is nothing to resolve from."""
    for name in sorted(extra(metadata(wheels, "dreamlake_lakeshore"), "dev")):
        if not any(distributions(name=name)):
            pytest.skip(f"{name} is not installed here (requirements/dev.txt has it)")
    links = [f"--find-links={found}" for found in (wheels, *kept_wheels())]
    said = pip("install", "--dry-run", "--no-index", *links, "dreamlake-lakeshore[dev]")
    assert f"Would install dreamlake-lakeshore-{__version__} lakeshore-{__version__}" in said


@pytest.mark.inventory("P-016", "P-017")
@pytest.mark.parametrize(
    ("wanted", "shows"), [("SyncQueue", "<class 'lakeshore.sdk.queues.SyncQueue'>"), ("__version__", __version__)]
)
def test_the_printed_checks_of_an_installation_work(installed: Path, wanted: str, shows: str) -> None:
    assert run(installed, f"import dreamlake.lakeshore as dls; print(dls.{wanted})") == shows


@pytest.mark.inventory("P-018", "P-019")
def test_the_one_command_is_lakeshore(installed: Path) -> None:
    commands = {path.name for path in installed.parent.iterdir()}
    assert "lakeshore" in commands
    assert not [name for name in commands if name.startswith(("lakeshore-", "dreamlake", "nymph"))]
    program = "from importlib.metadata import distribution as d; print(list(d('dreamlake-lakeshore').entry_points))"
    assert run(installed, program) == "[]"


@pytest.mark.inventory("P-020")
def test_without_the_package_python_names_what_is_missing(installed: Path) -> None:
    said = (installed.parents[2] / "before").read_text().strip().splitlines()[-1]
    assert said == "ModuleNotFoundError: No module named 'dreamlake'"


@pytest.mark.inventory("P-021", "P-622")
def test_an_editable_install_runs_the_checkout(tmp_path: Path) -> None:
    source = copy_of_the_checkout(tmp_path / "checkout")
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    flags = ["--no-index", "--no-compile", "--no-deps", "--no-build-isolation", "--ignore-installed", "--quiet"]
    pip("install", *flags, "--prefix", tmp_path / "venv", "-e", source)
    assert run(python, "import dreamlake.lakeshore as dls; print(dls.udf(lambda x: 2 * x)(21))") == "42"
    (source / "lakeshore" / "_version.py").write_text('__version__ = "9.9.9"\n')
    assert run(python, "from lakeshore._version import __version__; print(__version__)") == "9.9.9"
