# SPDX-License-Identifier: Apache-2.0
"""What the rows of a dataset look like in numbers: tools, words, tokens, turns, sampling, and every field of their own.

Rows are added one by one and not kept. Checking them is left to `nemo_gym._data.rows`, the file that the numbers
go to to `nemo_gym._data.metrics_file`.
"""

import functools
import math
import operator
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from nemo_gym._data.create_params import SAMPLING, Asked, Conversations, KnownSettings, read_plain_messages
from nemo_gym._data.distinct import Distinct
from nemo_gym._data.text_lengths import CountTokens
from nemo_gym._metrics.describe import describe, finite
from nemo_gym._util.row_keys import RESPONSE_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME

# Sums of squares of larger numbers would overflow.
_LARGE = 1e150
_NEVER_COUNT = frozenset({dict, type(None)})
# An integer of more bits than `finite` takes.
_TOO_LARGE = 1 << 1023
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
# Few enough to stay in the cache of the processor.
_ROWS_TOGETHER = 64
_BYTES_TOGETHER = 1 << 20
_NOT_MEASURED = frozenset({RESPONSES_CREATE_PARAMS_KEY_NAME, RESPONSE_KEY_NAME})


class Chunk(NamedTuple):
    """Numbers, each of which counts `repeats` times."""

    values: "array[float]"
    repeats: int


def describe_chunks(chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return the object that a metrics file has for numbers; zeros if there are none."""
    filled = [chunk for chunk in chunks if chunk.values]
    count = sum(len(chunk.values) * chunk.repeats for chunk in filled)
    if not count:
        return _make_entry(0, 0.0, 0.0, 0.0, 0.0)
    low, high = min(min(chunk.values) for chunk in filled), max(max(chunk.values) for chunk in filled)
    if low == high:
        return _make_entry(count, low, low, high, 0.0)
    if max(-low, high) > _LARGE:
        described = describe(list(_repeat(filled)))
        return _make_entry(count, described["mean"], low, high, described["std"])
    average = math.fsum(_repeat(filled)) / count
    return _make_entry(count, average, low, high, _compute_deviation(filled, average, count))


def round_number(number: float) -> float:
    """Round to 2 decimals, or to 3 where the number is smaller than 1."""
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

    def add(self, value: Any) -> None:
        """Count a number or a text."""
        if isinstance(value, str):
            self.texts.add(value)
        elif (number := finite(value)) is not None:
            self.numbers.append(number)


class Fields(dict[str, FieldStatistics]):
    """By field, in the order in which fields first had a value that counts."""

    def add_all(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the values of all fields of `rows`."""
        if not self._add_columns(rows):
            for row in rows:
                for name, value in row.items():
                    self._add(name, value)
        for values in self.values():
            values.texts.compact()

    def __missing__(self, name: str) -> FieldStatistics:
        values = self[name] = FieldStatistics()
        return values

    def _add_columns(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Count field by field, which is quicker; False, and nothing counted, if it is not the same.

        It is the same for rows that all have the same fields in the same order. A field that is new must have a value
        that counts in the first row, or none at all: else it could come before one that had a value earlier.
        """
        if len(set(map(tuple, rows))) != 1:
            return False
        names = tuple(rows[0])
        columns = list(zip(*(row.values() for row in rows), strict=True))
        kinds = [set(map(type, column)) for column in columns]
        for name, column, types in zip(names, columns, kinds, strict=True):
            if name not in self and not _counts(column[0]) and not types <= _NEVER_COUNT:
                return False
        for name, column, types in zip(names, columns, kinds, strict=True):
            self._add_column(name, column, types)
        return True

    def _add_column(self, name: str, column: tuple[Any, ...], types: set[type]) -> None:
        """Count the values of one field, at once if all of them are texts or finite numbers of one type."""
        if types == {str}:
            self[name].texts.add_all(column)
        elif _all_finite(column, types):
            self[name].numbers.extend(column)
        elif not types <= _NEVER_COUNT:
            for value in column:
                self._add(name, value)

    def _add(self, name: str, value: Any) -> None:
        """Count a value, or those in a list, as values of a field, which is there only if it has one."""
        for one in value if isinstance(value, list) else (value,):
            if _counts(one):
                self[name].add(one)


def _counts(value: Any) -> bool:
    return isinstance(value, str) or finite(value) is not None


def _all_finite(column: tuple[Any, ...], types: set[type]) -> bool:
    """Return whether a column is nothing but integers or nothing but floats, and `finite` would take them all."""
    if types == {float}:
        return all(map(math.isfinite, column))
    return types == {int} and min(column) > -_TOO_LARGE and max(column) < _TOO_LARGE


def measure(
    rows: Iterable[Mapping[str, Any]], *, repeats: int = 1, count_tokens: CountTokens | None = None
) -> dict[str, Any]:
    """Return the metrics of `rows`, each of them counted `repeats` times."""
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
        """Count a row; `asked` are its create params taken apart, if the caller has them already.

        Rows are kept for a moment, to be measured together: fewer of them if they are said to be large.
        """
        params = row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}
        if asked is None:
            asked = self._known.of(params), read_plain_messages(params.get("input"))
        self._rows.append(row)
        self._asked.append((params, asked))
        self._bytes += size_bytes
        if len(self._rows) >= _ROWS_TOGETHER or self._bytes >= _BYTES_TOGETHER:
            self._measure_together()

    def flush(self) -> None:
        """Measure what waits to be measured together; the numbers are complete only then."""
        self._measure_together()
        self.conversations.flush()

    def summary(self) -> dict[str, Any]:
        """Return the metrics under the names they have in a metrics file, in its order."""
        return combine_metrics([self])

    def _measure_together(self) -> None:
        self.examples += len(self._rows)
        for settings, count in Counter(settings for _, (settings, _) in self._asked).items():
            if settings.tools is not None:
                self.tools.extend([settings.tools] * count)
            for name, number in settings.sampling.items():
                self.sampling[name].extend([number] * count)
        self.fields.add_all(self._rows)
        self.conversations.add_all(self._asked)
        self._rows, self._asked, self._bytes = [], [], 0


def _describe_fields(parts: Sequence[MetricsAccumulator]) -> dict[str, Any]:
    names = dict.fromkeys(name for part in parts for name in part.fields if name not in _NOT_MEASURED)
    return {
        name: _describe_field([(part.fields[name], part.repeats) for part in parts if name in part.fields])
        for name in names
    }


def _describe_field(found: Sequence[tuple[FieldStatistics, int]]) -> dict[str, Any]:
    """Return statistics of a field that holds numbers; if there is a single text among them, how many differ."""
    if not any(values.texts.total for values, _ in found):
        return describe_chunks([Chunk(values.numbers, repeats) for values, repeats in found])
    numbers = set[float]().union(*(values.numbers for values, _ in found))
    return {
        "unique_count": len(_unite([values.texts for values, _ in found])) + len(numbers),
        "total_count": sum((values.texts.total + len(values.numbers)) * repeats for values, repeats in found),
    }


def _unite(sets: Sequence[Distinct]) -> Distinct:
    return functools.reduce(operator.or_, sets)
