"""The text that the demo reads: the sources of Python's standard library on this machine.

Where they are stripped, our own sources. Tests are left out. A machine on which one pass would take long reads an even
share of the modules.
"""

from __future__ import annotations

import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SAMPLE = 10
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"})
_FEW = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Modules to read. `found` is how many there are in all."""

    root: Path
    modules: list[Path]
    found: int

    def package(self, module: Path) -> str:
        """The top-level package or module that a file belongs to."""
        return module.relative_to(self.root).with_suffix("").parts[0]

    def packages(self) -> dict[str, list[Path]]:
        """Each package's modules."""
        grouped: dict[str, list[Path]] = {}
        for module in self.modules:
            grouped.setdefault(self.package(module), []).append(module)
        return grouped


def find() -> Corpus:
    """All modules of the standard library, or our own where there are hardly any."""
    own = Path(__file__).resolve().parents[1]
    for root in (Path(sysconfig.get_path("stdlib")), own):
        modules = sorted(path for path in root.rglob("*.py") if _wanted(path.relative_to(root)))
        if len(modules) >= _FEW or root == own:
            break
    return Corpus(root=root, modules=modules, found=len(modules))


def limit(corpus: Corpus, measure: Callable[[str], object], seconds: float) -> Corpus:
    """The share that `measure` gets through in about so many seconds, spread evenly over the modules."""
    modules = corpus.modules
    sample = modules[:: max(len(modules) // SAMPLE, 1)]
    began = time.perf_counter()
    for module in sample:
        measure(str(module))
    spent = time.perf_counter() - began
    read = sum(module.stat().st_size for module in sample)
    whole = spent * sum(module.stat().st_size for module in modules) / max(read, 1)
    if whole <= seconds:
        return corpus
    share = seconds / whole
    kept = [module for at, module in enumerate(modules) if int((at + 1) * share) > int(at * share)]
    return Corpus(root=corpus.root, modules=kept or modules[:1], found=corpus.found)


def _wanted(path: Path) -> bool:
    return not _LEFT_OUT.intersection(path.parts) and not any(part.startswith(".") for part in path.parts)
