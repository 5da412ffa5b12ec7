# SPDX-License-Identifier: Apache-2.0
"""Token ids and log-probs of a reply, from whichever place the endpoint put them.

Three sources, best first: complete on the message; `prompt_token_ids` of the reply with `token_ids` of its choice; the
ids that the log-probs spell as `token_id:<n>`, with the prompt from `/tokenize`. Training on tokens that were not the
model's is worse than no reply, so whatever is partial or contradicts itself is an error.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn

from nemo_gym.token_id_capture import TOKEN_FIELDS
from responses_api_models.openai_model.tokens import read_log_probs, read_spelled_ids

Tokenize = Callable[[], Awaitable[list[int]]]


def build_token_request(*, with_token_ids: bool) -> dict[str, Any]:
    """Return the fields of a chat request that make the endpoint send tokens."""
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 0, "return_tokens_as_token_ids": True}
    return {**fields, "return_token_ids": True} if with_token_ids else fields


async def attach_tokens(reply: Mapping[str, Any], tokenize: Tokenize) -> dict[str, Any]:
    """Return `reply` with the tokens of its one choice on the message, and nowhere else."""
    choice = reply["choices"][0]
    bundle = await _find_tokens(reply, choice, tokenize)
    _check_agreement(bundle, reply, choice)
    if choice.get("routed_experts") is not None:
        bundle["routed_experts"] = choice["routed_experts"]
    moved = ("logprobs", "token_ids", "routed_experts")
    bare = {name: value for name, value in choice.items() if name not in moved}
    rest = {name: value for name, value in reply.items() if name != "prompt_token_ids"}
    return {**rest, "choices": [{**bare, "message": {**choice["message"], **bundle}}]}


async def _find_tokens(reply: Mapping[str, Any], choice: Mapping[str, Any], tokenize: Tokenize) -> dict[str, Any]:
    message = choice["message"]
    on_message = {f: message[f] for f in TOKEN_FIELDS if message.get(f) is not None}
    prompt = reply.get("prompt_token_ids")
    generation = choice.get("token_ids")
    log_probs = read_log_probs(_get_content(choice))
    if on_message:
        if len(on_message) < len(TOKEN_FIELDS):
            _fail("the token information on the message is not complete", reply, choice)
        return on_message
    if prompt is not None or generation is not None:
        if prompt is None or generation is None or log_probs is None:
            _fail("prompt_token_ids, token_ids and log-probs must come together", reply, choice)
        return _name_fields(prompt, generation, log_probs)
    spelled = read_spelled_ids(_get_content(choice))
    if spelled is None or log_probs is None:
        _fail("the reply holds no token ids", reply, choice)
    return _name_fields(await tokenize(), spelled, log_probs)


def _name_fields(prompt: Sequence[int], generation: Sequence[int], log_probs: Sequence[float]) -> dict[str, Any]:
    return dict(zip(TOKEN_FIELDS, (prompt, generation, log_probs), strict=True))


def _check_agreement(bundle: Mapping[str, Any], reply: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
    prompt, generation, log_probs = (bundle[name] for name in TOKEN_FIELDS)
    if len(generation) != len(log_probs):
        _fail(f"there are {len(generation)} generated tokens but {len(log_probs)} log-probs", reply, choice)
    for source, other, own in (
        ("the reply's prompt_token_ids", reply.get("prompt_token_ids"), prompt),
        ("the choice's token_ids", choice.get("token_ids"), generation),
        ("the ids in the log-probs", read_spelled_ids(_get_content(choice)), generation),
    ):
        if other is not None and other != own:
            _fail(f"{source} disagree with the other token ids", reply, choice)


def _get_content(choice: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    return (choice.get("logprobs") or {}).get("content")


def _fail(problem: str, reply: Mapping[str, Any], choice: Mapping[str, Any]) -> NoReturn:
    message = choice["message"]
    content = _get_content(choice)
    first = content[0]["token"] if content else None
    found = {
        **{f"message.{name}": _describe_size(message.get(name)) for name in TOKEN_FIELDS},
        "prompt_token_ids": _describe_size(reply.get("prompt_token_ids")),
        "choice.token_ids": _describe_size(choice.get("token_ids")),
        "choice.logprobs.content": _describe_size(content)
        + (f" (the first is {first!r})" if first is not None else ""),
    }
    listed = ", ".join(f"{name}: {size}" for name, size in found.items())
    raise RuntimeError(
        f"this reply cannot be trained on: {problem}.\nfound: {listed}\n"
        "hint: check that the endpoint is a vLLM that supports `return_tokens_as_token_ids` and `/tokenize`"
    )


def _describe_size(values: Sequence[Any] | None) -> str:
    return "absent" if values is None else f"{len(values)} values"
