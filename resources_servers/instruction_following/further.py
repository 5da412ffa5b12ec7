# SPDX-License-Identifier: Apache-2.0
"""Instructions beyond IFEval that training sets use: on words, letters, first and last words, copies and counts."""

import itertools
import re

from resources_servers.instruction_following.ifeval import Relation, holds
from resources_servers.instruction_following.text_units import blocks, divided, sentences, tokens, words

_MARKS = re.compile(r"[^\w\s]")


def paragraphs(text: str) -> bool:
    """Two paragraphs with the divider `***` between them."""
    parts = [part for part in divided(text) if part]
    return "***" in text and len(parts) == 2


def paragraphs2(text: str) -> bool:
    """Two paragraphs with an empty line between them."""
    return len(blocks(text)) == 2


def first_word_sent(text: str, *, first_word: str) -> bool:
    """Every sentence begins with the word."""
    found = sentences(text)
    return bool(found) and all(_first(sentence) == _folded(first_word) for sentence in found)


def first_word_answer(text: str, *, first_word: str) -> bool:
    return _first(text) == _folded(first_word)


def last_word_sent(text: str, *, last_word: str) -> bool:
    """Every sentence ends with the word."""
    found = sentences(text)
    return bool(found) and all(_last(sentence) == _folded(last_word) for sentence in found)


def last_word_answer(text: str, *, last_word: str) -> bool:
    return _last(text) == _folded(last_word)


def lowercase_counting(text: str, *, N: int) -> bool:
    """At most so many words in lower case."""
    return sum(word.islower() for word in tokens(text)) <= N


def letter_counting(text: str, *, N: int, relation: Relation = "at least") -> bool:
    return holds(sum(map(str.isalpha, text)), relation, N)


def letter_counting2(text: str, *, letter: str, let_frequency: int, let_relation: Relation = "at least") -> bool:
    return holds(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


def count_unique(text: str) -> bool:
    """No word twice."""
    found = [word.lower() for word in tokens(text)]
    return bool(found) and len(set(found)) == len(found)


def count_increment_word(text: str, *, keyword1: str, keyword2: str) -> bool:
    """The first word once, the second twice."""
    return _count(text, keyword1) == 1 and _count(text, keyword2) == 2


def counting_composition(text: str, *, n_sent: int, n_words: int) -> bool:
    """Three paragraphs with `***` between them, of so many sentences of so many words."""
    parts = [part for part in divided(text) if part]
    return len(parts) == 3 and all(_has_shape(part, n_sent, n_words) for part in parts)


def word_once(text: str, *, keyword: str) -> bool:
    return _count(text, keyword) == 1


def word_count_different_numbers(
    text: str, *, keyword: str, frequency: int, relation: Relation | str = "at least"
) -> bool:
    count = _count(text, keyword)
    return count == frequency if relation not in ("less than", "at least") else holds(count, relation, frequency)  # type: ignore[arg-type]


def exclude_word_harder(text: str, *, keyword: str) -> bool:
    return _count(text, keyword) == 0


def no_adjacent_consecutive(text: str) -> bool:
    """No two words in a row begin with letters that follow each other in the alphabet."""
    initials = [ord(word[0].lower()[0]) for word in tokens(text)]
    return not any(second - first == 1 for first, second in itertools.pairwise(initials))


def palindrome(text: str) -> bool:
    """Some word of three letters or more reads the same backwards."""
    return any(len(word) > 2 and word == word[::-1] for word in (token.lower() for token in tokens(text)))


def keyword_specific_position(text: str, *, keyword: str, n: int, m: int) -> bool:
    """The m-th word of the n-th sentence."""
    found = sentences(text)
    in_sentence = tokens(found[n - 1]) if 1 <= n <= len(found) else []
    return 1 <= m <= len(in_sentence) and in_sentence[m - 1].lower() == _folded(keyword)


def start_end(text: str) -> bool:
    """The first word is the last one too."""
    return len(tokens(text)) > 1 and _first(text) == _last(text)


def square_brackets(text: str) -> bool:
    """Every word in `[…]`."""
    return bool(text.strip()) and all(re.fullmatch(r"\[[^\[\]\s]++\]\W?", word) for word in text.split())


def bigram_wrapping(text: str) -> bool:
    """Every two words in `<<…>>`; the last may be alone."""
    wrapped = re.findall(r"<<([^<>]++)>>", text)
    outside = re.sub(r"<<[^<>]++>>", "", text)
    counts = [len(part.split()) for part in wrapped]
    return bool(counts) and not words(outside) and all(count == 2 for count in counts[:-1]) and counts[-1] in (1, 2)


def sentence_hyphens(text: str) -> bool:
    """Sentences joined by hyphens, without spaces between them."""
    return "-" in text and not re.search(r"[.!?]\s|\s-|-\s", text.strip())


def copying(text: str, *, prompt_to_repeat: str) -> bool:
    """Nothing but the prompt."""
    return text.strip().lower() == prompt_to_repeat.strip().lower()


def copying_multiple(text: str, *, prompt_to_repeat: str, N: int) -> bool:
    """The prompt so many times, with `******` between."""
    copies = [part.strip().lower() for part in re.split(r"\*{6}", text)]
    return len(copies) == N and set(copies) == {prompt_to_repeat.strip().lower()}


def punctuation_dot(text: str) -> bool:
    return "." not in text


def punctuation_exclamation(text: str) -> bool:
    return "!" not in text


def _folded(word: str) -> str:
    return " ".join(_MARKS.sub(" ", word).split()).lower()


def _first(text: str) -> str:
    return next(iter(tokens(text[:2000])), "").lower()


def _last(text: str) -> str:
    return next(reversed(tokens(text[-2000:])), "").lower()


def _count(text: str, keyword: str) -> int:
    return len(re.findall(rf"\b{re.escape(keyword.strip())}\b", text, re.IGNORECASE))


def _has_shape(part: str, n_sent: int, n_words: int) -> bool:
    found = sentences(part)
    return len(found) == n_sent and all(len(tokens(sentence)) == n_words for sentence in found)


CHECKS = {
    "paragraphs:paragraphs": paragraphs,
    "paragraphs:paragraphs2": paragraphs2,
    "first_word:first_word_sent": first_word_sent,
    "first_word:first_word_answer": first_word_answer,
    "last_word:last_word_sent": last_word_sent,
    "last_word:last_word_answer": last_word_answer,
    "count:lowercase_counting": lowercase_counting,
    "count:count_unique": count_unique,
    "count:count_increment_word": count_increment_word,
    "count:counting_composition": counting_composition,
    "letters:letter_counting": letter_counting,
    "letters:letter_counting2": letter_counting2,
    "keywords:word_once": word_once,
    "keywords:word_count_different_numbers": word_count_different_numbers,
    "keywords:exclude_word_harder": exclude_word_harder,
    "keywords:no_adjacent_consecutive": no_adjacent_consecutive,
    "keywords:palindrome": palindrome,
    "keywords:keyword_specific_position": keyword_specific_position,
    "keywords:start_end": start_end,
    "detectable_format:square_brackets": square_brackets,
    "detectable_format:bigram_wrapping": bigram_wrapping,
    "detectable_format:sentence_hyphens": sentence_hyphens,
    "copy:copy": copying,
    "copy:copying_simple": copying,
    "copy:copying_multiple": copying_multiple,
    "punctuation:punctuation_dot": punctuation_dot,
    "punctuation:punctuation_exclamation": punctuation_exclamation,
}
