# SPDX-License-Identifier: Apache-2.0
"""A chat request as the engine takes it, and what the engine made of it as a chat completion.

Everything the engine needs is decided here: the conversation in words, the grammar, the sampling. Nothing is asked of
the engine; grammars are checked and prompts are counted where it is called.
"""

import hashlib
import secrets
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any
from uuid import uuid4

from fastapi import HTTPException

from responses_api_models.local_model import grammars, tools
from responses_api_models.local_model.engine import Generated
from responses_api_models.openai_model.tokens import find_tokens_so_far

Message = dict[str, str]
_BAD_REQUEST = 400
_REMEMBERED_PROMPTS = 1 << 16
_SEED_BITS = 31
_SAME = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "ignore_eos")


@dataclass(frozen=True)
class Ask:
    """What a chat request asks for."""

    messages: list[Message]
    box: tools.Toolbox
    schemas: dict[str, Mapping[str, Any]]
    """The schemas that the reply has to follow, by what they belong to."""
    grammar: str | None
    sampling: dict[str, Any]
    max_tokens: int | None
    choices: int
    seed: int | None
    top_logprobs: int | None
    """None: no log-probs in the reply."""
    tokens_so_far: list[int] | None = None
    """The tokens up to the end of the last reply in the conversation that carries its own."""


def read_ask(body: Mapping[str, Any], sampling_defaults: Mapping[str, Any]) -> Ask:
    """Return what the chat request `body` asks for, with defaults for the sampling that it leaves open."""
    box = tools.read_toolbox(body)
    text_schema = _read_text_schema(body.get("response_format"))
    schemas: dict[str, Mapping[str, Any]] = {f"tool {name!r}": schema for name, schema in box.schemas.items()}
    if text_schema is not None:
        schemas["the response format"] = text_schema
    top_logprobs = (body.get("top_logprobs") or 0) if body.get("logprobs") else None
    limit = body.get("max_completion_tokens")
    return Ask(
        messages=write_conversation(body["messages"], box),
        box=box,
        schemas=schemas,
        grammar=_choose_grammar(box, text_schema),
        sampling=_choose_sampling(body, sampling_defaults),
        max_tokens=limit if limit is not None else body.get("max_tokens"),
        choices=body.get("n") or 1,
        seed=body.get("seed"),
        top_logprobs=top_logprobs,
        tokens_so_far=find_tokens_so_far(body["messages"]),
    )


