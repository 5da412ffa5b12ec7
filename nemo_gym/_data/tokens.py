# SPDX-License-Identifier: Apache-2.0
"""How long texts are: in OpenAI tokens (`o200k_base`), offline and exact, and in the words of their JSON form.

Only lengths: nobody here needs the tokens. The tokenizer comes with the extra `data`; without it there are words only.
"""

import functools
import importlib
import re
from collections.abc import Callable

_LONGEST_KEPT = 64
_MOST_KEPT = 200_000
# More than any text has; a sum that reaches it contains a piece that cannot stand alone.
_NOT_ALONE = 1 << 60
_BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")
_SPACES = re.compile(" +")

CountTokens = Callable[[str], int]


@functools.cache
def openai_tokenizer() -> CountTokens | None:
    """A function that counts the tokens of a text; None where the tokenizer is not installed.

    What looks like a special token counts as the plain text that it is.
    """
    try:
        openai = importlib.import_module("rs_bpe.bpe").openai
    except ImportError:
        return None
    count: CountTokens = openai.o200k_base().count
    return count


def words_of_text(text: str) -> int:
    """The pieces between spaces of a text in JSON, where all other white space is escaped."""
    return 1 + (text.count(" ") if "  " not in text else len(_SPACES.findall(text)))


class TextLengths:
    """Measures texts word by word and remembers the words, several times faster than tokenizing whole texts.

    That is exact, because no token of this vocabulary reaches across a space that has a visible character on both
    sides: its patterns allow a space at the beginning of a token, or among other white space.
    """

    def __init__(self, count_tokens: CountTokens | None) -> None:
        self._count = count_tokens or (lambda text: 0)
        self._first = _Words(self._count, before="")
        self._words = _Words(self._count, before=" ")

    def of(self, text: str) -> tuple[int, int]:
        """Words and tokens."""
        first, space, rest = text.partition(" ")
        if not space:
            return 1, self._tokens_of(text)
        words = rest.split(" ")
        tokens: int = self._first[first] + sum(map(self._words.__getitem__, words))
        if tokens < _NOT_ALONE:
            return len(words) + 1, tokens
        return words_of_text(text), self._with_more_white_space(text)

    def _with_more_white_space(self, text: str) -> int:
        first, *words = _BETWEEN_WORDS.split(text)
        return self._tokens_of(first) + sum(map(self._spaced, words))

    def _spaced(self, word: str) -> int:
        known = self._words[word]
        return known if known < _NOT_ALONE else self._tokens_of(f" {word}")

    def _tokens_of(self, text: str) -> int:
        return counted(self._count, text)


class _Words(dict[str, int]):
    """The tokens of words with what comes before them; `_NOT_ALONE` for what has white space at one of its ends."""

    def __init__(self, count: CountTokens, before: str) -> None:
        super().__init__()
        self._count, self._before = count, before

    def __missing__(self, word: str) -> int:
        stands_alone = word and word == word.strip()
        number = counted(self._count, f"{self._before}{word}") if stands_alone else _NOT_ALONE
        if len(word) <= _LONGEST_KEPT:
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[word] = number
        return number


def counted(count: CountTokens, text: str) -> int:
    """The tokens of any text, even of one that is not valid Unicode."""
    try:
        return count(text)
    except UnicodeEncodeError:
        # Half of a surrogate pair is no character: it would be sent as a replacement character.
        return count(text.encode("utf-8", "replace").decode())
