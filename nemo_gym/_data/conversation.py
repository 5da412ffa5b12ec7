# SPDX-License-Identifier: Apache-2.0
"""The input of create params in numbers: how many words, tokens and turns it has, and which user messages are new."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nemo_gym._data.distinct import Distinct
from nemo_gym._data.params import Asked, Messages, canonical, plain_messages, words_of
from nemo_gym._data.text_batches import BATCH_CHARACTERS, LONGEST_TEXT, text_batches
from nemo_gym._data.tokens import CountTokens, TextLengths

_MOST_KEPT = 256
_LONGEST_KEPT = 1 << 14
# `"role":`, its value, `"content":`
_WORDS_AROUND_CONTENT = 3
_TEXT_FIELDS = ("content", "name", "arguments", "input", "output", "summary")


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
                tokens = self._of_repeated_text(settings.instructions)[1]
            if "input" in params:
                more_words, more_tokens, turns = (
                    self._of_messages(messages, parts) if messages else self._of_input(params["input"], parts)
                )
                # The key `input` is a word too.
                words, tokens = words + 1 + more_words, tokens + more_tokens
            self.words.append(words or 1)
            self.tokens.append(tokens)
            if turns:
                self.turns.append(turns)
            identities.append(hash(tuple(parts)))
            if self._characters >= BATCH_CHARACTERS:
                self.settle()
        self.create_params.add_hashes(identities)
        for seen in (self.create_params, self.user_messages):
            seen.settle()

    def settle(self) -> None:
        """Measure the texts that wait to be measured together; the numbers are complete only then."""
        if self._texts and self._batches is not None:
            self.user_messages.add_all(self._texts)
            all_words, all_tokens = self.words, self.tokens
            for row, words, tokens in zip(self._rows, *self._batches.of(self._texts), strict=True):
                all_words[row] += words
                all_tokens[row] += tokens
        self._texts, self._rows, self._characters = [], [], 0

    def _of_messages(self, messages: Messages, parts: list[Any]) -> tuple[int, int, int]:
        """As `_of_input`, of nothing but plain messages."""
        words, tokens, turns, known = _WORDS_AROUND_CONTENT * len(messages), 0, 0, self._repeated
        for role, content in messages:
            if role == "user":
                turns += 1
                of_text = self._of_user_text(content)
            else:
                of_text = known.get(content) or self._of_repeated_text(content)
            words += of_text[0]
            tokens += of_text[1]
        parts += messages
        return words, tokens, turns

    def _of_input(self, given: Any, parts: list[Any]) -> tuple[int, int, int]:
        """Words, tokens and turns; what tells the input from others is added to `parts`."""
        if isinstance(given, str):
            given_words, tokens = self._of_user_text(given)
            parts.append(given)
            return given_words, tokens, 1
        if not isinstance(given, list) or not given:
            parts.append(canonical(given))
            return words_of(given), 0, 0
        words = tokens = turns = 0
        for item in given:
            messages = plain_messages([item])
            of_item = self._of_other_item(item, parts) if messages is None else self._of_messages(messages, parts)
            words, tokens, turns = words + of_item[0], tokens + of_item[1], turns + of_item[2]
        return words, tokens, turns

    def _of_other_item(self, item: Any, parts: list[Any]) -> tuple[int, int, int]:
        """As `_of_input`, of anything but a plain message."""
        parts.append(canonical(item))
        if not isinstance(item, dict):
            return words_of(item), 0, 0
        is_user = item.get("role") == "user"
        if is_user:
            self.user_messages.add(_identity(item.get("content")))
        return words_of(item), sum(self._lengths.of(text)[1] for text in _texts(item)), int(is_user)

    def _of_user_text(self, text: str) -> tuple[int, int]:
        """Words and tokens of what a user says, if they are known at once: most texts are measured with others."""
        if self._batches is None or self._characters >= BATCH_CHARACTERS or not 0 < len(text) <= LONGEST_TEXT:
            self.user_messages.add(text)
            return self._lengths.of(text)
        self._texts.append(text)
        self._rows.append(len(self.words))
        self._characters += len(text)
        return 0, 0

    def _of_repeated_text(self, text: str) -> tuple[int, int]:
        """Words and tokens of a text that many rows may share, such as a system prompt."""
        known = self._repeated.get(text)
        if known is None:
            known = self._lengths.of(text)
            if len(text) <= _LONGEST_KEPT:
                if len(self._repeated) >= _MOST_KEPT:
                    self._repeated.clear()
                self._repeated[text] = known
        return known


def _texts(item: Mapping[str, Any]) -> Iterator[str]:
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


def _identity(content: Any) -> str | bytes:
    """The same for contents that say the same: a text may also be given as a list with one text part."""
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
        part = content[0]
        content = part["text"] if part.get("type") == "input_text" and "text" in part else content
    return content if isinstance(content, str) else canonical(content)
