# SPDX-License-Identifier: Apache-2.0
"""Create params taken apart and in numbers: the conversation, which differs from row to row, and the settings.

Settings seldom differ, so what has been found out about them is remembered: the same tools are not looked at a hundred
thousand times. Of the conversation: how many words, tokens and turns it has, and which user messages are new.
"""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from nemo_gym._data.distinct import Distinct
from nemo_gym._data.text_lengths import BATCH_CHARACTERS, LONGEST_TEXT, CountTokens, TextLengths, text_batches
from nemo_gym._metrics.describe import Number, finite

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


# Compared as objects: there is one for all create params whose settings are written alike, and it can be counted.
@dataclass(slots=True, eq=False)
class Settings:
    """What is known about create params apart from their input."""

    identity: int
    """A hash: the same for settings that are equal."""
    words: int
    tools: int | None
    sampling: dict[str, Number]
    """The sampling parameters that are given and are numbers."""
    instructions: str | None
    is_valid: bool = False


Asked = tuple[Settings, Messages | None]
"""Create params taken apart: their settings, and their input, if it is plain messages."""


def read_plain_messages(given: Any) -> Messages | None:
    """The messages of an input that is a list of nothing but messages with a known role and a text, nothing else.

    Such a list is valid for sure, and its words and tokens are those of its texts. Most inputs are like that.
    """
    if type(given) is not list:
        return None
    messages = []
    try:
        for item in given:
            role, content = item["role"], item["content"]
            if type(item) is not dict or len(item) != 2 or type(content) is not str or role not in _ROLES:
                return None
            messages.append((role, content))
    except (TypeError, KeyError, IndexError):
        # Not an object, a field that is not there, or a role that is a list or an object itself.
        return None
    return messages


