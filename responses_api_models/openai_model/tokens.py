# SPDX-License-Identifier: Apache-2.0
"""Token ids that an OpenAI-compatible endpoint sends along, put where trainers look for them.

Endpoints send them if they are asked to, for example by `extra_body: {logprobs: true, return_token_ids: true}`: ids of
the prompt beside the answer, ids and log-probs of what was generated with it. Here they are only moved, and only if
they are complete: an answer without them stays as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import ClientResponseError
from fastapi import HTTPException
from pydantic import BaseModel

from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.token_id_capture import TOKEN_FIELDS

SPELLED_ID = "token_id:"
_NOT_SERVED = (404, 405, 501)
_NOT_IMPLEMENTED = 501
_FROM_MODEL = ("message", "reasoning", "function_call")


class DetokenizeRequest(BaseModel):
    """Token ids whose text is wanted."""

    tokens: list[int]


async def detokenize(client: NeMoGymAsyncOpenAI, model: str, tokens: Sequence[int]) -> dict[str, Any]:
    """Answer `POST /detokenize` as the endpoint does, which vLLM serves; status 501 if it does not."""
    try:
        return await client.create_detokenize(model=model, tokens=list(tokens))
    except ClientResponseError as error:
        if error.status in _NOT_SERVED:
            raise HTTPException(
                _NOT_IMPLEMENTED, f"the endpoint {client.base_url} does not say the text of token ids: no /detokenize"
            ) from error
        raise


def find_tokens_so_far(messages: Sequence[Mapping[str, Any]]) -> list[int] | None:
    """Return all tokens up to the end of the last reply in the history that carries its tokens; None if none does."""
    prompt, generation, _ = TOKEN_FIELDS
    carrier = next((m for m in reversed(messages) if m.get(prompt) is not None and m.get(generation) is not None), None)
    return None if carrier is None else [*carrier[prompt], *carrier[generation]]


def read_log_probs(entries: Sequence[Mapping[str, Any]] | None) -> list[float] | None:
    """Return the log-probs of the tokens that an answer lists."""
    return None if entries is None else [entry["logprob"] for entry in entries]


def read_spelled_ids(entries: Sequence[Mapping[str, Any]] | None) -> list[int] | None:
    """Return the ids that the log-probs spell; None if they hold plain text, as some endpoints ignore the request."""
    if entries is None or not all(entry["token"].startswith(SPELLED_ID) for entry in entries):
        return None
    return [int(entry["token"].removeprefix(SPELLED_ID)) for entry in entries]


def place_chat_tokens(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a chat completion with the tokens of its one choice on the message, if it has them all."""
    choices = reply.get("choices")
    if "prompt_token_ids" not in reply or not isinstance(choices, list) or len(choices) != 1:
        return reply
    choice = choices[0]
    if not isinstance(choice, dict):
        return reply
    listed = (choice.get("logprobs") or {}).get("content")
    tokens = _complete_tokens(reply["prompt_token_ids"], choice.get("token_ids"), listed)
    if not tokens or not isinstance(choice.get("message"), dict):
        return reply
    bare = {name: value for name, value in choice.items() if name not in ("logprobs", "token_ids")}
    rest = {name: value for name, value in reply.items() if name != "prompt_token_ids"}
    return {**rest, "choices": [{**bare, "message": {**choice["message"], **tokens}}]}


def place_response_tokens(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a response with its tokens on the last item that the model made, if it has them all.

    Log-probs are those of its texts, so that an answer with reasoning or calls, which have none, stays as it is.
    """
    output = reply.get("output")
    if "prompt_token_ids" not in reply or not isinstance(output, list):
        return reply
    if not all(isinstance(item, dict) for item in output):
        return reply
    parts = [part for item in output if item.get("type") == "message" for part in item.get("content") or []]
    listed = [entry for part in parts for entry in part.get("logprobs") or []]
    tokens = _complete_tokens(reply["prompt_token_ids"], reply.get("token_ids"), listed)
    last = next((place for place in reversed(range(len(output))) if output[place].get("type") in _FROM_MODEL), None)
    if not tokens or last is None:
        return reply
    rest = {name: value for name, value in reply.items() if name not in ("prompt_token_ids", "token_ids")}
    return {**rest, "output": [*output[:last], {**output[last], **tokens}, *output[last + 1 :]]}


def _complete_tokens(
    prompt_ids: Any, generated_ids: Any, listed: Sequence[Mapping[str, Any]] | None
) -> dict[str, Any] | None:
    """Return the token fields of an item; None if the endpoint left something out."""
    log_probs = read_log_probs(listed or None)
    generated_ids = read_spelled_ids(listed) if generated_ids is None else generated_ids
    if not (isinstance(prompt_ids, list) and isinstance(generated_ids, list) and log_probs is not None):
        return None
    if len(generated_ids) != len(log_probs):
        return None
    return dict(zip(TOKEN_FIELDS, (prompt_ids, generated_ids, log_probs), strict=True))
