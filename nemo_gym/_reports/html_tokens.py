# SPDX-License-Identifier: Apache-2.0
"""Tokens in colour: the likelier the model found what it wrote, the greener; what is trained on is underlined."""

import math
from collections.abc import Iterator
from itertools import groupby

from nemo_gym._reports.html_parts import Html, element, joined
from nemo_gym._reports.tokens import Token, TokenView

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