class KnownSettings:
    """The settings seen lately."""

    def __init__(self) -> None:
        self._known: dict[bytes, Settings] = {}

    def of(self, params: Mapping[str, Any]) -> Settings:
        """The settings in `params`; the same object for those that are written alike, as long as it is remembered."""
        plain = dict(params)
        plain.pop("input", None)
        try:
            # In the order of its keys, which is quicker: in another order, it is another object with the same identity.
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
    """The same bytes for equal values, whatever the order of their keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Half of a surrogate pair, or an integer of more than 64 bits.
        return json.dumps(value, sort_keys=True).encode()


def count_words(value: Any) -> int:
    """The number of pieces between white space in the JSON text of `value`."""
    return len(json.dumps(value).split())


def _read_settings(plain: dict[str, Any]) -> Settings:
    tools, instructions = plain.get("tools"), plain.get("instructions")
    numbers = {name: finite(plain[name]) for name in SAMPLING if name in plain}
    return Settings(
        identity=hash(encode_canonically(plain)),
        words=count_words(plain) if plain else 0,
        tools=len(tools) if isinstance(tools, list) else None,
        sampling={name: number for name, number in numbers.items() if number is not None},
        instructions=instructions if isinstance(instructions, str) else None,
    )


class Conversations:
    """The numbers of the create params added so far, one each unless said otherwise."""

    def __init__(self, count_tokens: CountTokens | None) -> None:
        self.words = array("d")
        self.tokens = array("d")
        self.turns = array("d")
        """How often the user speaks, where the user does at all."""
        self.create_params = Distinct()
        self.user_messages = Distinct()
        self._lengths = TextLengths(count_tokens)
        self._repeated: dict[str, tuple[int, int]] = {}
        self._batches = text_batches(count_tokens) if count_tokens is not None else None
        self._texts = list[str]()
        self._rows = list[int]()
        self._characters = 0

    def add_all(self, given: Iterable[tuple[Mapping[str, Any], Asked]]) -> None:
        """Measure create params; each comes with the parts it was taken apart into."""
        identities = list[int]()
        for params, (settings, messages) in given:
            words, tokens, turns, parts = settings.words, 0, 0, [settings.identity]
            if settings.instructions is not None:
                tokens = self._measure_repeated_text(settings.instructions)[1]
            if "input" in params:
                more_words, more_tokens, turns = (
                    self._measure_messages(messages, parts) if messages else self._measure_input(params["input"], parts)
                )
                # The key `input` is a word too.
                words, tokens = words + 1 + more_words, tokens + more_tokens
            self.words.append(words or 1)
            self.tokens.append(tokens)
            if turns:
                self.turns.append(turns)
            identities.append(hash(tuple(parts)))
            if self._characters >= BATCH_CHARACTERS:
                self.flush()
        self.create_params.add_hashes(identities)
        for seen in (self.create_params, self.user_messages):
            seen.compact()

    def flush(self) -> None:
        """Measure the texts that wait to be measured together; the numbers are complete only then."""
        if self._texts and self._batches is not None:
            self.user_messages.add_all(self._texts)
            all_words, all_tokens = self.words, self.tokens
            for row, words, tokens in zip(self._rows, *self._batches.of(self._texts), strict=True):
                all_words[row] += words
                all_tokens[row] += tokens
        self._texts, self._rows, self._characters = [], [], 0

    def _measure_messages(self, messages: Messages, parts: list[Any]) -> tuple[int, int, int]:
        """As `_measure_input`, of nothing but plain messages."""
        words, tokens, turns, known = _WORDS_AROUND_CONTENT * len(messages), 0, 0, self._repeated
        for role, content in messages:
            if role == "user":
                turns += 1
                of_text = self._measure_user_text(content)
            else:
                of_text = known.get(content) or self._measure_repeated_text(content)
            words += of_text[0]
            tokens += of_text[1]
        parts += messages
        return words, tokens, turns

    def _measure_input(self, given: Any, parts: list[Any]) -> tuple[int, int, int]:
        """Words, tokens and turns; what tells the input from others is added to `parts`."""
        if isinstance(given, str):
            given_words, tokens = self._measure_user_text(given)
            parts.append(given)
            return given_words, tokens, 1
        if not isinstance(given, list) or not given:
            parts.append(encode_canonically(given))
            return count_words(given), 0, 0
        words = tokens = turns = 0
        for item in given:
            messages = read_plain_messages([item])
            of_item = (
                self._measure_other_item(item, parts) if messages is None else self._measure_messages(messages, parts)
            )
            words, tokens, turns = words + of_item[0], tokens + of_item[1], turns + of_item[2]
        return words, tokens, turns

    def _measure_other_item(self, item: Any, parts: list[Any]) -> tuple[int, int, int]:
        """As `_measure_input`, of anything but a plain message."""
        parts.append(encode_canonically(item))
        if not isinstance(item, dict):
            return count_words(item), 0, 0
        is_user = item.get("role") == "user"
        if is_user:
            self.user_messages.add(_identify(item.get("content")))
        return count_words(item), sum(self._lengths.of(text)[1] for text in _list_texts(item)), int(is_user)

    def _measure_user_text(self, text: str) -> tuple[int, int]:
        """Words and tokens of what a user says, if they are known at once: most texts are measured with others."""
        if self._batches is None or self._characters >= BATCH_CHARACTERS or not 0 < len(text) <= LONGEST_TEXT:
            self.user_messages.add(text)
            return self._lengths.of(text)
        self._texts.append(text)
        self._rows.append(len(self.words))
        self._characters += len(text)
        return 0, 0

    def _measure_repeated_text(self, text: str) -> tuple[int, int]:
        """Words and tokens of a text that many rows may share, such as a system prompt."""
        known = self._repeated.get(text)
        if known is None:
            known = self._lengths.of(text)
            if len(text) <= _LONGEST_TEXT_KEPT:
                if len(self._repeated) >= _MOST_TEXTS:
                    self._repeated.clear()
                self._repeated[text] = known
        return known


def _list_texts(item: Mapping[str, Any]) -> Iterator[str]:
    """What a model reads of an item that is not a plain message: its texts, and a call's name, arguments, result."""
    for name in _TEXT_FIELDS:
        value = item.get(name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            for part in value:
                text = part.get("text") if isinstance(part, Mapping) else None
                if isinstance(text, str):
                    yield text


def _identify(content: Any) -> str | bytes:
    """The same for contents that say the same: a text may also be given as a list with one text part."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        part = content[0]
        content = part["text"] if part.get("type") == "input_text" and "text" in part else content
    return content if isinstance(content, str) else encode_canonically(content)
