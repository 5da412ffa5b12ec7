# SPDX-License-Identifier: Apache-2.0
"""Words, sentences and paragraphs, as the reference of these instructions counts them.

Sentences and the tokens in them are those of nltk: its Punkt algorithm and its Treebank tokenizer. Punkt's English
model (`punkt_tab`) is used if nltk finds it; without it, the abbreviations and sentence starters below take its place.
`split_sentences` is the other way to count sentences, which the instructions beyond IFEval use.
"""

import re
from functools import cache

import regex
from nltk.tokenize import NLTKWordTokenizer
from nltk.tokenize.punkt import _ORTHO_LC, PunktParameters, PunktSentenceTokenizer, PunktTokenizer

_WORD = regex.compile(r"\w+")
_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_TOKENIZER = NLTKWordTokenizer()

_ABBREVIATIONS = (
    "mr mrs ms dr prof st jr sr gen col maj lt sen rep messrs inc ltd co corp bros vs ave ft jan feb "
    "aug sept oct nov dec u.s u.k u.n d.c a.m p.m ph.d j.p r.i s.c n.y n.j"
)
_STARTERS = "the he it they i this these there in but however if when while although since so both most many some"
_COMMON_WORDS = (
    f"{_STARTERS} she we you that those at on for and after before as then also each his her its their our my your "
    "what why how who where which first second third last next one two three another other all any no not yes to from "
    "with without by of a an is are was were be can could will would should may might must do does did have has had "
    "let please make use write read see add call go take give get come keep try put set find ask think know look here "
    "now today because until once only even just still more less very every such same new good great"
)
"""Words that are written in lower case within a sentence: after an initial, as in `A. First`, they begin one."""

_INSIDE = "\ue000"  # a dot that ends no sentence
_END = "\ue001"
_STARTER = (
    r"(Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|He\s|She\s|It\s|They\s|Their\s|Our\s|We\s|But\s|However\s|That\s|This\s|Wherever)"
)
_SUFFIX = "(Inc|Ltd|Jr|Sr|Co)"
_LETTER = "([A-Za-z])"
_SPLITTING = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(Mr|St|Mrs|Ms|Dr)[.]", rf"\1{_INSIDE}"),
        (r"[.](com|net|org|io|gov|edu|me)", rf"{_INSIDE}\1"),
        (r"([0-9])[.]([0-9])", rf"\1{_INSIDE}\2"),
        (r"\.{2,}", lambda dots: _INSIDE * len(dots[0]) + _END),
        (r"Ph\.D\.", f"Ph{_INSIDE}D{_INSIDE}"),
        (rf"\s{_LETTER}[.] ", rf" \1{_INSIDE} "),
        (rf"([A-Z][.][A-Z][.](?:[A-Z][.])?) {_STARTER}", rf"\1{_END} \2"),
        (rf"{_LETTER}[.]{_LETTER}[.]{_LETTER}[.]", rf"\1{_INSIDE}\2{_INSIDE}\3{_INSIDE}"),
        (rf"{_LETTER}[.]{_LETTER}[.]", rf"\1{_INSIDE}\2{_INSIDE}"),
        (rf" {_SUFFIX}[.] {_STARTER}", rf" \1{_END} \2"),
        (rf" {_SUFFIX}[.]", rf" \1{_INSIDE}"),
        (rf" {_LETTER}[.]", rf" \1{_INSIDE}"),
        (r"\.”", "”."),
        (r'([.!?])"', r'"\1'),
        (r"[.?!]", rf"\g<0>{_END}"),
        (_INSIDE, "."),
    )
)


def words(text: str) -> list[str]:
    """Return runs of letters with their marks, digits and underscores: `don't` is two."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Return the sentences that Punkt finds."""
    return list(_punkt().tokenize(text))


def tokens(text: str) -> list[str]:
    """Return words, marks, quotes, brackets and parts of contractions, each on its own."""
    return [token for sentence in sentences(text) for token in _TOKENIZER.tokenize(sentence)]


def split_sentences(text: str) -> list[str]:
    """Return the sentences between `.`, `?` and `!`, by an ordered list of exceptions."""
    marked = f" {text}  ".replace("\n", " ")
    for pattern, replacement in _SPLITTING:
        marked = pattern.sub(replacement, marked)
    pieces = [piece.strip() for piece in marked.split(_END)]
    return pieces if pieces[-1] else pieces[:-1]


def divide(text: str) -> list[str]:
    """Return the parts between dividers `***`, as they are."""
    return _DIVIDER.split(text)


def has_model() -> bool:
    """Return whether nltk finds Punkt's English model on this machine."""
    return isinstance(_punkt(), PunktTokenizer)


@cache
def _punkt() -> PunktSentenceTokenizer:
    try:
        return PunktTokenizer("english")
    except LookupError:
        parameters = PunktParameters()
        parameters.abbrev_types.update(_ABBREVIATIONS.split())
        parameters.sent_starters.update(_STARTERS.split())
        for word in _COMMON_WORDS.split():
            parameters.add_ortho_context(word, _ORTHO_LC)
        return PunktSentenceTokenizer(parameters)
