"""Processors, memory and graphics cards, from what the system says of them. Pure; what cannot be read is None.

Reference: nymph/protocol, "Hello", `versions.cpu` and `versions.gpu`; N-088, N-089.
"""

from __future__ import annotations

import csv
import re
from typing import Any, Final

_CUDA: Final = re.compile(r"CUDA Version:\s*([0-9][0-9.]*)")
_NOT_SAID: Final = frozenset({"", "[n/a]", "n/a", "[not supported]", "[unknown error]"})


def cpu_of(cpuinfo: str) -> dict[str, Any] | None:
    """{model, cores} from /proc/cpuinfo; `cores` counts what the kernel schedules on. ARM names no model."""
    cores = 0
    said: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            cores += name.strip() == "processor"
            said.setdefault(name.strip(), value.strip())
    if not cores:
        return None
    # "cpu model" on MIPS, "Model" on a Raspberry Pi, "uarch" on RISC-V
    names = (said.get(name) for name in ("model name", "cpu model", "Model", "Hardware", "uarch"))
    return {"model": next((name for name in names if name), None), "cores": cores}


def cpu_of_darwin(sysctl: str) -> dict[str, Any] | None:
    """The same from `sysctl -n machdep.cpu.brand_string hw.logicalcpu hw.memsize` on macOS."""
    lines = sysctl.splitlines()
    cores = _number(lines[1]) if len(lines) > 1 else None
    return None if cores is None else {"model": lines[0].strip() or None, "cores": cores}


def memory_of_darwin(sysctl: str) -> int | None:
    """The bytes of memory in the same output."""
    lines = sysctl.splitlines()
    return _number(lines[2]) if len(lines) > 2 else None


def memory_of(meminfo: str) -> int | None:
    """The bytes of memory in /proc/meminfo."""
    found = re.search(r"^MemTotal:\s+([0-9]{1,18}) kB$", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def memory_limit_of(*texts: str | None) -> int | None:
    """The smallest limit that the control groups' files name, in bytes; None for none (`max`, or the kernel's most)."""
    found = (_number(text) for text in texts if text is not None)
    return min((limit for limit in found if limit is not None and limit < 1 << 60), default=None)


def _number(text: str) -> int | None:
    said = text.strip()
    return int(said) if re.fullmatch("[0-9]{1,20}", said) else None


def gpus_of(query: str | None, header: str | None) -> tuple[dict[str, Any], ...] | None:
    """[{name, driver, cuda}] from `nvidia-smi --query-gpu=name,driver_version --format=csv,noheader` and from the
    head of plain `nvidia-smi`, where alone the CUDA version stands. None where there is no card.
    """
    if query is None:
        return None
    cuda = _CUDA.search(header or "")
    cards = []
    for row in csv.reader(query.splitlines(), skipinitialspace=True):
        if len(row) == 2 and row[0].strip() and row[0].strip() != "name":
            driver = row[1].strip()
            cards.append(
                {
                    "name": row[0].strip(),
                    "driver": None if driver.lower() in _NOT_SAID else driver,
                    "cuda": cuda[1] if cuda else None,
                }
            )
    return tuple(cards) or None
