"""What a Python older than 3.11 does with Lakeshore: hands over to a newer one on PATH, or says what to install.

Rule: any Python since 2.7 can parse and run this file.
"""

import os
import subprocess
import sys

NAMES = ("python3.15", "python3.14", "python3.13", "python3.12", "python3.11", "python3")


def find_python():  # type: () -> str
    """A Python >= 3.11 on PATH that really starts (a version manager's shim may not). Exits, saying what it found."""
    found = ["{} is {}.{}".format(sys.executable, *sys.version_info[:2])]
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    with open(os.devnull, "r+") as nowhere:
        for name in NAMES:
            for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
                path = os.path.join(folder, name)
                if not os.access(path, os.X_OK) or os.path.isdir(path):
                    continue
                try:
                    code = subprocess.call([path, "-c", probe], stdout=nowhere, stderr=nowhere)  # noqa: S603
                except OSError:
                    code = 127
                if code == 0:
                    return path
                found.append(path + (" is too old" if code == 1 else " does not start"))
    sys.stderr.write(
        "lakeshore needs Python 3.11 or newer. Found: {}. Looked for {} on PATH.\n"
        "Install one (Debian, Ubuntu: apt install python3.11; Fedora, RHEL: dnf install python3.11; macOS: brew "
        "install python) and start lakeshore again.\n".format("; ".join(found), ", ".join(NAMES))
    )
    sys.exit(2)


def hand_over(arguments):  # type: (list[str]) -> None
    """Become a newer Python with the very same arguments; does not return."""
    python = find_python()
    os.execv(python, [python] + arguments)  # noqa: RUF005, S606  (any Python parses it)
