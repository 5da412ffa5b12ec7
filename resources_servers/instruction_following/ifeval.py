# SPDX-License-Identifier: Apache-2.0
"""The 25 instructions of IFEval (Zhou et al., 2023): does a reply follow one? Our own code for their definitions.

Every function takes the reply and the instruction's arguments by the names that IFEval gives them. Sentences and
languages are told by rules of our own, so counts at the edge may differ from those of other implementations.
"""

import json
import re
from typing import Literal

from resources_servers.instruction_following.languages import is_in_language
from resources_servers.instruction_following.text_units import blocks, divided, sentences, tokens, words

Relation = Literal["less than", "at least"]

_HIGHLIGHT = re.compile(r"\*\*([^\n*]*+)\*\*|\*([^\n*]*+)\*")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*+\]")
_FENCE = re.compile(r"```(?:json)?[ \t]*\n?(.*?)```", re.DOTALL | re.IGNORECASE)
CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def holds(count: int, relation: Relation, threshold: int) -> bool:
    """Whether a count is as many as was asked for."""
    return count < threshold if relation == "less than" else count >= threshold


def keywords_existence(text: str, *, keywords: list[str]) -> bool:
    folded = text.casefold()
    return all(keyword.casefold() in folded for keyword in keywords)


def keyword_frequency(text: str, *, keyword: str, frequency: int, relation: Relation = "at least") -> bool:
    return holds(text.casefold().count(keyword.strip().casefold()), relation, frequency)


def forbidden_words(text: str, *, forbidden_words: list[str]) -> bool:
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in forbidden_words)


def letter_frequency(text: str, *, letter: str, let_frequency: int, let_relation: Relation = "at least") -> bool:
    return holds(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


def response_language(text: str, *, language: str) -> bool:
    return is_in_language(text, language)


def number_sentences(text: str, *, num_sentences: int, relation: Relation = "at least") -> bool:
    return holds(len(sentences(text)), relation, num_sentences)


def number_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    """Exactly so many, with the divider `***` between them; at the ends it may stand too."""
    parts = divided(text)
    inner = parts[1:] if not parts[0] else parts
    inner = inner[:-1] if inner and not inner[-1] else inner
    return all(inner) and len(inner) == num_paragraphs


def number_words(text: str, *, num_words: int, relation: Relation = "at least") -> bool:
    return holds(len(words(text)), relation, num_words)


def nth_paragraph_first_word(text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Exactly so many paragraphs between empty lines, of which one begins with the word."""
    found = blocks(text)
    if len(found) != num_paragraphs or not 1 <= nth_paragraph <= len(found):
        return False
    begin = tokens(found[nth_paragraph - 1])[:1]
    return begin != [] and begin[0].lower() == first_word.strip().lower()


def number_placeholders(text: str, *, num_placeholders: int) -> bool:
    return len(_PLACEHOLDER.findall(text)) >= num_placeholders


def postscript(text: str, *, postscript_marker: str) -> bool:
    marker = postscript_marker.strip().lower()
    known = {"p.p.s": r"p\.\s?p\.\s?s", "p.p.s.": r"p\.\s?p\.\s?s", "p.s.": r"(?<!p\.)(?<!p\.\s)p\.\s?s\."}
    return re.search(known.get(marker, re.escape(marker)), text.lower()) is not None


def number_bullet_lists(text: str, *, num_bullets: int) -> bool:
    """Exactly so many lines that begin with `*` or `-`; a line in bold or a divider is none."""
    lines = (line.strip() for line in text.splitlines())
    return (
        sum(line.startswith("-") or (line[:1] == "*" and line[1:2] not in ("", "*")) for line in lines) == num_bullets
    )


def constrained_response(text: str) -> bool:
    return any(response in text for response in CONSTRAINED_RESPONSES)


def number_highlighted_sections(text: str, *, num_highlights: int) -> bool:
    """At least so many pieces in `*…*` or `**…**`."""
    return sum(bool((match[1] or match[2] or "").strip()) for match in _HIGHLIGHT.finditer(text)) >= num_highlights


def multiple_sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections that begin with, for example, `Section 1`."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d", text)) >= num_sections


def json_format(text: str) -> bool:
    """All of it is JSON, in a code block or not."""
    fenced = _FENCE.fullmatch(text.strip())
    try:
        json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return True


def title(text: str) -> bool:
    """A line holds something in `<<…>>`."""
    for line in text.splitlines():
        begin, end = line.find("<<"), line.rfind(">>")
        if 0 <= begin < end and line[begin + 2 : end].strip("<> \t"):
            return True
    return False


def two_responses(text: str) -> bool:
    """Two different responses, separated by `******`."""
    responses = [part.strip() for part in re.split(r"\*{6}", text)]
    inner = [part for number, part in enumerate(responses) if part or 0 < number < len(responses) - 1]
    return len(inner) == 2 and all(inner) and inner[0] != inner[1]


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
    return text.isupper() and is_in_language(text, "en")


def english_lowercase(text: str) -> bool:
    return text.islower() and is_in_language(text, "en")


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
