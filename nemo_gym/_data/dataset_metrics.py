# SPDX-License-Identifier: Apache-2.0
"""What the rows of a dataset look like in numbers: tools, words, turns, temperatures, and every field of their own.

Rows are added one by one and not kept. Reading and checking them, and comparing the result with a file that was written
earlier, is left to the tools that prepare data.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym._metrics.describe import describe, finite

EXAMPLES = "Number of examples"
TOOLS = "Number of tools"
WORDS = "Json-dumped number of words (proxy for token count)"
TURNS = "Number of turns"
TEMPERATURE = "Temperature"

_CREATE_PARAMS = "responses_create_params"
_NOT_MEASURED = frozenset({_CREATE_PARAMS, "response"})
_SLICE_FIELDS = ("start_idx", "end_idx")


def measure(rows: Iterable[Mapping[str, Any]], *, repeats: int = 1) -> dict[str, Any]:
    """The metrics of `rows`, each of them counted `repeats` times."""
    metrics = DatasetMetrics()
    for row in rows:
        metrics.add(row, repeats=repeats)
    return metrics.summary()


def metrics_file(dataset: DatasetConfig | BenchmarkDatasetConfig, metrics: Mapping[str, Any]) -> str:
    """The text of a metrics file: the dataset as its config describes it, then its metrics."""
    described = dataset.model_dump(mode="json")
    for name in _SLICE_FIELDS:
        if described.get(name) is None:
            described.pop(name, None)
    return json.dumps({**described, **metrics}, indent=4) + "\n"


class DatasetMetrics:
    """The metrics of the rows added so far."""

    def __init__(self) -> None:
        self._examples = 0
        self._params = {name: _Values() for name in (TOOLS, WORDS, TURNS, TEMPERATURE)}
        self._fields: dict[str, _Values] = {}

    def add(self, row: Mapping[str, Any], *, repeats: int = 1) -> None:
        """Count a row that is known to be valid."""
        self._examples += repeats
        for name, value in _measured_params(row.get(_CREATE_PARAMS) or {}).items():
            self._params[name].add(value, repeats)
        for name, value in row.items():
            if name not in _NOT_MEASURED:
                self._add_field(name, value, repeats)

    def summary(self) -> dict[str, Any]:
        """The metrics under the names they have in a metrics file, in its order."""
        params = {name: values.statistics() for name, values in self._params.items()}
        fields = {name: values.summary() for name, values in self._fields.items()}
        return {EXAMPLES: self._examples, **params, **fields}

    def _add_field(self, name: str, value: Any, repeats: int) -> None:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) or finite(one) is not None:
                self._fields.setdefault(name, _Values()).add(one, repeats)


@dataclass
class _Values:
    """The values of one field: numbers in full, texts as digests, so that long ones cost no memory."""

    numbers: "array[float]" = field(default_factory=lambda: array("d"))
    digests: set[bytes] = field(default_factory=set)
    texts: int = 0

    def add(self, value: str | float | None, repeats: int) -> None:
        if isinstance(value, str):
            self.digests.add(hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).digest())
            self.texts += repeats
        elif (number := finite(value)) is not None:
            self.numbers.extend([number] * repeats)

    def summary(self) -> dict[str, Any]:
        """Statistics of a field that holds numbers; if there is a single text among them, how many differ."""
        if not self.texts:
            return self.statistics()
        return {
            "unique_count": len(self.digests) + len(set(self.numbers)),
            "total_count": self.texts + len(self.numbers),
        }

    def statistics(self) -> dict[str, Any]:
        """Count, average, extremes and sample standard deviation; zeros if there are no numbers."""
        described = describe(self.numbers) if self.numbers else dict.fromkeys(("mean", "min", "max", "std"), 0.0)
        return {
            "Total # non-null values": len(self.numbers),
            "Average": rounded(described["mean"]),
            "Min": rounded(described["min"]),
            "Max": rounded(described["max"]),
            "Standard deviation": rounded(described["std"]),
        }


def rounded(number: float) -> float:
    """To 2 decimals, or to 3 where the number is smaller than 1."""
    return round(float(number), 2 if abs(number) >= 1 else 3)


def _measured_params(params: Mapping[str, Any]) -> dict[str, float | None]:
    """What is measured of create params; None for what they do not hold."""
    tools = params.get("tools")
    return {
        TOOLS: None if tools is None else len(tools),
        WORDS: len(json.dumps(params).split()),
        TURNS: _turns(params.get("input")),
        TEMPERATURE: params.get("temperature"),
    }


def _turns(given: Any) -> int | None:
    """How often the user speaks in an input; None if never."""
    if isinstance(given, str):
        return 1
    return sum(isinstance(item, Mapping) and item.get("role") == "user" for item in given or ()) or None
