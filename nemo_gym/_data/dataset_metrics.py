# SPDX-License-Identifier: Apache-2.0
"""What the rows of a dataset look like in numbers: tools, words, tokens, turns, sampling, and every field of their own.

Rows are added one by one and not kept. Checking them is left to `nemo_gym._data.rows`, the file that the numbers go to
to `nemo_gym._data.metrics_file`.
"""

import functools
import operator
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nemo_gym._data.conversation import Conversations
from nemo_gym._data.distinct import Distinct
from nemo_gym._data.fields import Fields, Values
from nemo_gym._data.metrics_file import metrics_file as metrics_file
from nemo_gym._data.params import SAMPLING, Asked, KnownSettings, plain_messages
from nemo_gym._data.statistics import Chunk, rounded, statistics
from nemo_gym._data.tokens import CountTokens
from nemo_gym._util.row_keys import RESPONSE_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME

__all__ = ["DatasetMetrics", "combined", "measure", "metrics_file", "rounded"]

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


def measure(
    rows: Iterable[Mapping[str, Any]], *, repeats: int = 1, count_tokens: CountTokens | None = None
) -> dict[str, Any]:
    """The metrics of `rows`, each of them counted `repeats` times."""
    metrics = DatasetMetrics(repeats=repeats, count_tokens=count_tokens)
    for row in rows:
        metrics.add(row)
    return metrics.summary()


def combined(parts: Sequence["DatasetMetrics"]) -> dict[str, Any]:
    """The metrics of the rows of all `parts` together, under the names they have in a metrics file, in its order."""
    for part in parts:
        part.settle()
    sampling = {name: [Chunk(part.sampling[name], part.repeats) for part in parts] for name in SAMPLING}
    talks = [(part.conversations, part.repeats) for part in parts]
    tokens = [Chunk(talk.tokens, repeats) for talk, repeats in talks]
    others = {_SAMPLING_NAMES[name]: chunks for name, chunks in sampling.items() if name != "temperature"}
    return {
        EXAMPLES: sum(part.examples * part.repeats for part in parts),
        TOOLS: statistics([Chunk(part.tools, part.repeats) for part in parts]),
        WORDS: statistics([Chunk(talk.words, repeats) for talk, repeats in talks]),
        TURNS: statistics([Chunk(talk.turns, repeats) for talk, repeats in talks]),
        TEMPERATURE: statistics(sampling["temperature"]),
        **({TOKENS: statistics(tokens)} if all(part.has_tokens for part in parts) else {}),
        UNIQUE_PARAMS: len(_union([talk.create_params for talk, _ in talks])),
        UNIQUE_USER_MESSAGES: len(_union([talk.user_messages for talk, _ in talks])),
        **{name: statistics(chunks) for name, chunks in others.items() if any(chunk.values for chunk in chunks)},
        **_fields(parts),
    }


class DatasetMetrics:
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
            asked = self._known.of(params), plain_messages(params.get("input"))
        self._rows.append(row)
        self._asked.append((params, asked))
        self._bytes += size_bytes
        if len(self._rows) >= _ROWS_TOGETHER or self._bytes >= _BYTES_TOGETHER:
            self._measure_together()

    def settle(self) -> None:
        """Measure what waits to be measured together; the numbers are complete only then."""
        self._measure_together()
        self.conversations.settle()

    def summary(self) -> dict[str, Any]:
        """The metrics under the names they have in a metrics file, in its order."""
        return combined([self])

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


def _fields(parts: Sequence[DatasetMetrics]) -> dict[str, Any]:
    names = dict.fromkeys(name for part in parts for name in part.fields if name not in _NOT_MEASURED)
    return {
        name: _field([(part.fields[name], part.repeats) for part in parts if name in part.fields]) for name in names
    }


def _field(found: Sequence[tuple[Values, int]]) -> dict[str, Any]:
    """Statistics of a field that holds numbers; if there is a single text among them, how many differ."""
    if not any(values.texts.total for values, _ in found):
        return statistics([Chunk(values.numbers, repeats) for values, repeats in found])
    numbers = set[float]().union(*(values.numbers for values, _ in found))
    return {
        "unique_count": len(_union([values.texts for values, _ in found])) + len(numbers),
        "total_count": sum((values.texts.total + len(values.numbers)) * repeats for values, repeats in found),
    }


def _union(sets: Sequence[Distinct]) -> Distinct:
    return functools.reduce(operator.or_, sets)
