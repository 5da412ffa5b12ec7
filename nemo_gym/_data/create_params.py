# SPDX-License-Identifier: Apache-2.0
"""Parse and measure create params: the conversation, which differs from row to row, and the settings.

Settings rarely differ, so results about them are cached: the same tools are not examined a hundred thousand times. For
the conversation, count words, tokens, turns and distinct user messages.
"""

import functools
import importlib
import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from nemo_gym._data.text_lengths import CountTokens, TextLengths
from nemo_gym._results.metrics.describe import Number, to_finite

_MOST_SETTINGS = 1024
_LONGEST_SETTINGS_BYTES = 1 << 16
_ROLES = frozenset({"user", "assistant", "system", "developer"})
SAMPLING = ("temperature", "top_p", "max_output_tokens", "max_tool_calls", "top_logprobs")
Messages = list[tuple[str, str]]
"""Roles and texts."""
_MOST_TEXTS = 256
_LONGEST_TEXT_KEPT = 1 << 14
# `"role":`, its value, `"content":`
_WORDS_AROUND_CONTENT = 3
_TEXT_FIELDS = ("content", "name", "arguments", "input", "output", "summary")


# Compared by identity: create params with identically written settings share one object, which can be counted.
@dataclass(slots=True, eq=False)
class Settings:
    """What is known about create params apart from their input."""

    identity: int
    """A hash: equal settings have the same one."""
    words: int
    tools: int | None
    sampling: dict[str, Number]
    """The sampling parameters that are set and are numbers."""
    instructions: str | None
    is_valid: bool = False


Asked = tuple[Settings, Messages | None]
"""Parsed create params: their settings, and their input if it is plain messages."""


def read_plain_messages(given: Any) -> Messages | None:
    """Return the messages of an input that is a list of plain messages, each with a known role and a text; else None.

    Such a list is always valid, and its words and tokens are those of its texts. Most inputs are like that.
    """
    if type(given) is not list:
        return None
    messages = []
    try:
        for item in given:
            role = item["role"]
            content = item["content"]
            if type(item) is not dict or len(item) != 2 or type(content) is not str or role not in _ROLES:
                return None
            messages.append((role, content))
    except (TypeError, KeyError, IndexError):
        # Not an object, a missing field, or a role that is a list or an object.
        return None
    return messages


class KnownSettings:
    """A cache of recently seen settings."""

    def __init__(self) -> None:
        self._known: dict[bytes, Settings] = {}

    def of(self, params: Mapping[str, Any]) -> Settings:
        """Return the settings in `params`; the same object for identically written ones, as long as it is cached."""
        plain = dict(params)
        plain.pop("input", None)
        try:
            # Keys in their given order, which is faster: another order makes another object with the same identity.
            key = orjson.dumps(plain)
        except TypeError:
            key = encode_canonically(plain)
        known = self._known.get(key)
        if known is None:
            known = _read_settings(plain)
            if len(key) <= _LONGEST_SETTINGS_BYTES:
                if len(self._known) >= _MOST_SETTINGS:
                    self._known.clear()
                self._known[key] = known
        return known


