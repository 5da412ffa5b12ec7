# SPDX-License-Identifier: Apache-2.0
"""Instructions beyond IFEval that training sets use: on words, letters, first and last words, copies and counts."""

import itertools
import re

from resources_servers.instruction_following.ifeval import (
    Relation,
    count_keyword,
    count_parts,
    holds,
    keyword_frequency,
    letter_frequency,
)
from resources_servers.instruction_following.text_units import divide, split_sentences, tokens


def paragraphs(text: str) -> bool:
    """Two paragraphs with the divider `***` between them."""
    return count_parts(divide(text)) == 2


def paragraphs2(text: str) -> bool:
    """Two paragraphs with an empty line between them."""
    return count_parts(text.split("\n\n")) == 2


def first_word_sent(text: str, *, first_word: str) -> bool:
    """Every sentence begins with the word."""
    found = split_sentences(text)
    return all(sentence and sentence.split()[0].lower() == first_word.lower() for sentence in found)


def first_word_answer(text: str, *, first_word: str) -> bool:
    return text.split()[0].lower() == first_word.lower()


def last_word_sent(text: str, *, last_word: str) -> bool:
    """Every sentence ends with the word."""
    return all(sentence and _last_word(sentence) == last_word.lower() for sentence in split_sentences(text))


def last_word_answer(text: str, *, last_word: str) -> bool:
    return _last_word(text) == last_word.lower()


def lowercase_counting(text: str, *, N: int) -> bool:
    """At most so many words in lower case."""
    return len(re.findall(r"\b[a-z]++\b", text)) <= N


def letter_counting(text: str, *, N: int, relation: Relation = "at least") -> bool:
    return holds(len(re.findall("[a-zA-Z]", text)), relation, N)


def count_unique(text: str) -> bool:
    """No word or mark twice."""
    found = tokens(text)
    return len(set(found)) == len(found)


def count_increment_word(text: str, *, keyword1: str, keyword2: str) -> bool:
    """The first word once, the second twice."""
    return count_keyword(text, keyword1) == 1 and count_keyword(text, keyword2) == 2


def counting_composition(text: str, *, n_sent: int, n_words: int) -> bool:
    """Three paragraphs with `***` between them, of so many sentences of so many words, marks included."""
    parts = divide(text)
    return count_parts(parts) == 3 and all(_has_shape(part, n_sent, n_words) for part in parts)


def word_once(text: str, *, keyword: str) -> bool:
    return count_keyword(text, keyword) == 1


def exclude_word_harder(text: str, *, keyword: str) -> bool:
    """Not between spaces; at the ends, beside a mark or in another case it may stand."""
    return f" {keyword} " not in text


def no_adjacent_consecutive(text: str) -> bool:
    """No two words in a row begin with letters that follow each other."""
    initials = [ord(word[0].lower()[0]) for word in text.split()]
    return not any(second - first == 1 for first, second in itertools.pairwise(initials))


def palindrome(text: str) -> bool:
    """Some word, as short as it may be, reads the same backwards."""
    return any(word == word[::-1] for word in text.split())


def keyword_specific_position(text: str, *, keyword: str, n: int, m: int) -> bool:
    """The m-th word of the n-th sentence."""
    found = split_sentences(text)
    in_sentence = tokens(found[n - 1]) if 1 <= n <= len(found) else []
    return 1 <= m <= len(in_sentence) and in_sentence[m - 1] == keyword


def start_end(text: str) -> bool:
    """The first word is the last one too; a mark at the end is a word of its own."""
    found = tokens(text)
    return len(found) > 1 and found[0].lower() == found[-1].lower()


def square_brackets(text: str) -> bool:
    """Every word in `[…]`."""
    return all(word.startswith("[") and word.endswith("]") for word in text.split())


def bigram_wrapping(text: str) -> bool:
    """Every two words in `<<…>>`; the last may be alone."""
    found = text.split()
    pairs = zip(found[::2], found[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


def sentence_hyphens(text: str) -> bool:
    """Sentences joined by hyphens, without spaces between them."""
    found = split_sentences(text.replace("-", " "))
    return all(piece == sentence for piece, sentence in zip(text.split("-"), found, strict=False))


def copying(text: str, *, prompt_to_repeat: str) -> bool:
    """Nothing but the prompt."""
    return text.strip().lower() == prompt_to_repeat.strip().lower()


def copying_multiple(text: str, *, prompt_to_repeat: str, N: int) -> bool:
    """The prompt so many times, with `******` between."""
    copies = [part.strip().lower() for part in text.split("******")]
    return len(copies) == N and set(copies) == {prompt_to_repeat.strip().lower()}


def copy_span(text: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Nothing but some characters of the prompt."""
    return text.strip().lower() == prompt_to_repeat[n_start:n_end].strip().lower()


def repeat_phrase(text: str, *, phrase: str, small_n: int) -> bool:
    """The phrase so many times, each with at most one word changed, and the last with one."""
    wanted = phrase.split()
    found = [match.split() for match in re.findall(rf"{wanted[0]} .*? {wanted[-1]}", text)]
    if len(found) != small_n or any(len(one) != len(wanted) for one in found):
        return False
    changes = [sum(word != other for word, other in zip(one, wanted, strict=True)) for one in found]
    return max(changes, default=0) <= 1 and changes[-1:] == [1]


def punctuation_dot(text: str) -> bool:
    return "." not in text


def punctuation_exclamation(text: str) -> bool:
    return "!" not in text


def _last_word(text: str) -> str:
    return re.sub(r"[^\w\s]", "", text.split()[-1]).lower()


def _has_shape(part: str, n_sent: int, n_words: int) -> bool:
    found = split_sentences(part)
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
    "letters:letter_counting2": letter_frequency,
    "keywords:word_once": word_once,
    "keywords:word_count_different_numbers": keyword_frequency,
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
    "copy:repeat_phrase": repeat_phrase,
    "new:copy_span_idx": copy_span,
    "punctuation:punctuation_dot": punctuation_dot,
    "punctuation:punctuation_exclamation": punctuation_exclamation,
}
