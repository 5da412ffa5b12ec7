# SPDX-License-Identifier: Apache-2.0
"""Measure texts: in OpenAI tokens (`o200k_base`), offline and exact, and in the words of their JSON form.

Only the lengths are needed, not the tokens. The tokenizer comes with the extra `data`; without it, only words are
counted. Texts are measured one at a time, or in batches with numpy, which gives the same numbers.
"""

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

_LONGEST_KEPT = 64
_MOST_KEPT = 200_000
# More than any text has; a sum that reaches it contains a piece that cannot be counted alone.
_NOT_ALONE = 1 << 60
_BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")
_SPACES = re.compile(" +")

CountTokens = Callable[[str], int]
BATCH_CHARACTERS = 1 << 17
LONGEST_TEXT = 1 << 16
"""A batch is closed once it has this many characters; longer texts are not batched."""
_LONGEST_WORD = 32
_SLOT_BITS = 18
_TOKEN_BITS = 8
_WINDOW_BYTES = 8
_MIX = 0xD6E8FEB86659FD93
_BEYOND_WHITE_SPACE = 0x3001
# ASCII whitespace: five characters starting at each of these.
_WHITE_SPACE_FROM = (ord("\t"), 0x1C)


@functools.cache
def load_tokenizer() -> CountTokens | None:
    """Return a function that counts the tokens of a text; None if the tokenizer is not installed.

    Text that looks like a special token counts as plain text.
    """
    try:
        openai = importlib.import_module("rs_bpe.bpe").openai
    except ImportError:
        return None
    count: CountTokens = openai.o200k_base().count
    return count


class TextLengths:
    """Measures texts word by word and caches the words, several times faster than tokenizing whole texts.

    This is exact, because no token of this vocabulary reaches across a space that has a visible character on both
    sides: its patterns allow a space at the beginning of a token, or among other whitespace.
    """

    def __init__(self, count_tokens: CountTokens | None) -> None:
        self._count = count_tokens or (lambda text: 0)
        self._first = _Words(self._count, before="")
        self._words = _Words(self._count, before=" ")

    def of(self, text: str) -> tuple[int, int]:
        """Count the words and the tokens of a text; words are the pieces between spaces in JSON."""
        first, space, rest = text.partition(" ")
        if not space:
            return 1, count_safely(self._count, text)
        words = rest.split(" ")
        tokens: int = self._first[first] + sum(map(self._words.__getitem__, words))
        if tokens < _NOT_ALONE:
            return len(words) + 1, tokens
        # With whitespace other than single spaces, only count words separately that can be counted alone.
        first, *words = _BETWEEN_WORDS.split(text)
        tokens = count_safely(self._count, first)
        for word in words:
            known = self._words[word]
            tokens += known if known < _NOT_ALONE else count_safely(self._count, f" {word}")
        return 1 + (text.count(" ") if "  " not in text else len(_SPACES.findall(text))), tokens


class _Words(dict[str, int]):
    """The token counts of words including what precedes them; `_NOT_ALONE` for words with whitespace at either end."""

    def __init__(self, count: CountTokens, before: str) -> None:
        super().__init__()
        self._count = count
        self._before = before

    def __missing__(self, word: str) -> int:
        stands_alone = word and word == word.strip()
        number = count_safely(self._count, f"{self._before}{word}") if stands_alone else _NOT_ALONE
        if len(word) <= _LONGEST_KEPT:
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[word] = number
        return number


def count_safely(count: CountTokens, text: str) -> int:
    """Count the tokens of any text, even one that is not valid Unicode."""
    try:
        return count(text)
    except UnicodeEncodeError:
        # Half a surrogate pair is not a character: it would be sent as a replacement character.
        return count(text.encode("utf-8", "replace").decode())


if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@functools.lru_cache(maxsize=1)
def make_text_batches(count_tokens: CountTokens) -> "TextBatches | None":
    """Return the batches shared by everyone who counts the same way; None if numpy is not installed."""
    try:
        return TextBatches(count_tokens, importlib.import_module("numpy"))
    except ImportError:
        return None