def encode_canonically(value: Any) -> bytes:
    """Encode a value as JSON: the same bytes for equal values, whatever the order of their keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Half of a surrogate pair, or an integer of more than 64 bits.
        return json.dumps(value, sort_keys=True).encode()


def count_words(value: Any) -> int:
    """Count the whitespace-separated pieces in the JSON text of `value`."""
    return len(json.dumps(value).split())


def _read_settings(plain: dict[str, Any]) -> Settings:
    tools = plain.get("tools")
    instructions = plain.get("instructions")
    numbers = {name: to_finite(plain[name]) for name in SAMPLING if name in plain}
    return Settings(
        identity=hash(encode_canonically(plain)),
        words=count_words(plain) if plain else 0,
        tools=len(tools) if isinstance(tools, list) else None,
        sampling={name: number for name, number in numbers.items() if number is not None},
        instructions=instructions if isinstance(instructions, str) else None,
    )


class Conversations:
    """The measurements of the create params added so far, one each unless noted otherwise."""

    def __init__(self, count_tokens: CountTokens | None) -> None:
        self.words = array("d")
        self.tokens = array("d")
        self.turns = array("d")
        """How often the user speaks, for conversations in which the user speaks at all."""
        self.create_params = Distinct()
        self.user_messages = Distinct()
        self._lengths = TextLengths(count_tokens)
        self._measure_repeated = functools.lru_cache(_MOST_TEXTS)(self._lengths.of)

    def add_all(self, given: Iterable[tuple[Mapping[str, Any], Asked]]) -> None:
        """Measure create params; each comes with its parsed parts."""
        identities = list[int]()
        for params, (settings, messages) in given:
            words = settings.words
            tokens = 0
            turns = 0
            parts = [settings.identity]
            if settings.instructions is not None:
                tokens = self._measure_shared_text(settings.instructions)[1]
            if "input" in params:
                if messages:
                    more_words, more_tokens, turns = self._measure_messages(messages, parts)
                else:
                    more_words, more_tokens, turns = self._measure_input(params["input"], parts)
                # The key `input` counts as a word too.
                words = words + 1 + more_words
                tokens = tokens + more_tokens
            self.words.append(words or 1)
            self.tokens.append(tokens)
            if turns:
                self.turns.append(turns)
            identities.append(hash(tuple(parts)))
        self.create_params.add_hashes(identities)
        for seen in (self.create_params, self.user_messages):
            seen.compact()

    def _measure_messages(self, messages: Messages, parts: list[Any]) -> tuple[int, int, int]:
        """Like `_measure_input`, for plain messages only."""
        words = _WORDS_AROUND_CONTENT * len(messages)
        tokens = 0
        turns = 0
        for role, content in messages:
            if role == "user":
                turns += 1
                self.user_messages.add(content)
                of_text = self._lengths.of(content)
            else:
                of_text = self._measure_shared_text(content)
            words += of_text[0]
            tokens += of_text[1]
        parts += messages
        return words, tokens, turns

    def _measure_input(self, given: Any, parts: list[Any]) -> tuple[int, int, int]:
        """Count words, tokens and turns; add to `parts` what identifies the input."""
        if isinstance(given, str):
            self.user_messages.add(given)
            parts.append(given)
            return *self._lengths.of(given), 1
        if not isinstance(given, list) or not given:
            parts.append(encode_canonically(given))
            return count_words(given), 0, 0
        words = tokens = turns = 0
        for item in given:
            messages = read_plain_messages([item])
            if messages is None:
                of_item = self._measure_other_item(item, parts)
            else:
                of_item = self._measure_messages(messages, parts)
            words = words + of_item[0]
            tokens = tokens + of_item[1]
            turns = turns + of_item[2]
        return words, tokens, turns

    def _measure_other_item(self, item: Any, parts: list[Any]) -> tuple[int, int, int]:
        """Like `_measure_input`, for anything but a plain message."""
        parts.append(encode_canonically(item))
        if not isinstance(item, dict):
            return count_words(item), 0, 0
        is_user = item.get("role") == "user"
        if is_user:
            self.user_messages.add(_identify(item.get("content")))
        return count_words(item), sum(self._lengths.of(text)[1] for text in _list_texts(item)), int(is_user)

    def _measure_shared_text(self, text: str) -> tuple[int, int]:
        """Count the words and tokens of a text that many rows may share, such as a system prompt."""
        if len(text) > _LONGEST_TEXT_KEPT:
            return self._lengths.of(text)
        return self._measure_repeated(text)


def _list_texts(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a model reads of an item that is not a plain message: texts, a call's name, arguments, result."""
    for name in _TEXT_FIELDS:
        value = item.get(name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            for part in value:
                if isinstance(part, Mapping) and isinstance(text := part.get("text"), str):
                    yield text


def _identify(content: Any) -> str | bytes:
    """Return equal values for contents that say the same: a text may also be a list with one text part."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        part = content[0]
        if part.get("type") == "input_text" and "text" in part:
            content = part["text"]
    if isinstance(content, str):
        return content
    return encode_canonically(content)


# --- counting distinct values -----------------------------------------------------------------------------------------


_MANY = 1 << 18


class Distinct:
    """Counts distinct texts or byte strings by their 64-bit hashes, in 8 to 16 bytes each, without keeping them.

    Among ten million values, the chance that two share a hash is about one in four hundred thousand.
    """

    def __init__(self) -> None:
        self.total = 0
        """How many values were added, including equal ones."""
        self._sorted = array("q")
        # Appended as they come, because a set of this many numbers does not fit a CPU cache and is slow to access.
        self._new = array("q")

    def add(self, value: str | bytes) -> None:
        self.total += 1
        self._new.append(hash(value))

    def add_hashes(self, numbers: Collection[int]) -> None:
        """Add values whose hashes are known."""
        self.total += len(numbers)
        self._new.extend(numbers)

    def compact(self) -> None:
        """Drop repeated hashes once there may be many; call this now and then."""
        # Only once it has doubled, so that every number is sorted at most a few times.
        if len(self._new) > max(_MANY, len(self._sorted)):
            self._sorted = _sort_distinct(self._sorted + self._new)
            self._new = array("q")

    def __or__(self, other: "Distinct") -> "Distinct":
        """Return the union of both."""
        both = Distinct()
        both.total = self.total + other.total
        for numbers in (self._sorted, self._new, other._sorted, other._new):
            both._new.extend(numbers)
            both.compact()
        return both

    def __len__(self) -> int:
        """Return how many distinct values there are."""
        return len(_sort_distinct(self._sorted + self._new))


def _sort_distinct(numbers: "array[int]") -> "array[int]":
    """Return the distinct numbers, sorted."""
    if (np := _load_numpy()) is not None:
        # Same result as below: Python is slow at sorting 64-bit numbers.
        return array("q", np.unique(np.asarray(numbers)).tobytes())
    return array("q", sorted(set(numbers)))


@functools.cache
def _load_numpy() -> Any:
    """Return numpy; None if it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None
