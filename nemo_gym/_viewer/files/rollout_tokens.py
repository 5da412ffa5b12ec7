# SPDX-License-Identifier: Apache-2.0
"""The tokens of a rollout as a trainer sees them: one sequence, in which the model's own tokens are trained on.

Every generated item carries the whole prompt before it. If a prompt does not continue what came before, the
conversation was retokenized in between: a place to look at. No tokenizer is needed; texts are shown if the row holds
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym._util.json_shapes import as_list, as_mapping, as_number


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
        item = as_mapping(item)
        generated = _read_generated(item)
        if not generated:
            continue
        prompt = _list_ints(item.get("prompt_token_ids"))
        if prompt[: len(ids)] == ids:
            added = prompt[len(ids) :]
        else:
            breaks.append(len(tokens))
            ids = []
            added = prompt
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
