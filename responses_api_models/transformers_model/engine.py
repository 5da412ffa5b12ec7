# SPDX-License-Identifier: Apache-2.0
"""Generate with a transformers model: one batch at a time, in a thread, exactly and repeatably.

Prompts that several requests share are read once. Every request has its own sampling, its own seed and its own limits.
Log-probs are the model's own, before temperature, `top_p` and `top_k`. Nothing here knows of HTTP or of messages.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass
class Generation:
    """One reply that is asked for, and as much of it as there is."""

    prompt_ids: Sequence[int]
    max_new_tokens: int
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """Sample from so many of the likeliest tokens only; 0: from all."""
    stop: Sequence[str] = ()
    token_ids: list[int] = field(default_factory=list)
    """What was sampled, with the token that ended it."""
    log_probs: list[float] = field(default_factory=list)
    ended_by: str = ""
    """`eos`, `word` (a stop string) or `limit`; empty while it is not done."""
    stop_string: str | None = None
    is_cancelled: threading.Event = field(default_factory=threading.Event)
    """Set by whoever no longer wants it: it ends at its next token."""


def generate(
    model: Any, end_ids: Sequence[int], decode: Callable[[Sequence[int]], str], batch: Sequence[Generation]
) -> None:
    """Write the replies of `batch`, all at once, into its members. The mode of the model is as before afterwards."""
    import torch

    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            _generate(model, frozenset(end_ids), decode, batch)
    finally:
        model.train(was_training)


def _generate(
    model: Any, end_ids: frozenset[int], decode: Callable[[Sequence[int]], str], batch: Sequence[Generation]
) -> None:
    import torch

    prompts = list({tuple(one.prompt_ids): None for one in batch})
    place = {prompt: number for number, prompt in enumerate(prompts)}
    ids, mask = _pad_left(prompts, model.device)
    read = model(input_ids=ids, attention_mask=mask, position_ids=_number(mask), use_cache=True, logits_to_keep=1)
    # Every request continues from its prompt, however many share it.
    rows = torch.tensor([place[tuple(one.prompt_ids)] for one in batch], device=model.device)
    cache = read.past_key_values
    mask = mask[rows]
    logits = read.logits[rows, -1]
    cache.reorder_cache(rows)
    active = list(batch)
    dice = [random.Random(one.seed) for one in batch]
    while True:
        chosen, log_probs = _sample(logits.float(), active, dice)
        for one, token, log_prob in zip(active, chosen.tolist(), log_probs.tolist(), strict=True):
            one.token_ids.append(token)
            one.log_probs.append(log_prob)
            _note_end(one, end_ids, decode)
        kept = [number for number, one in enumerate(active) if not one.ended_by and not one.is_cancelled.is_set()]
        if not kept:
            return
        if len(kept) < len(active):  # what is done costs nothing any more
            still = torch.tensor(kept, device=model.device)
            cache.reorder_cache(still)
            mask = mask[still]
            chosen = chosen[still]
            active = [active[number] for number in kept]
            dice = [dice[number] for number in kept]
        mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
        step = model(
            input_ids=chosen[:, None],
            attention_mask=mask,
            position_ids=_number(mask)[:, -1:],
            past_key_values=cache,
            use_cache=True,
        )
        logits = step.logits[:, -1]


def _pad_left(prompts: Sequence[Sequence[int]], device: Any) -> "tuple[torch.Tensor, torch.Tensor]":
    import torch

    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros(len(prompts), longest, dtype=torch.long)
    for number, prompt in enumerate(prompts):
        ids[number, longest - len(prompt) :] = torch.tensor(prompt)
        mask[number, longest - len(prompt) :] = 1
    return ids.to(device), mask.to(device)


def _number(mask: "torch.Tensor") -> "torch.Tensor":
    """Return the position of every token, counted from the first that is no padding."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


def _sample(
    logits: "torch.Tensor", batch: Sequence[Generation], dice: Sequence[random.Random]
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Draw the next token of each request; return the tokens and their log-probs."""
    import torch

    log_probs = torch.log_softmax(logits, dim=-1)
    temperatures = torch.tensor([one.temperature or 1.0 for one in batch], device=logits.device)
    scaled = log_probs / temperatures[:, None]
    if any(0 < one.top_k < logits.shape[-1] or one.top_p < 1 for one in batch):
        scaled = torch.stack([_keep_likeliest(row, one) for row, one in zip(scaled, batch, strict=True)])
    # In double precision: the sum over a large vocabulary is compared with a number that may fall anywhere.
    sums = torch.softmax(scaled.double(), dim=-1).cumsum(-1)
    drawn = torch.tensor([rng.random() for rng in dice], dtype=torch.double, device=logits.device)
    tokens = torch.searchsorted(sums, drawn[:, None] * sums[:, -1:], right=True)[:, 0]
    greedy = torch.tensor([one.temperature == 0 for one in batch], device=logits.device)
    tokens = torch.where(greedy, logits.argmax(-1), tokens)
    return tokens, log_probs.gather(-1, tokens[:, None])[:, 0]


def _keep_likeliest(row: "torch.Tensor", one: Generation) -> "torch.Tensor":
    """Return `row` without the tokens that `top_k` and `top_p` leave out."""
    import torch

    values, order = row.sort(descending=True)
    if 0 < one.top_k < len(values):
        values[one.top_k :] = -torch.inf
    if one.top_p < 1:
        probabilities = values.softmax(-1)
        values[probabilities.cumsum(-1) - probabilities >= one.top_p] = -torch.inf
    return torch.full_like(row, -torch.inf).scatter(0, order, values)


def _note_end(one: Generation, end_ids: frozenset[int], decode: Callable[[Sequence[int]], str]) -> None:
    if one.token_ids[-1] in end_ids:
        one.ended_by = "eos"
    elif one.stop and (found := _find_stop(decode(one.token_ids), one.stop)):
        one.ended_by = "word"
        one.stop_string = found
    elif len(one.token_ids) >= one.max_new_tokens:
        one.ended_by = "limit"


def _find_stop(text: str, stop: Sequence[str]) -> str | None:
    return next((word for word in stop if word in text), None)
