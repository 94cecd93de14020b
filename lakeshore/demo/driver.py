"""The demo's show: fan out over the corpus, watch a stream, compare with a direct computation.

It uses the SDK exactly as a program does: decorated functions, `HttpDispatch`, `submit`, `SyncQueue.result`, `.stream`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lakeshore import HttpDispatch, SyncQueue
from lakeshore.cli.failures import Failure

from .corpus import Corpus, find, limit
from .functions import measure, survey, who
from .stage import Stage

PASS_S = 2.5
"""About how long one pass over the text may take on one core."""
WAIT_S = 60.0
LOOK_S = 1.0
LARGEST = 10


class Show(Protocol):
    """Who tells the person what happens."""

    def say(self, text: str) -> None:
        """A line."""

    def progress(self, title: str, total: int) -> Any:
        """A context manager whose value is called after each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What was found in one package."""

    name: str
    modules: int
    lines: int
    words: int
    definitions: int
    names: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that the demo found out. Times in seconds; `one_worker` is None when there was only one anyway."""

    corpus: Corpus
    url: str
    workers: int
    packages: list[Package]
    streamed: list[dict[str, Any]]
    matches: bool
    all_workers: float
    one_worker: float | None
    here: float


def perform(stage: Stage, show: Show, *, workers: int) -> Outcome:
    """Run the demo on a stage that has nothing on it yet. Failure when anything does not end as it must."""
    corpus = limit(find(), measure.local, PASS_S)
    show.say(f"text: {len(corpus.modules)} of {corpus.found} modules in {corpus.root}")
    stage.serve()
    show.say(f"control plane: {stage.url}")
    stage.work("demo", workers)
    plane = HttpDispatch(stage.url)
    queue = SyncQueue("demo", dispatch=plane)
    try:
        pids = _gathered(stage, queue, workers)
        show.say(f"workers: {', '.join(f'process {pid}' for pid in sorted(pids))}")
        results, all_workers = _fan_out(stage, show, queue, corpus, f"{workers} worker{'s' * (workers > 1)}")
        packages = _grouped(corpus, results)
        streamed = list(_watched(show, queue, corpus, packages[:LARGEST]))
        one_worker = None
        if workers > 1:
            stage.dismiss(but=1)
            again, one_worker = _fan_out(stage, show, queue, corpus, "1 worker")
            if again != results:
                raise Failure("one worker found something else than several did: please report this")
    finally:
        plane.close()
    began = time.perf_counter()
    direct = []
    with show.progress("the same, here", len(corpus.modules)) as step:
        for module in corpus.modules:
            direct.append(measure.local(str(module)))
            step()
    here = time.perf_counter() - began
    largest = [{"package": p.name, "lines": p.lines, "definitions": p.definitions} for p in packages[:LARGEST]]
    return Outcome(
        corpus=corpus,
        url=stage.url,
        workers=workers,
        packages=packages,
        streamed=streamed,
        matches=direct == results and streamed == largest,
        all_workers=all_workers,
        one_worker=one_worker,
        here=here,
    )


def _gathered(stage: Stage, queue: SyncQueue, count: int) -> set[int]:
    """The workers' processes, once each has run something: nobody's start is part of a measured time."""
    pids: set[int] = set()
    until = time.monotonic() + WAIT_S
    while len(pids) < count:
        stage.check()
        if time.monotonic() > until:
            raise Failure(f"{len(pids)} of {count} workers answered within {WAIT_S:g} s")
        pids.update(_results(stage, queue, [who.submit(_dispatch=queue.dispatch) for _ in range(2 * count)]))
    return pids


def _fan_out(
    stage: Stage, show: Show, queue: SyncQueue, corpus: Corpus, title: str
) -> tuple[list[dict[str, Any]], float]:
    """Each module's numbers, in the corpus's order, and the seconds from the first submit to the last result."""
    began = time.perf_counter()
    results = []
    with show.progress(title, len(corpus.modules)) as step:
        ids = [measure.submit(str(module), _dispatch=queue.dispatch) for module in corpus.modules]
        for result in _results(stage, queue, ids):
            results.append(result)
            step()
    return results, time.perf_counter() - began


def _results(stage: Stage, queue: SyncQueue, ids: list[str]) -> Iterator[Any]:
    """Results in the order of the ids. Failure as soon as a process has ended that should run."""
    for invocation in ids:
        until = time.monotonic() + WAIT_S
        while True:
            try:
                yield queue.result(invocation, timeout=LOOK_S)
                break
            except TimeoutError:
                stage.check()
                if time.monotonic() > until:
                    raise


def _watched(show: Show, queue: SyncQueue, corpus: Corpus, packages: list[Package]) -> Iterator[dict[str, Any]]:
    """The largest packages' numbers, one by one, as the worker counts them."""
    modules = corpus.packages()
    asked = {package.name: [str(path) for path in modules[package.name]] for package in packages}
    show.say("a stream, as it arrives:")
    began = time.perf_counter()
    invocation = survey.submit(asked, _dispatch=queue.dispatch)
    for part in queue.stream(invocation, timeout=WAIT_S):
        numbers = f"{part['lines']:>9,} lines {part['definitions']:>7,} definitions"
        show.say(f"  {time.perf_counter() - began:5.2f} s  {part['package']:<16}{numbers}")
        yield part


def _grouped(corpus: Corpus, results: list[dict[str, Any]]) -> list[Package]:
    """Results by package, the largest first."""
    by_module: dict[Path, dict[str, Any]] = dict(zip(corpus.modules, results, strict=True))
    packages = []
    for name, modules in corpus.packages().items():
        parts = [by_module[module] for module in modules]
        names: Counter[str] = Counter()
        for part in parts:
            names.update(part["names"])
        packages.append(
            Package(
                name=name,
                modules=len(modules),
                lines=sum(part["lines"] for part in parts),
                words=sum(part["words"] for part in parts),
                definitions=sum(part["definitions"] for part in parts),
                names=names,
            )
        )
    return sorted(packages, key=lambda package: (-package.lines, package.name))
