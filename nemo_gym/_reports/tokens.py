# SPDX-License-Identifier: Apache-2.0
"""The tokens of a rollout as a trainer sees them: one sequence, in which what the model wrote is trained on.

Every generated item carries the whole prompt before it. Where a prompt does not continue what came before, the
conversation was tokenized anew in between: a place to look at. No tokenizer is needed; texts are shown where the row
holds them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from nemo_gym._reports.html_elements import Html, element, joined


@dataclass(frozen=True, slots=True)
class Token:
    id: int | None
    text: str | None
    """None where the row tells only the id."""
    logprob: float | None
    trained: bool
    """The model generated it."""
    item: int
    """Which item of the output it belongs to, or leads up to."""


@dataclass(frozen=True)
class TokenView:
    tokens: list[Token]
    n_trained: int
    n_context: int
    breaks: list[int]
    """Positions where a prompt does not continue the sequence before it."""


def token_view(output: Sequence[Any]) -> TokenView | None:
    """The sequence of all output items; None if none of them holds tokens."""
    tokens: list[Token] = []
    ids: list[int | None] = []
    breaks: list[int] = []
    for number, item in enumerate(output):
        generated = _generated(item, number) if isinstance(item, dict) else []
        if not generated:
            continue
        prompt = _ints(item.get("prompt_token_ids"))
        if prompt[: len(ids)] == ids:
            added = prompt[len(ids) :]
        else:
            breaks.append(len(tokens))
            ids, added = [], prompt
        tokens += [Token(one, None, None, False, number) for one in added]
        tokens += generated
        ids += [*added, *(token.id for token in generated)]
    if not tokens:
        return None
    n_trained = sum(token.trained for token in tokens)
    return TokenView(tokens, n_trained, len(tokens) - n_trained, breaks)


def _generated(item: Mapping[str, Any], number: int) -> list[Token]:
    ids, logprobs = _ints(item.get("generation_token_ids")), item.get("generation_log_probs")
    told = _told(item.get("content"))
    if not ids:
        return [Token(None, text, logprob, True, number) for text, logprob in told]
    known = [_logprob(one) for one in logprobs] if isinstance(logprobs, list) else []
    known += [None] * (len(ids) - len(known))
    # Texts come from another field: they belong to these ids only if there are as many.
    texts = [text for text, _ in told] if len(told) == len(ids) else [None] * len(ids)
    return [Token(*one, True, number) for one in zip(ids, texts, known, strict=False)]


def _told(content: Any) -> list[tuple[str | None, float | None]]:
    """Texts and log-probs as the Responses API gives them on a text part."""
    told: list[tuple[str | None, float | None]] = []
    for part in content if isinstance(content, list) else ():
        entries = part.get("logprobs") if isinstance(part, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                text = entry.get("token")
                told.append((text if isinstance(text, str) else None, _logprob(entry.get("logprob"))))
    return told


def _ints(value: Any) -> list[int]:
    return [one for one in value if type(one) is int] if isinstance(value, list) else []


def _logprob(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) else None


TOKEN_LIMIT = 4000
# The least log-prob of each colour: probabilities of 90 %, 50 %, 20 % and 5 %.
_BOUNDS = (math.log(0.9), math.log(0.5), math.log(0.2), math.log(0.05))
_LEGEND = (("l0", "over 90 %"), ("l1", "over 50 %"), ("l2", "over 20 %"), ("l3", "over 5 %"), ("l4", "less"))
_CONTEXT_SHOWN = 24


def tokens_html(view: TokenView | None, limit: int = TOKEN_LIMIT) -> Html:
    """The sequence of tokens, up to `limit` of them; empty if there are none."""
    if view is None:
        return Html("")
    said = f"{view.n_trained:,} tokens generated and trained on, {view.n_context:,} tokens of context"
    shown = joined(_sequence(view, limit))
    cut = len(view.tokens) - limit
    more = element("p", f"{cut:,} more tokens are in the raw JSON.", class_="ngv-soft") if cut > 0 else None
    return joined([element("p", said, class_="ngv-soft"), _legend(), element("div", shown, class_="ngv-tokens"), more])


def _legend() -> Html:
    colours = [element("span", element("i", class_=name), label) for name, label in _LEGEND]
    trained = element("span", element("i", class_="on"), "trained on")
    return element("div", "Probability: ", *colours, trained, class_="ngv-legend")


def _sequence(view: TokenView, limit: int) -> Iterator[Html]:
    breaks, at = set(view.breaks), 0
    for trained, group in groupby(view.tokens[:limit], key=lambda token: token.trained):
        run = list(group)
        for place in sorted(breaks.intersection(range(at, at + len(run)))):
            yield element("span", f"At token {place} the prompt does not continue what came before.", class_="break")
        at += len(run)
        if trained or len(run) <= 2 * _CONTEXT_SHOWN:
            yield from map(_token, run)
        else:
            yield from map(_token, run[:_CONTEXT_SHOWN])
            yield element("span", f"… {len(run) - 2 * _CONTEXT_SHOWN:,} tokens of context …", class_="cut")
            yield from map(_token, run[-_CONTEXT_SHOWN:])


def _token(token: Token) -> Html:
    shown = str(token.id) if token.text is None else token.text.replace("\n", "⏎\n")
    kinds = [_colour(token.logprob), "on" if token.trained else "", "id" if token.text is None else ""]
    return element("i", shown, class_=" ".join(filter(None, kinds)) or None, title=_title(token))


def _colour(logprob: float | None) -> str:
    if logprob is None or math.isnan(logprob):
        return ""
    return f"l{sum(logprob < bound for bound in _BOUNDS)}"


def _title(token: Token) -> str:
    parts = [] if token.id is None else [f"token {token.id}"]
    if token.logprob is not None:
        parts.append(f"log-prob {token.logprob:.3f} ({math.exp(min(token.logprob, 0.0)):.1%})")
    parts.append("trained on" if token.trained else "context")
    return " · ".join(parts)
