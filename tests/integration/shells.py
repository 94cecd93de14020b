"""The real shells, with completion installed as its page says: what Tab offers, and what is on the line after it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALL = {
    "bash": ('eval "$(lakeshore completion bash)"', ".bashrc"),
    "zsh": ('eval "$(lakeshore completion zsh)"', ".zshrc"),
    "fish": ("lakeshore completion fish | source", ".config/fish/config.fish"),
}
# What a test's line is given to after Tab: it writes down the words that the shell makes of it.
SHOW = {
    "bash": 'show() { printf \'%s\\n\' "$@" >"$HOME/shown.part"; mv "$HOME/shown.part" "$HOME/shown"; }',
    "zsh": 'show() { print -rl -- "$@" >"$HOME/shown.part"; command mv "$HOME/shown.part" "$HOME/shown" }',
    "fish": "function show; printf '%s\\n' $argv >$HOME/shown.part; command mv $HOME/shown.part $HOME/shown; end",
}
# zsh tells nobody what it would offer; this writes it down on its way.
CAPTURE = """
compadd() {
    if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)* ]]; then
        local -a __hits
        builtin compadd -A __hits "$@"
        [[ -z $__hits ]] || print -rl -- $__hits >>$HOME/offered
    fi
    builtin compadd "$@"
}
"""


@dataclass
class Shell:
    """One interactive shell on a terminal of its own, in a home of its own."""

    name: str
    home: Path
    pid: int
    terminal: int
    environment: dict[str, str]

    def typed(self, line: str) -> list[str]:
        """The words that run when `line`, with its Tab, is followed by Enter."""
        shown = self.home / "shown"
        shown.unlink(missing_ok=True)
        # Before its prompt the terminal would eat the control characters itself.
        self._wait(lambda: not termios.tcgetattr(self.terminal)[3] & termios.ICANON)
        os.write(self.terminal, f"{line}\x01show \r".encode())
        self._wait(shown.exists)
        return shown.read_text().splitlines()[1:]

    def offered(self, line: str) -> list[str]:
        """The candidates for the word at the end of `line`, sorted."""
        if self.name == "bash":
            program = (
                "source ./script\nCOMP_LINE=$1 COMP_POINT=${#1}\n_lakeshore\n"
                '[[ ${#COMPREPLY[@]} == 0 ]] || printf "%s\\n" "${COMPREPLY[@]}"'
            )
            out = self.run("bash", "--norc", "-c", program, "bash", line)
        elif self.name == "fish":
            out = self.run("fish", "--no-config", "-c", "source ./script; complete -C $argv[1]", line)
        else:
            (self.home / "offered").unlink(missing_ok=True)
            self.typed(f"{line}\t\x15end")
            out = (self.home / "offered").read_text() if (self.home / "offered").exists() else ""
        return sorted({found.split("\t")[0] for found in out.splitlines()})

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            arguments, check=False, capture_output=True, text=True, env=self.environment, cwd=self.home, timeout=60
        )
        assert done.stderr == ""
        return done.stdout

    def _wait(self, there: Callable[[], bool]) -> None:
        deadline, said = time.monotonic() + 60, b""
        while not there():
            if select.select([self.terminal], [], [], 0.02)[0]:
                said += os.read(self.terminal, 1 << 16)
            assert time.monotonic() < deadline, f"{self.name} did not get there; its terminal: {said[-2000:]!r}"


@contextlib.contextmanager
def shell(name: str, home: Path, program: str = "", **environment: str) -> Iterator[Shell]:
    """Start one. `program` is Python that runs in `lakeshore` before its command line does."""
    (home / "bin").mkdir(parents=True)
    (home / ".config" / "fish").mkdir(parents=True, exist_ok=True)
    # Where it is, fish makes no completions of all manuals of the machine, in a process that outlives the shell.
    (home / ".local" / "share" / "fish" / "generated_completions").mkdir(parents=True, exist_ok=True)
    file = home / "bin" / "lakeshore"
    start = f"import sys\nsys.path[:0] = [{str(ROOT)!r}]\n{program}\n"
    start += "from lakeshore.cli.main import main\nsys.exit(main())\n"
    file.write_text(f"#!{sys.executable}\n{start}")
    file.chmod(0o755)
    line, rc = INSTALL[name]
    (home / rc).write_text(f"{line}\n{SHOW[name]}\n" + ("PS1='> '\nbindkey -e\n" + CAPTURE if name == "zsh" else ""))
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("LAKESHORE_", "XDG_", "AWS_", "ZDOT"))
    }
    environment = {
        **kept,
        "HOME": str(home),
        "PATH": f"{home}/bin:{os.environ['PATH']}",
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
        "INPUTRC": "/dev/null",
        **environment,
    }
    command = {"bash": ["bash", "--noprofile", "-i"], "zsh": ["zsh", "-i"], "fish": ["fish", "-i"]}[name]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(home)
        os.execve(shutil.which(command[0]) or command[0], command, environment)
    try:
        termios.tcsetwinsize(terminal, (50, 250))
        started = Shell(name, home, pid, terminal, environment)
        started.typed("started")
        if name != "zsh":
            (home / "script").write_text(started.run("lakeshore", "completion", name))
        yield started
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
