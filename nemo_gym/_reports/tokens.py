# SPDX-License-Identifier: Apache-2.0
"""The tokens of a rollout as a trainer sees them: one sequence, in which the model's own tokens are trained on.

Every generated item carries the whole prompt before it. If a prompt does not continue what came before, the
conversation was retokenized in between: a place to look at. No tokenizer is needed; texts are shown if the row holds
them. On a page, the more probable a token was to the model, the greener it is; tokens that are trained on are
underlined.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from nemo_gym._reports.html_elements import Html, element, join, soft
from nemo_gym._util.json_shapes import as_list, as_mapping, as_number

TOKEN_LIMIT = 4000
# The lowest log-prob of each color: probabilities of 90 %, 50 %, 20 % and 5 %.
_BOUNDS = (math.log(0.9), math.log(0.5), math.log(0.2), math.log(0.05))
_LEGEND = (("l0", "over 90 %"), ("l1", "over 50 %"), ("l2", "over 20 %"), ("l3", "over 5 %"), ("l4", "less"))
_CONTEXT_SHOWN = 24


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the sequence."""

    id: int | None
    text: str | None
    """None if the row only has the id."""
    logprob: float | None
    trained: bool
    """Whether the model generated it."""


@dataclass(frozen=True)
class TokenSequence:
    """All tokens of a rollout."""

    tokens: list[Token]
    n_trained: int
    breaks: list[int]
    """Positions where a prompt does not continue the sequence before it."""


def read_tokens(output: Sequence[Any]) -> TokenSequence | None:
    """Return the sequence of all output items; None if none of them holds tokens."""
    tokens: list[Token] = []
    ids: list[int | None] = []
    breaks: list[int] = []
    for item in output:
        generated = _read_generated(item) if isinstance(item, dict) else []
        if not generated:
            continue
        prompt = _list_ints(item.get("prompt_token_ids"))
        if prompt[: len(ids)] == ids:
            added = prompt[len(ids) :]
        else:
            breaks.append(len(tokens))
            ids, added = [], prompt
        tokens += [Token(one, None, None, False) for one in added]
        tokens += generated
        ids += [*added, *(token.id for token in generated)]
    if not tokens:
        return None
    return TokenSequence(tokens, sum(token.trained for token in tokens), breaks)


def _read_generated(item: Mapping[str, Any]) -> list[Token]:
    # Texts and log-probs as the Responses API puts them on a text part.
    entries = [entry for part in as_list(item.get("content")) for entry in as_list(as_mapping(part).get("logprobs"))]
    known = [entry for entry in entries if isinstance(entry, dict)]
    texts = [text if isinstance(text := entry.get("token"), str) else None for entry in known]
    ids = _list_ints(item.get("generation_token_ids"))
    if not ids:
        logprobs = [as_number(entry.get("logprob")) for entry in known]
        return [Token(None, text, logprob, True) for text, logprob in zip(texts, logprobs, strict=True)]
    logprobs = [as_number(one) for one in as_list(item.get("generation_log_probs"))]
    logprobs += [None] * (len(ids) - len(logprobs))
    if len(texts) != len(ids):  # texts come from another field: they belong to these ids only if there are as many
        texts = [None] * len(ids)
    return [Token(*one, True) for one in zip(ids, texts, logprobs, strict=False)]


def _list_ints(value: Any) -> list[int]:
    return [one for one in as_list(value) if type(one) is int]


def render_tokens(sequence: TokenSequence) -> Html:
    """Render the sequence, with as many tokens as a page can hold."""
    n_context = len(sequence.tokens) - sequence.n_trained
    said = f"{sequence.n_trained:,} tokens generated and trained on, {n_context:,} tokens of context"
    colors = [element("span", element("i", class_=name), label) for name, label in _LEGEND]
    trained = element("span", element("i", class_="on"), "trained on")
    legend = element("div", "Probability: ", *colors, trained, class_="ngv-legend")
    cut = len(sequence.tokens) - TOKEN_LIMIT
    more = soft(f"{cut:,} more tokens are in the raw JSON.") if cut > 0 else None
    return join([soft(said), legend, element("div", *_iter_rendered(sequence), class_="ngv-tokens"), more])


def _iter_rendered(sequence: TokenSequence) -> Iterator[Html]:
    breaks, at = set(sequence.breaks), 0
    for trained, group in groupby(sequence.tokens[:TOKEN_LIMIT], key=lambda token: token.trained):
        run = list(group)
        for position in sorted(breaks.intersection(range(at, at + len(run)))):
            note = f"At token {position} the prompt does not continue what came before."
            yield element("span", note, class_="break")
        at += len(run)
        if trained or len(run) <= 2 * _CONTEXT_SHOWN:
            yield from map(_render_token, run)
        else:
            yield from map(_render_token, run[:_CONTEXT_SHOWN])
            yield element("span", f"… {len(run) - 2 * _CONTEXT_SHOWN:,} tokens of context …", class_="cut")
            yield from map(_render_token, run[-_CONTEXT_SHOWN:])


def _render_token(token: Token) -> Html:
    text = str(token.id) if token.text is None else token.text.replace("\n", "⏎\n")
    classes = ["on" if token.trained else "", "id" if token.text is None else ""]
    if token.logprob is not None and not math.isnan(token.logprob):
        classes.insert(0, f"l{sum(token.logprob < bound for bound in _BOUNDS)}")
    title = [] if token.id is None else [f"token {token.id}"]
    if token.logprob is not None:
        title.append(f"log-prob {token.logprob:.3f} ({math.exp(min(token.logprob, 0.0)):.1%})")
    title.append("trained on" if token.trained else "context")
    return element("i", text, class_=" ".join(filter(None, classes)) or None, title=" · ".join(title))
