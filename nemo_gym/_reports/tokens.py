# SPDX-License-Identifier: Apache-2.0
"""The tokens of a rollout as a trainer sees them: one sequence, in which what the model wrote is trained on.

Every generated item carries the whole prompt before it. Where a prompt does not continue what came before, the
conversation was tokenized anew in between: a place to look at. No tokenizer is needed; texts are shown where the row
holds them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
