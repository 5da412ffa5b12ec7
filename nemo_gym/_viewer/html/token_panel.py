# SPDX-License-Identifier: Apache-2.0
"""The tokens of a rollout as HTML: the more probable a token was to the model, the greener it is.

Tokens that are trained on are underlined.
"""

import math
from collections.abc import Iterator
from itertools import groupby

from nemo_gym._viewer.files.rollout_tokens import Token, TokenSequence
from nemo_gym._viewer.html.elements import Html, element, join, note_more, soft

TOKEN_LIMIT = 4000
# The lowest log-prob of each color: probabilities of 90 %, 50 %, 20 % and 5 %.
_BOUNDS = (math.log(0.9), math.log(0.5), math.log(0.2), math.log(0.05))
_LEGEND = (("l0", "over 90 %"), ("l1", "over 50 %"), ("l2", "over 20 %"), ("l3", "over 5 %"), ("l4", "less"))
_CONTEXT_SHOWN = 24


def render_tokens(sequence: TokenSequence) -> Html:
    """Render the sequence, with as many tokens as a page can hold."""
    n_context = len(sequence.tokens) - sequence.n_trained
    said = f"{sequence.n_trained:,} tokens generated and trained on, {n_context:,} tokens of context"
    colors = [element("span", element("i", class_=name), label) for name, label in _LEGEND]
    trained = element("span", element("i", class_="on"), "trained on")
    legend = element("div", "Probability: ", *colors, trained, class_="ngv-legend")
    more = note_more(len(sequence.tokens) - TOKEN_LIMIT, "tokens are in the raw JSON.")
    return join([soft(said), legend, element("div", *_iter_rendered(sequence), class_="ngv-tokens"), more])


def _iter_rendered(sequence: TokenSequence) -> Iterator[Html]:
    breaks = set(sequence.breaks)
    at = 0
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
    classes = []
    title = []
    if token.id is not None:
        title.append(f"token {token.id}")
    if token.logprob is not None:
        title.append(f"log-prob {token.logprob:.3f} ({math.exp(min(token.logprob, 0.0)):.1%})")
        if not math.isnan(token.logprob):
            classes.append(f"l{sum(token.logprob < bound for bound in _BOUNDS)}")
    if token.trained:
        classes.append("on")
        title.append("trained on")
    else:
        title.append("context")
    if token.text is None:
        text = str(token.id)
        classes.append("id")
    else:
        text = token.text.replace("\n", "⏎\n")
    return element("i", text, class_=" ".join(classes) or None, title=" · ".join(title))
