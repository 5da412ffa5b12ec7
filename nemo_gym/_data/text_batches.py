# SPDX-License-Identifier: Apache-2.0
"""Many texts measured at once with numpy: the same numbers as `TextLengths`.

Texts are cut into words where it is safe, and the words are looked up by hash in a table, all as array operations. Only
words that the table does not hold go to the tokenizer, one by one.
"""

import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nemo_gym._data.tokens import CountTokens, counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

BATCH_CHARACTERS = 1 << 17
LONGEST_TEXT = 1 << 16
"""Batches are closed once they have so many characters; longer texts are not for them."""

_LONGEST_WORD = 32
_SLOT_BITS = 18
_TOKEN_BITS = 8
_WINDOW_BYTES = 8
_MIX = 0xD6E8FEB86659FD93
_BEYOND_WHITE_SPACE = 0x3001
# The white space in ASCII: five characters from each of these on.
_WHITE_SPACE_FROM = (ord("\t"), 0x1C)


@functools.lru_cache(maxsize=1)
def text_batches(count_tokens: CountTokens) -> "TextBatches | None":
    """One for all who count the same way; None where numpy is not installed."""
    try:
        return TextBatches(count_tokens, importlib.import_module("numpy"))
    except ImportError:
        return None


class TextBatches:
    """Measures texts of `LONGEST_TEXT` characters at most, `BATCH_CHARACTERS` and one more text at a time."""

    def __init__(self, count_tokens: CountTokens, numpy: Any) -> None:
        self._np, self._count = numpy, functools.partial(counted, count_tokens)
        self._is_visible = numpy.array([not chr(code).isspace() for code in range(_BEYOND_WHITE_SPACE + 1)])
        # The first byte of a window is the lowest.
        self._masks = numpy.array([(1 << 8 * count) - 1 for count in range(_WINDOW_BYTES + 1)], dtype=numpy.uint64)
        # A word may be in either of two slots: the upper bits of its hash, and below them how many tokens it has.
        self._words = numpy.zeros(1 << _SLOT_BITS, dtype=numpy.uint64)

    def of(self, texts: Sequence[str]) -> tuple[list[int], list[int]]:
        """Words and tokens of each text; none of them may be empty."""
        if all(map(str.isascii, texts)):
            return self._of_alike(texts)
        # ASCII takes a byte a character, other texts four: the few that are not ASCII must not slow down the rest.
        words, tokens = [0] * len(texts), [0] * len(texts)
        for is_ascii in (True, False):
            places = [place for place, text in enumerate(texts) if text.isascii() is is_ascii]
            if places:
                measured = self._of_alike([texts[place] for place in places])
                for place, text_words, text_tokens in zip(places, *measured, strict=True):
                    words[place], tokens[place] = text_words, text_tokens
        return words, tokens

    def _of_alike(self, texts: Sequence[str]) -> tuple[list[int], list[int]]:
        np = self._np
        whole = "".join(texts)
        raw, codes, is_visible = self._characters_of(whole)
        borders = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=borders[1:])
        is_space = codes == ord(" ")
        begins = self._word_begins(is_space, is_visible, borders[:-1])
        places = np.searchsorted(begins, borders)
        # If every space begins a word, there is none beside another: then what is between them is what is between runs.
        if np.count_nonzero(is_space) == len(begins) - len(texts):
            words = np.diff(places)
        else:
            words = 1 + self._runs_between(borders, is_space)
        tokens = self._tokens_of(whole, raw, begins)
        return words.tolist(), np.add.reduceat(tokens, places[:-1]).tolist()

    def _runs_between(self, borders: "Array", is_space: "Array") -> "Array":
        """How many runs of spaces there are between one border and the next."""
        np = self._np
        begins = is_space.copy()
        begins[1:] &= ~is_space[:-1]
        begins[borders[:-1]] = is_space[borders[:-1]]
        runs: Array = np.diff(np.searchsorted(np.flatnonzero(begins), borders))
        return runs

    def _characters_of(self, whole: str) -> "tuple[bytes, Array, Array]":
        """A text as bytes, its characters as numbers, and which of them are no white space."""
        np = self._np
        if whole.isascii():
            raw = whole.encode()
            codes = np.frombuffer(raw, dtype=np.uint8)
            # Bytes wrap around: what comes before a range is far behind it too.
            controls, separators = (codes - first > 4 for first in _WHITE_SPACE_FROM)
            return raw, codes, controls & separators
        raw = whole.encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(raw, dtype="<u4")
        return raw, codes, self._is_visible[np.minimum(codes, _BEYOND_WHITE_SPACE)]

    def _word_begins(self, is_space: "Array", is_visible: "Array", starts: "Array") -> "Array":
        """Where words begin: with a text, or with a space that has a visible character on both sides."""
        begins = is_space.copy()
        begins[1:] &= is_visible[:-1]
        begins[:-1] &= is_visible[1:]
        # A space at the end of a text has nothing behind it: what comes next there belongs to another text.
        begins[starts[1:] - 1] = False
        begins[-1] = False
        begins[starts] = True
        found: Array = self._np.flatnonzero(begins)
        return found

    def _tokens_of(self, whole: str, raw: bytes, begins: "Array") -> "Array":
        """The tokens of every word."""
        np = self._np
        lengths = np.empty_like(begins)
        np.subtract(begins[1:], begins[:-1], out=lengths[:-1])
        lengths[-1] = len(whole) - begins[-1]
        hashes = self._hashes_of(raw, begins, lengths, len(raw) // len(whole))
        found = self._words.take(self._slots(hashes))
        elsewhere = np.flatnonzero(_differ(found, hashes))
        found[elsewhere] = self._words.take(self._other_slots(hashes[elsewhere]))
        unknown = elsewhere[_differ(found[elsewhere], hashes[elsewhere])]
        tokens: Array = (found & ((1 << _TOKEN_BITS) - 1)).view(np.int64)
        if len(unknown):
            places = zip(begins[unknown].tolist(), lengths[unknown].tolist(), strict=True)
            words = [whole[begin : begin + length] for begin, length in places]
            counts = {word: self._count(word) for word in set(words)}
            tokens[unknown] = [counts[word] for word in words]
            kept = unknown[(lengths[unknown] <= _LONGEST_WORD) & (tokens[unknown] < 1 << _TOKEN_BITS)]
            self._keep(hashes[kept], tokens[kept])
        return tokens

    def _keep(self, hashes: "Array", tokens: "Array") -> None:
        """Put words into the first of their slots if it is free, else into the other, whatever is there."""
        np = self._np
        slots = self._slots(hashes)
        chosen = np.where(self._words[slots] == 0, slots, self._other_slots(hashes))
        self._words[chosen] = hashes >> _TOKEN_BITS << _TOKEN_BITS | tokens.astype(np.uint64)

    def _hashes_of(self, raw: bytes, begins: "Array", lengths: "Array", width: int) -> "Array":
        """A hash of each word, of its length, and of the bytes that a character has, read in windows of eight bytes.

        Windows, because there are far fewer words than characters. A word that is too long to be kept is not read to
        its end: its length tells its hash from all that are in the table.
        """
        np = self._np
        count, step = len(raw) // width, _WINDOW_BYTES // width
        # Copied, because numbers are taken faster from where they lie side by side than from where they overlap.
        windows = np.ndarray(count, dtype="<u8", buffer=raw + bytes(_WINDOW_BYTES), strides=(width,)).copy()
        hashes: Array = (lengths + (width << 32)).view(np.uint64)
        hashes *= _MIX
        hashes ^= self._masked(windows.take(begins), lengths * width)
        _mix(hashes)
        longer = np.flatnonzero(lengths > step)
        for done in range(step, _LONGEST_WORD, step):
            if not len(longer):
                break
            left = lengths.take(longer) - done
            mixed = hashes.take(longer)
            _mix(mixed)
            mixed ^= self._masked(windows.take(begins.take(longer) + done), left * width)
            _mix(mixed)
            hashes[longer] = mixed
            longer = longer[left > step]
        return hashes

    def _masked(self, windows: "Array", size_bytes: "Array") -> "Array":
        """Windows, which are changed, of which so many bytes count."""
        windows &= self._masks.take(size_bytes, mode="clip")
        return windows

    def _slots(self, hashes: "Array") -> "Array":
        slots: Array = (hashes >> (64 - _SLOT_BITS)).view(self._np.int64)
        return slots

    def _other_slots(self, hashes: "Array") -> "Array":
        """From bits that have no part in the first slot."""
        slots: Array = (hashes << _SLOT_BITS >> (64 - _SLOT_BITS)).view(self._np.int64)
        return slots


def _differ(found: "Array", hashes: "Array") -> "Array":
    """Which of the entries of the table are not those of the words with these hashes."""
    different: Array = (found ^ hashes) >= 1 << _TOKEN_BITS
    return different


def _mix(numbers: "Array") -> None:
    """Different for different numbers; twice, and every bit of a number has a part in most bits of the result.

    In place: arrays of their own for every step would not fit the cache of the processor.
    """
    numbers *= _MIX
    numbers ^= numbers >> 32
