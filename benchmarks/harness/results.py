"""What a run found: per column and key the samples of all repetitions, and per row that failed the reason."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

OURS = "Lakeshore"


@dataclass(slots=True)
class Results:
    """`samples[column][key]`, in the order found."""

    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, column: str, figures: Mapping[str, list[float]], names: Mapping[str, str] | None = None) -> None:
        """Keep figures; with `names` only the ones named there, under their new names."""
        found = self.samples.setdefault(column, {})
        for key, values in figures.items():
            if names is None or key in names:
                found[key if names is None else names[key]] = values

    def median(self, column: str, key: str) -> float | None:
        """The median of all repetitions."""
        values = self.samples.get(column, {}).get(key)
        return statistics.median(values) if values else None

    def spread(self, column: str, key: str) -> float | None:
        """(largest - smallest) / median."""
        values = self.samples.get(column, {}).get(key)
        if not values or not statistics.median(values):
            return None
        return (max(values) - min(values)) / statistics.median(values)
