# SPDX-License-Identifier: Apache-2.0
"""Token ids and log-probs for training: exactly what the engine saw and sampled, or an error.

A stream of the engine leaves out tokens that are only part of a character. For a reply with such tokens the engine
generates once more with the same seed, all at once, and that reply, which has every token, is the one that counts. The
log-probs that it still lacks are read from the model's distribution at that very place.

A conversation that goes on begins with the very tokens of its earlier turns, as long as its text is still theirs, so
that turns extend each other exactly.

Log-probs are those of the model itself, before temperature, grammar and other sampling. The ids include the token that
ended the reply, unless a grammar has put one there that the chat template does not know: the model did not choose it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from responses_api_models.local_model.engine import Engine, Generated

_ALTERNATIVES = (64, 1024)
_NEUTRAL = "."
_FORCED = 1e6
_ENDS = ("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<eos>")
"""Tokens that end a reply of one model or another."""


async def keep_tokens(engine: Engine, prompt: list[int], tokens_so_far: Sequence[int]) -> list[int]:
    """Return `prompt` with `tokens_so_far` at its beginning, in place of other tokens of the same text."""
    if prompt[: len(tokens_so_far)] == tokens_so_far:
        return prompt
    text, said = await engine.detokenize(prompt), await engine.detokenize(tokens_so_far)
    if not text.startswith(said):  # somebody has changed the conversation
        return prompt
    return [*tokens_so_far, *await engine.tokenize(text[len(said) :], parse_special=True, add_special=False)]


async def drop_foreign_end(engine: Engine, made: Generated) -> Generated:
    """Return `made` without a last token that ends a reply otherwise than the chat template does.

    A grammar that is through ends a reply with a token of its own choice, whatever the model would have written.
    """
    if engine.foreign_ends is None:
        mark = "said"
        prompt = await engine.write_prompt([{"role": "user", "content": "x"}, {"role": "assistant", "content": mark}])
        proper = await engine.tokenize(prompt.rpartition(mark)[2], parse_special=True, add_special=False)
        known = [await engine.tokenize(end, parse_special=True, add_special=False) for end in _ENDS]
        engine.foreign_ends = [ids[0] for ids in known if len(ids) == 1 and ids != proper[:1]]
    if made.ended_by != "eos" or made.token_ids[-1:] == [] or made.token_ids[-1] not in engine.foreign_ends:
        return made
    scores = made.scores[:-1] if made.scores and made.scores[-1]["id"] == made.token_ids[-1] else made.scores
    return replace(made, token_ids=made.token_ids[:-1], scores=scores)


async def complete_tokens(engine: Engine, body: Mapping[str, Any], made: Generated) -> Generated:
    """Return `made`, or what the engine makes of the same request when it leaves out no token."""
    if len(made.token_ids) == made.count:
        return made
    return await engine.generate_whole(body)


async def build_token_fields(engine: Engine, prompt: Sequence[int], made: Generated) -> dict[str, Any]:
    """Return the fields of a message for training."""
    found = find_certain_scores(made.token_ids, made.scores)
    log_probs = [
        found[at] if at in found else await _find_log_prob(engine, [*prompt, *made.token_ids[:at]], token)
        for at, token in enumerate(made.token_ids)
    ]
    return {
        "prompt_token_ids": list(prompt),
        "generation_token_ids": made.token_ids,
        "generation_log_probs": log_probs,
    }


def find_certain_scores(token_ids: Sequence[int], scores: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return the log-probs whose place among `token_ids` is beyond doubt, by place.

    The engine gives scores in order but not for every token. One belongs to a certain place if matching from the front
    and matching from the back agree on it.
    """
    ids = [score["id"] for score in scores]
    front = _match_places(token_ids, ids)
    back = _match_places(token_ids[::-1], ids[::-1])
    if front is None or back is None:
        return {}
    latest = [len(token_ids) - 1 - at for at in reversed(back)]
    return {early: score["logprob"] for early, late, score in zip(front, latest, scores, strict=True) if early == late}


def _match_places(token_ids: Sequence[int], ids: Sequence[int]) -> list[int] | None:
    """Return the earliest places of `ids`, in their order; None if they do not occur in `token_ids` in this order."""
    places = list[int]()
    at = -1
    for wanted in ids:
        at = next((place for place in range(at + 1, len(token_ids)) if token_ids[place] == wanted), -1)
        if at < 0:
            return None
        places.append(at)
    return places


async def _find_log_prob(engine: Engine, before: Sequence[int], token: int) -> float:
    """Return the log-prob of `token` after `before`, found among the likeliest tokens at that place."""
    # The engine reports on a place only with a token that is a whole character, so that one is forced.
    neutral = (await engine.tokenize(_NEUTRAL))[0]
    for alternatives in (*_ALTERNATIVES, await engine.get_vocabulary_size()):
        made = await engine.generate(
            {
                "prompt": before,
                "n_predict": 1,
                "temperature": 0,
                "n_probs": alternatives,
                "logit_bias": [[neutral, _FORCED]],
            }
        )
        for other in made.scores[0]["top_logprobs"]:
            if other["id"] == token:
                return float(other["logprob"])
    raise RuntimeError(f"the engine gives no log-prob for the token {token}, although it generated it")