class TextBatches:
    """Measures texts of at most `LONGEST_TEXT` characters, `BATCH_CHARACTERS` plus one text at a time."""

    def __init__(self, count_tokens: CountTokens, numpy: Any) -> None:
        self._np = numpy
        self._count = functools.partial(count_safely, count_tokens)
        self._is_visible = numpy.array([not chr(code).isspace() for code in range(_BEYOND_WHITE_SPACE + 1)])
        # The first byte of a window is the lowest.
        self._masks = numpy.array([(1 << 8 * count) - 1 for count in range(_WINDOW_BYTES + 1)], dtype=numpy.uint64)
        # A word may be in either of two slots: the upper bits of its hash, with its token count in the lower bits.
        self._words = numpy.zeros(1 << _SLOT_BITS, dtype=numpy.uint64)

    def of(self, texts: Sequence[str]) -> tuple[list[int], list[int]]:
        """Count the words and the tokens of each text; none of them may be empty."""
        if all(map(str.isascii, texts)):
            return self._measure_alike(texts)
        # ASCII takes one byte per character, other texts four: the few that are not ASCII must not slow down the rest.
        words = [0] * len(texts)
        tokens = [0] * len(texts)
        for is_ascii in (True, False):
            places = [place for place, text in enumerate(texts) if text.isascii() is is_ascii]
            if places:
                measured = self._measure_alike([texts[place] for place in places])
                for place, text_words, text_tokens in zip(places, *measured, strict=True):
                    words[place] = text_words
                    tokens[place] = text_tokens
        return words, tokens

    def _measure_alike(self, texts: Sequence[str]) -> tuple[list[int], list[int]]:
        np = self._np
        whole = "".join(texts)
        raw, codes, is_visible = self._read_characters(whole)
        borders = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=borders[1:])
        is_space = codes == ord(" ")
        begins = self._find_words(is_space, is_visible, borders[:-1])
        places = np.searchsorted(begins, borders)
        # If every space begins a word, no two are adjacent, so the gaps between spaces are the gaps between runs.
        if np.count_nonzero(is_space) == len(begins) - len(texts):
            words = np.diff(places)
        else:
            words = 1 + self._count_runs(borders, is_space)
        tokens = self._count_tokens(whole, raw, begins)
        return words.tolist(), np.add.reduceat(tokens, places[:-1]).tolist()

    def _count_runs(self, borders: "Array", is_space: "Array") -> "Array":
        """Count the runs of spaces between one border and the next."""
        np = self._np
        begins = is_space.copy()
        begins[1:] &= ~is_space[:-1]
        begins[borders[:-1]] = is_space[borders[:-1]]
        runs: Array = np.diff(np.searchsorted(np.flatnonzero(begins), borders))
        return runs

    def _read_characters(self, whole: str) -> "tuple[bytes, Array, Array]":
        """Return a text as bytes, its characters as numbers, and which of them are not whitespace."""
        np = self._np
        if whole.isascii():
            raw = whole.encode()
            codes = np.frombuffer(raw, dtype=np.uint8)
            # Bytes wrap around: what comes before a range is also far past it.
            controls, separators = (codes - first > 4 for first in _WHITE_SPACE_FROM)
            return raw, codes, controls & separators
        raw = whole.encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(raw, dtype="<u4")
        return raw, codes, self._is_visible[np.minimum(codes, _BEYOND_WHITE_SPACE)]

    def _find_words(self, is_space: "Array", is_visible: "Array", starts: "Array") -> "Array":
        """Find where words begin: at the start of a text, or at a space that has a visible character on both sides."""
        begins = is_space.copy()
        begins[1:] &= is_visible[:-1]
        begins[:-1] &= is_visible[1:]
        # A space at the end of a text has nothing after it: what follows belongs to another text.
        begins[starts[1:] - 1] = False
        begins[-1] = False
        begins[starts] = True
        found: Array = self._np.flatnonzero(begins)
        return found

    def _count_tokens(self, whole: str, raw: bytes, begins: "Array") -> "Array":
        """Count the tokens of every word."""
        np = self._np
        lengths = np.empty_like(begins)
        np.subtract(begins[1:], begins[:-1], out=lengths[:-1])
        lengths[-1] = len(whole) - begins[-1]
        hashes = self._hash_words(raw, begins, lengths, len(raw) // len(whole))
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
        """Put each word into its first slot if that is free, else into the second, overwriting what is there."""
        np = self._np
        slots = self._slots(hashes)
        chosen = np.where(self._words[slots] == 0, slots, self._other_slots(hashes))
        self._words[chosen] = hashes >> _TOKEN_BITS << _TOKEN_BITS | tokens.astype(np.uint64)

    def _hash_words(self, raw: bytes, begins: "Array", lengths: "Array", width: int) -> "Array":
        """Hash each word with its length and the width of its characters, read in windows of eight bytes.

        Windows, because there are far fewer words than characters. A word that is too long to be kept is not read to
        its end: its length distinguishes its hash from all those in the table.
        """
        np = self._np
        count = len(raw) // width
        step = _WINDOW_BYTES // width
        # Copied, because contiguous numbers are faster to gather than overlapping ones.
        windows = np.ndarray(count, dtype="<u8", buffer=raw + bytes(_WINDOW_BYTES), strides=(width,)).copy()
        hashes: Array = (lengths + (width << 32)).view(np.uint64)
        hashes *= _MIX
        hashes ^= self._mask(windows.take(begins), lengths * width)
        _mix(hashes)
        longer = np.flatnonzero(lengths > step)
        for done in range(step, _LONGEST_WORD, step):
            if not len(longer):
                break
            left = lengths.take(longer) - done
            mixed = hashes.take(longer)
            _mix(mixed)
            mixed ^= self._mask(windows.take(begins.take(longer) + done), left * width)
            _mix(mixed)
            hashes[longer] = mixed
            longer = longer[left > step]
        return hashes

    def _mask(self, windows: "Array", size_bytes: "Array") -> "Array":
        """Clear all but the first `size_bytes` of each window, in place."""
        windows &= self._masks.take(size_bytes, mode="clip")
        return windows

    def _slots(self, hashes: "Array") -> "Array":
        slots: Array = (hashes >> (64 - _SLOT_BITS)).view(self._np.int64)
        return slots

    def _other_slots(self, hashes: "Array") -> "Array":
        """Return the second slot of each word, from bits that the first one does not use."""
        slots: Array = (hashes << _SLOT_BITS >> (64 - _SLOT_BITS)).view(self._np.int64)
        return slots


def _differ(found: "Array", hashes: "Array") -> "Array":
    """Return which table entries are not those of the words with these hashes."""
    different: Array = (found ^ hashes) >= 1 << _TOKEN_BITS
    return different


def _mix(numbers: "Array") -> None:
    """Mix the bits of numbers; done twice, every bit of a number affects most bits of the result.

    In place: a new array for every step would not fit the CPU cache.
    """
    numbers *= _MIX
    numbers ^= numbers >> 32
