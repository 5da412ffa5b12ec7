# SPDX-License-Identifier: Apache-2.0
"""The rows of a dataset in numbers: tools, words, tokens, turns, sampling, and every field of their own.

Rows are added one by one and not kept. The numbers go to metrics files, and are compared with an existing file. Only
metrics are compared: a dataset whose license was corrected or whose prompt was moved is still the same data.
"""

import functools
import json
import math
import operator
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym._data.create_params import (
    SAMPLING,
    Asked,
    Conversations,
    Distinct,
    KnownSettings,
    encode_canonically,
    read_plain_messages,
)
from nemo_gym._data.text_lengths import CountTokens
from nemo_gym._results.metrics.describe import describe, to_finite
from nemo_gym._util.row_keys import RESPONSE_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym.errors import GymError

# The squares of larger numbers would overflow when summed.
_LARGE = 1e150
EXAMPLES = "Number of examples"
TOOLS = "Number of tools"
WORDS = "Json-dumped number of words (proxy for token count)"
TURNS = "Number of turns"
TEMPERATURE = "Temperature"
TOKENS = "Input length in OpenAI tokens (o200k_base)"
UNIQUE_PARAMS = "Number of unique create params"
UNIQUE_USER_MESSAGES = "Number of unique user messages"
_SAMPLING_NAMES = {
    "temperature": TEMPERATURE,
    "top_p": "Top p",
    "max_output_tokens": "Max output tokens",
    "max_tool_calls": "Max tool calls",
    "top_logprobs": "Top logprobs",
}
# Few enough to stay in the CPU cache.
_ROWS_TOGETHER = 64
_BYTES_TOGETHER = 1 << 20
_NOT_MEASURED = frozenset({RESPONSES_CREATE_PARAMS_KEY_NAME, RESPONSE_KEY_NAME})


class Chunk(NamedTuple):
    """Numbers that each count `repeats` times."""

    values: "array[float]"
    repeats: int