def _read_text_schema(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    match (response_format or {}).get("type", "text"):
        case "text":
            return None
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            schema = (response_format or {}).get("json_schema", {}).get("schema")
            if isinstance(schema, Mapping):
                return schema
            raise HTTPException(_BAD_REQUEST, "the response format 'json_schema' has no schema")
        case kind:
            raise HTTPException(
                _BAD_REQUEST, f"response format {kind!r} is not supported; known: text, json_object, json_schema"
            )


def _choose_grammar(box: tools.Toolbox, text_schema: Mapping[str, Any] | None) -> str | None:
    if box.mode != "none":
        return grammars.write_tools_grammar(box.schemas, required=box.mode == "required", text_schema=text_schema)
    return grammars.write_json_grammar(text_schema) if text_schema is not None else None


def _choose_sampling(body: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: body[name] for name in _SAME if body.get(name) is not None}
    stop = body.get("stop") or []
    if "top_p" in given:  # such a request says from which tokens to sample; a default must not take some away
        defaults = {**defaults, "top_k": 0, "min_p": 0.0}
    chosen = {**defaults, **given, "stop": [stop] if isinstance(stop, str) else list(stop)}
    if body.get("repetition_penalty") is not None:  # vLLM's name
        chosen["repeat_penalty"] = body["repetition_penalty"]
    if bias := body.get("logit_bias"):
        chosen["logit_bias"] = [[int(token), value] for token, value in bias.items()]
    return chosen


class Seeds:
    """Seeds for requests that bring none: random ones, or, from a seed in the config, ones that make a run repeatable.

    The nth request with the same prompt gets the same seed in every run, whatever is asked in between, and repeats of
    a prompt differ. Of very many prompts, those that were not seen for long are forgotten and start anew.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._asked: OrderedDict[bytes, int] = OrderedDict()

    def draw(self, prompt: Sequence[int]) -> int:
        """Return the seed of the next request with `prompt`."""
        if self._seed is None:
            return secrets.randbits(_SEED_BITS)
        prompt_hash = hashlib.blake2b(array("q", prompt).tobytes(), digest_size=16).digest()
        times = self._asked.pop(prompt_hash, 0)
        self._asked[prompt_hash] = times + 1
        if len(self._asked) > _REMEMBERED_PROMPTS:
            self._asked.popitem(last=False)
        mixed = hashlib.blake2b(f"{self._seed} {times} ".encode() + prompt_hash, digest_size=8).digest()
        return int.from_bytes(mixed) >> (64 - _SEED_BITS)


# --- the conversation -------------------------------------------------------------------------------------------------


def write_conversation(messages: Sequence[Mapping[str, Any]], box: tools.Toolbox) -> list[Message]:
    """Return `messages` in words, with three roles: chat templates of small models know no others."""
    names = {
        call["id"]: call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls") or ()
        if call["type"] == "function"
    }
    said = [_put_in_words(message, names) for message in messages]
    if box.mode != "none":
        leading = [said.pop(0)["content"]] if said and said[0]["role"] == "system" else []
        system = {"role": "system", "content": "\n\n".join([*leading, tools.write_instructions(box)])}
        has_result = bool(messages) and messages[-1]["role"] in ("tool", "function")
        said = [system, *tools.write_examples(box, has_result=has_result), *said]
    return _merge_turns(said)


def _put_in_words(message: Mapping[str, Any], names: Mapping[str, str]) -> Message:
    role = message["role"]
    content = _join_text(message.get("content"))
    match role:
        case "tool":
            name = names.get(message["tool_call_id"])
            return {"role": "user", "content": f"Result of {name}: {content}" if name else f"Result: {content}"}
        case "function":
            return {"role": "user", "content": f"Result of {message['name']}: {content}"}
        case "assistant":
            calls = [_put_call_in_words(call) for call in message.get("tool_calls") or ()]
            refusal = message.get("refusal")
            return {"role": "assistant", "content": "\n".join(filter(None, [content, refusal, *calls]))}
        case "developer":
            return {"role": "system", "content": content}
    return {"role": role, "content": content}


def _put_call_in_words(call: Mapping[str, Any]) -> str:
    if call["type"] != "function":
        raise HTTPException(_BAD_REQUEST, f"a tool call of type {call['type']!r} is not supported; only functions are")
    return tools.write_call(call["function"]["name"], call["function"]["arguments"])


def _join_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if others := [part["type"] for part in content if part["type"] not in ("text", "refusal")]:
        raise HTTPException(_BAD_REQUEST, f"this model reads text only, but a message holds {others[0]!r}")
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def _merge_turns(messages: Sequence[Message]) -> list[Message]:
    """Return turns in which nobody speaks twice in a row: many chat templates insist on that."""
    turns = list[Message]()
    for message in messages:
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1] = {**message, "content": f"{turns[-1]['content']}\n\n{message['content']}"}
        else:
            turns.append(message)
    return turns


# --- the reply --------------------------------------------------------------------------------------------------------


def build_choice(number: int, made: Generated, ask: Ask, token_information: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was generated, as one choice of a completion."""
    text, call = tools.read_call(made.text, ask.box)
    message: dict[str, Any] = {"role": "assistant", "content": text if text or call is None else None}
    if call is not None:
        function = {"name": call.name, "arguments": call.arguments}
        message["tool_calls"] = [{"id": f"call_{uuid4().hex}", "type": "function", "function": function}]
    finished = "length" if made.ended_by == "limit" else "tool_calls" if call is not None else "stop"
    chosen: dict[str, Any] = {
        "index": number,
        "finish_reason": finished,
        "message": {**message, **token_information},
        "stop_reason": made.stop_string,
    }
    if ask.top_logprobs is not None:
        content = [_build_log_prob(score, ask.top_logprobs) for score in made.scores]
        chosen["logprobs"] = {"content": content, "refusal": None}
    return chosen


def build_cut_off_choice(number: int) -> dict[str, Any]:
    """Return the choice of a conversation that has outgrown the context: the end of a rollout, not a failure."""
    return {"index": number, "finish_reason": "length", "message": {"role": "assistant", "content": None}}


def build_length_refusal(prompt_tokens: int, context_length: int) -> HTTPException:
    """Return the same as an error, for programs that play no rollout: SDKs know it by "context length"."""
    return HTTPException(
        _BAD_REQUEST, f"the prompt has {prompt_tokens} tokens; the context length of this model is {context_length}"
    )


def build_completion(
    model: str, choices: Sequence[Mapping[str, Any]], prompt_tokens: int, made: Sequence[Generated]
) -> dict[str, Any]:
    """Return a chat completion of `choices`, with what it cost."""
    generated = sum(each.count for each in made)
    cached = sum(each.cached_count for each in made)
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time()),
        "model": model,
        "choices": list(choices),
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": prompt_tokens + generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def _build_log_prob(score: Mapping[str, Any], alternatives: int) -> dict[str, Any]:
    names = ("token", "bytes", "logprob")
    others = [{name: other[name] for name in names} for other in score["top_logprobs"][:alternatives]]
    return {**{name: score[name] for name in names}, "top_logprobs": others}
