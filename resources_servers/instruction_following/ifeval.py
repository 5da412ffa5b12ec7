# SPDX-License-Identifier: Apache-2.0
"""The 25 instructions of IFEval (Zhou et al., 2023): does a reply follow one? Our own code for their definitions.

Every function takes the reply and the instruction's arguments by the names that IFEval gives them. Keywords are regular
expressions.
"""

import json
import re
from typing import Literal

from resources_servers.instruction_following.languages import detect_language, is_in_language
from resources_servers.instruction_following.text_units import divide, sentences, tokens, words

Relation = Literal["less than", "at least"]

_HIGHLIGHT = re.compile(r"\*[^\n\*]*+\*")
_BOLD = re.compile(r"\*\*[^\n\*]*+\*\*")
_STAR_BULLET = re.compile(r"^[^\S\n]*+\*[^\*].*$", re.MULTILINE)
_DASH_BULLET = re.compile(r"^[^\S\n]*+-.*$", re.MULTILINE)
CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def holds(count: int, relation: Relation, threshold: int) -> bool:
    """Whether a count is as many as was asked for."""
    return count < threshold if relation == "less than" else count >= threshold


def keywords_existence(text: str, *, keywords: list[str]) -> bool:
    return all(re.search(keyword, text, re.IGNORECASE) for keyword in keywords)


def count_keyword(text: str, keyword: str) -> int:
    """Return how often a keyword, which is a regular expression, is found, within words too."""
    return len(re.findall(keyword, text, re.IGNORECASE))


def keyword_frequency(text: str, *, keyword: str, frequency: int, relation: Relation = "at least") -> bool:
    return holds(count_keyword(text, keyword), relation, frequency)


def forbidden_words(text: str, *, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in forbidden_words)


def letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: Relation = "at least") -> bool:
    return holds(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


def response_language(text: str, *, language: str) -> bool:
    return is_in_language(text, language)


def number_sentences(text: str, *, num_sentences: int, relation: Relation = "at least") -> bool:
    return holds(len(sentences(text)), relation, num_sentences)


def number_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    """Exactly so many, with the divider `***` between them; at the ends it may stand too."""
    return count_parts(divide(text)) == num_paragraphs


def count_parts(parts: list[str]) -> int | None:
    """Return how many parts there are, without blank ones at the ends; None if one between them is blank."""
    if any(not part.strip() for part in parts[1:-1]):
        return None
    return sum(bool(part.strip()) for part in parts)


def number_words(text: str, *, num_words: int, relation: Relation = "at least") -> bool:
    return holds(len(words(text)), relation, num_words)


def nth_paragraph_first_word(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs between empty lines, of which one begins with the word."""
    pieces = text.split("\n\n")
    count = sum(bool(piece.strip()) for piece in pieces)
    if count != num_paragraphs or not 1 <= nth_paragraph <= count or not pieces[nth_paragraph - 1].strip():
        return False
    word = pieces[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return re.split("[.,?!'\"]", word)[0].lower() == first_word.lower()


def number_placeholders(text: str, *, num_placeholders: int) -> bool:
    """At least so many pieces in `[…]`, within lines."""
    count = 0
    for line in text.split("\n"):
        end = -1
        while (begin := line.find("[", end + 1)) >= 0 and (end := line.find("]", begin)) >= 0:
            count += 1
    return count >= num_placeholders


def postscript(text: str, *, postscript_marker: str) -> bool:
    known = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(known.get(postscript_marker, postscript_marker.lower()), text.lower()) is not None


def number_bullet_lists(text: str, *, num_bullets: int) -> bool:
    """Exactly so many lines that begin with `*` or `-`; a line in bold or a divider is none."""
    return len(_STAR_BULLET.findall(text)) + len(_DASH_BULLET.findall(text)) == num_bullets


def constrained_response(text: str) -> bool:
    return any(response in text for response in CONSTRAINED_RESPONSES)


def number_highlighted_sections(text: str, *, num_highlights: int) -> bool:
    """At least so many pieces in `*…*` or `**…**`."""
    single = (piece.strip("*") for piece in _HIGHLIGHT.findall(text))
    double = (piece.removeprefix("**").removesuffix("**") for piece in _BOLD.findall(text))
    return sum(bool(piece.strip()) for piece in (*single, *double)) >= num_highlights


def multiple_sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections that begin with, for example, `Section 1`."""
    return len(re.findall(rf"{section_spliter}\s?\d+", text)) >= num_sections


def json_format(text: str) -> bool:
    """All of it is JSON, in a code block or not."""
    inner = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        inner = inner.removeprefix(fence)
    try:
        json.loads(inner.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def title(text: str) -> bool:
    """A line holds something in `<<…>>`."""
    for line in text.split("\n"):
        begin = line.find("<<")
        end = line.rfind(">>")
        if 0 <= begin < end - 2 and line[begin : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


def two_responses(text: str) -> bool:
    """Two different responses, separated by `******`."""
    parts = text.split("******")
    different = {part.strip() for part in parts if part.strip()}
    return count_parts(parts) == 2 == len(different)


def repeat_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(text: str, *, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(text: str) -> bool:
    stripped = text.strip()
    return len(stripped) > 1 and stripped[0] == '"' and stripped[-1] == '"'


def capital_word_frequency(text: str, *, capital_frequency: int, capital_relation: Relation = "at least") -> bool:
    return holds(sum(word.isupper() for word in tokens(text)), capital_relation, capital_frequency)


def english_capital(text: str) -> bool:
    return text.isupper() and detect_language(text) in ("en", None)


def english_lowercase(text: str) -> bool:
    return text.islower() and detect_language(text) in ("en", None)


def no_comma(text: str) -> bool:
    return "," not in text


CHECKS = {
    "keywords:existence": keywords_existence,
    "keywords:frequency": keyword_frequency,
    "keywords:forbidden_words": forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_paragraphs": number_paragraphs,
    "length_constraints:number_words": number_words,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "detectable_content:number_placeholders": number_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": number_bullet_lists,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": number_highlighted_sections,
    "detectable_format:multiple_sections": multiple_sections,
    "detectable_format:json_format": json_format,
    "detectable_format:title": title,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeat_prompt,
    "startend:end_checker": end_checker,
    "startend:quotation": quotation,
    "change_case:capital_word_frequency": capital_word_frequency,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "punctuation:no_comma": no_comma,
}