def describe_chunks(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return a metrics file's object for some numbers; zeros if there are none."""
    filled = [chunk for chunk in chunks if chunk.values]
    count = sum(len(chunk.values) * chunk.repeats for chunk in filled)
    if not count:
        return _make_entry(0, 0.0, 0.0, 0.0, 0.0)
    low = min(min(chunk.values) for chunk in filled)
    high = max(max(chunk.values) for chunk in filled)
    if low == high:
        return _make_entry(count, low, low, high, 0.0)
    if max(-low, high) > _LARGE:
        described = describe(list(_repeat(filled)))
        return _make_entry(count, described["mean"], low, high, described["std"])
    average = math.fsum(_repeat(filled)) / count
    return _make_entry(count, average, low, high, _compute_deviation(filled, average, count))


def round_number(number: float) -> float:
    """Round to 2 decimals, or to 3 if the number is smaller than 1."""
    return round(float(number), 2 if abs(number) >= 1 else 3)


def _compute_deviation(chunks: Iterable[Chunk], average: float, count: int) -> float:
    """Return the sample standard deviation (n - 1); 0 for a single value."""
    if count < 2:
        return 0.0
    squares = [Chunk(array("d", [(far := value - average) * far for value in values]), n) for values, n in chunks]
    return math.sqrt(math.fsum(_repeat(squares)) / (count - 1))


def _repeat(chunks: Iterable[Chunk]) -> Iterator[float]:
    return chain.from_iterable(chain.from_iterable(repeat(values, times)) for values, times in chunks)


def _make_entry(count: int, average: float, low: float, high: float, deviation: float) -> dict[str, Any]:
    return {
        "Total # non-null values": count,
        "Average": round_number(average),
        "Min": round_number(low),
        "Max": round_number(high),
        "Standard deviation": round_number(deviation),
    }


class FieldStatistics:
    """The values of one field: numbers in full, texts as hashes, so that long ones cost no memory."""

    def __init__(self) -> None:
        self.numbers = array("d")
        self.texts = Distinct()


class Fields(dict[str, FieldStatistics]):
    """Statistics by field, in the order in which fields first had a number or a text."""

    def add_all(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count the values of all fields of `rows`; values in a list count one by one."""
        for row in rows:
            for name, value in row.items():
                for one in value if isinstance(value, list) else (value,):
                    if isinstance(one, str):
                        self[name].texts.add(one)
                    elif (number := to_finite(one)) is not None:
                        self[name].numbers.append(number)
        for values in self.values():
            values.texts.compact()

    def __missing__(self, name: str) -> FieldStatistics:
        values = self[name] = FieldStatistics()
        return values


def measure(
    rows: Iterable[Mapping[str, Any]], *, repeats: int = 1, count_tokens: CountTokens | None = None
) -> dict[str, Any]:
    """Return the metrics of `rows`, each counted `repeats` times."""
    metrics = MetricsAccumulator(repeats=repeats, count_tokens=count_tokens)
    for row in rows:
        metrics.add(row)
    return metrics.summary()


def combine_metrics(parts: Sequence["MetricsAccumulator"]) -> dict[str, Any]:
    """Return the metrics of the rows of all `parts` together, named and ordered as in a metrics file."""
    for part in parts:
        part.flush()
    sampling = {name: [Chunk(part.sampling[name], part.repeats) for part in parts] for name in SAMPLING}
    talks = [(part.conversations, part.repeats) for part in parts]
    tokens = [Chunk(talk.tokens, repeats) for talk, repeats in talks]
    others = {_SAMPLING_NAMES[name]: chunks for name, chunks in sampling.items() if name != "temperature"}
    return {
        EXAMPLES: sum(part.examples * part.repeats for part in parts),
        TOOLS: describe_chunks([Chunk(part.tools, part.repeats) for part in parts]),
        WORDS: describe_chunks([Chunk(talk.words, repeats) for talk, repeats in talks]),
        TURNS: describe_chunks([Chunk(talk.turns, repeats) for talk, repeats in talks]),
        TEMPERATURE: describe_chunks(sampling["temperature"]),
        **({TOKENS: describe_chunks(tokens)} if all(part.has_tokens for part in parts) else {}),
        UNIQUE_PARAMS: len(_unite([talk.create_params for talk, _ in talks])),
        UNIQUE_USER_MESSAGES: len(_unite([talk.user_messages for talk, _ in talks])),
        **{name: describe_chunks(chunks) for name, chunks in others.items() if any(chunk.values for chunk in chunks)},
        **_describe_fields(parts),
    }


class MetricsAccumulator:
    """The metrics of the rows added so far; every row counts `repeats` times."""

    def __init__(self, *, repeats: int = 1, count_tokens: CountTokens | None = None) -> None:
        self.repeats = repeats
        self.examples = 0
        self.has_tokens = count_tokens is not None
        self.tools = array("d")
        self.sampling = {name: array("d") for name in SAMPLING}
        self.fields = Fields()
        self.conversations = Conversations(count_tokens)
        self._known = KnownSettings()
        self._rows = list[Mapping[str, Any]]()
        self._asked = list[tuple[Mapping[str, Any], Asked]]()
        self._bytes = 0

    def add(self, row: Mapping[str, Any], asked: Asked | None = None, size_bytes: int = 0) -> None:
        """Count a row; `asked` are its parsed create params, if the caller already has them.

        Rows are buffered briefly to be measured together; fewer of them if `size_bytes` says that they are large.
        """
        params = row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}
        if asked is None:
            asked = self._known.of(params), read_plain_messages(params.get("input"))
        self._rows.append(row)
        self._asked.append((params, asked))
        self._bytes += size_bytes
        if len(self._rows) >= _ROWS_TOGETHER or self._bytes >= _BYTES_TOGETHER:
            self.flush()

    def summary(self) -> dict[str, Any]:
        """Return the metrics as named and ordered in a metrics file."""
        return combine_metrics([self])

    def flush(self) -> None:
        """Measure the buffered rows; only then are the numbers complete."""
        self.examples += len(self._rows)
        for settings, count in Counter(settings for _, (settings, _) in self._asked).items():
            if settings.tools is not None:
                self.tools.extend([settings.tools] * count)
            for name, number in settings.sampling.items():
                self.sampling[name].extend([number] * count)
        self.fields.add_all(self._rows)
        self.conversations.add_all(self._asked)
        self._rows = []
        self._asked = []
        self._bytes = 0


def _describe_fields(parts: Sequence[MetricsAccumulator]) -> dict[str, Any]:
    names = dict.fromkeys(name for part in parts for name in part.fields if name not in _NOT_MEASURED)
    return {
        name: _describe_field([(part.fields[name], part.repeats) for part in parts if name in part.fields])
        for name in names
    }


def _describe_field(found: Sequence[tuple[FieldStatistics, int]]) -> dict[str, Any]:
    """Return statistics of a numeric field; if it holds even one text, how many values differ."""
    if not any(values.texts.total for values, _ in found):
        return describe_chunks([Chunk(values.numbers, repeats) for values, repeats in found])
    numbers = set[float]().union(*(values.numbers for values, _ in found))
    return {
        "unique_count": len(_unite([values.texts for values, _ in found])) + len(numbers),
        "total_count": sum((values.texts.total + len(values.numbers)) * repeats for values, repeats in found),
    }


def _unite(sets: Sequence[Distinct]) -> Distinct:
    return functools.reduce(operator.or_, sets)


# --- metrics files: the dataset's description from its config, then its metrics ---------------------------------------


AnyDataset = DatasetConfig | BenchmarkDatasetConfig
_FIELDS_LEFT_OUT_IF_UNSET = ("start_idx", "end_idx", "prepare_script")
_PARTS = "datasets"
_HEADER_FIELDS = frozenset({*DatasetConfig.model_fields, *BenchmarkDatasetConfig.model_fields, _PARTS})
_NOTHING = object()


class MetricsFileError(GymError, ValueError):
    """An existing metrics file cannot be read, so nothing can be compared with it."""


def encode_metrics(dataset: AnyDataset, metrics: Mapping[str, Any]) -> str:
    """Return the text of the metrics file of one dataset."""
    return _encode({**_describe_dataset(dataset), **metrics})


def encode_collated_metrics(datasets: Sequence[AnyDataset], metrics: Mapping[str, Any]) -> str:
    """Return the text of the metrics file of several datasets together; fields they do not share are null."""
    headers = [_describe_dataset(dataset) for dataset in datasets]
    if len(headers) == 1:
        return _encode({**headers[0], **metrics})
    names = dict.fromkeys(name for header in headers for name in header)
    values = {name: [header.get(name, _NOTHING) for header in headers] for name in names}
    shared = {name: found[0] if all(one == found[0] for one in found) else None for name, found in values.items()}
    return _encode({**shared, _PARTS: headers, **metrics})


def read_metrics_file(path: Path) -> dict[str, Any] | None:
    """Return the content of a metrics file; None if there is no such file."""
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (orjson.JSONDecodeError, OSError) as error:
        raise MetricsFileError(f"{path} cannot be read as a metrics file: {error}\nhint: delete it") from error
    if not isinstance(content, dict):
        raise MetricsFileError(f"{path} is not a metrics file: it holds no JSON object\nhint: delete it")
    return content


def find_differences(before: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """Return where the metrics in an existing file differ from `metrics`; keys that the file lacks are fine."""
    found: list[str] = []
    for name, old in before.items():
        if name in metrics:
            # A row field may have the name of a config field, such as `source`: the file may hold either.
            if name not in _HEADER_FIELDS or (isinstance(old, Mapping) and old.keys() == metrics[name].keys()):
                found += _compare(name, old, metrics[name])
        elif name not in _HEADER_FIELDS:
            found.append(f"{name}: was {_dump(old)}, is missing now")
    return found


def _compare(place: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, value in old.items():
            if name in new:
                yield from _compare(f"{place} / {name}", value, new[name])
            else:
                yield f"{place} / {name}: was {_dump(value)}, is missing now"
    elif not _is_equal(old, new):
        yield f"{place}: was {_dump(old)}, is {_dump(new)}"


def _is_equal(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return Counter(map(encode_canonically, old)) == Counter(map(encode_canonically, new))
    if float in (type(old), type(new)) and {type(old), type(new)} <= {int, float}:
        return bool(abs(old - new) <= (5e-3 if abs(old) >= 1 else 5e-4))
    return type(old) is type(new) and bool(old == new)


def _describe_dataset(dataset: AnyDataset) -> dict[str, Any]:
    described = dataset.model_dump(mode="json")
    for name in _FIELDS_LEFT_OUT_IF_UNSET:
        if described.get(name) is None:
            described.pop(name, None)
    return described


def _encode(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=4) + "\n"


_dump = functools.partial(json.dumps, ensure_ascii=False)
