# SPDX-License-Identifier: Apache-2.0
"""Turn the calls that a gateway session recorded into one conversation in the Responses dialect.

A runner may make side calls, ask for the same answer several times, or rewrite what the model said before sending it
back. The main line is the longest chain of calls in which each continues the one before it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import Any
from uuid import uuid4

from nemo_gym.anthropic_converter import messages_to_responses_create_params
from nemo_gym.chat_streaming import sanitize_streaming_chat_body
from nemo_gym.item_forms import Form, is_from_model, is_silent, make_form
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    accumulate_response_usage,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.responses_streaming import sanitize_streaming_responses_body, validate_streaming_responses_params

__all__ = [
    "RecordedCall",
    "describe_branches",
    "fill_prompt",
    "find_last_with_tools",
    "list_branches",
    "make_empty_response",
    "read_calls",
    "write_chain",
    "write_response",
]

_CONVERTER = ResponsesConverter(return_token_id_information=True)
_TOKEN_FIELDS = {
    "prompt_token_ids": "prompt_token_ids",
    "completion_token_ids": "generation_token_ids",
    "logprobs": "generation_log_probs",
}
"""Names of the token arrays: in a trace, and on an item."""


@dataclass
class RecordedCall:
    """A call that the model answered."""

    params: NeMoGymResponseCreateParamsNonStreaming
    reply: NeMoGymResponse
    asked: list[Any]
    """The conversation so far, without reasoning items, which a runner may leave out of the history."""
    forms: list[Form]
    """The form of each item of `asked`."""
    parent: "RecordedCall | None" = None
    """The call that this one continues."""
    depth: int = 1


def read_calls(traces: Sequence[Mapping[str, Any]]) -> list[RecordedCall]:
    """Return the answered calls of a session, each linked to the call it continues."""
    calls: list[RecordedCall] = []
    for trace in traces:
        if trace["error"] is not None:
            continue
        params, reply = _read_call(trace)
        asked: Sequence[Any] = params.input
        if isinstance(asked, str):
            asked = [{"role": "user", "content": asked}]
        spoken = [(item, form) for item in asked if not is_silent(form := make_form(item))]
        call = RecordedCall(params, reply, [item for item, _ in spoken], [form for _, form in spoken])
        call.parent = _find_parent(call, calls)
        if call.parent is not None:
            call.depth += call.parent.depth
        calls.append(call)
    return calls


def find_last_with_tools(calls: Sequence[RecordedCall]) -> RecordedCall | None:
    """Return the last of the calls that offered the most tools, where a program's main line ends; None if none did.

    Subagents have fewer tools and end earlier, however long they run. After a compaction, the main agent continues with
    all its tools in a new conversation.
    """
    most = max(calls, key=lambda call: len(call.params.tools or []))
    same = [call for call in calls if len(call.params.tools or []) == len(most.params.tools or [])]
    return same[-1] if most.params.tools else None


def write_response(
    calls: Sequence[RecordedCall], last: RecordedCall | None = None
) -> tuple[NeMoGymResponseCreateParamsNonStreaming, NeMoGymResponse]:
    """Return the initial prompt, and a response with everything said after it and the usage of all calls.

    The main line ends with `last`; None: with the last call of the longest chain.
    """
    chain = list(_walk_to_root(last or _find_last(calls)))[::-1]
    usage = None
    for one in calls:
        usage = accumulate_response_usage(usage, one.reply.usage)
    return chain[0].params, chain[-1].reply.model_copy(update={"output": write_chain(chain), "usage": usage})


def fill_prompt(
    params: NeMoGymResponseCreateParamsNonStreaming, given: NeMoGymResponseCreateParamsNonStreaming
) -> NeMoGymResponseCreateParamsNonStreaming:
    """Return a task's params with the prompt that the model was actually given."""
    names = ("input", "instructions", "tools")
    return params.model_copy(update={name: getattr(given, name) for name in names if getattr(given, name)})


def describe_branches(calls: Sequence[RecordedCall], last: RecordedCall | None = None) -> list[dict[str, Any]]:
    """Return the branches off the main line as a row records them: the indices of their calls, and what was said."""
    if not calls:
        return []
    indices = {id(call): index for index, call in enumerate(calls)}
    return [
        {
            "begins_after_call": indices.get(id(chain[0].parent)),
            "calls": [indices[id(call)] for call in chain],
            "responses_create_params": chain[0].params.model_dump(
                include={"input", "instructions", "tools", "model"}, exclude_unset=True
            ),
            "output": [item.model_dump() for item in write_chain(chain)],
        }
        for chain in list_branches(calls, last)
    ]


def make_empty_response(message: str) -> NeMoGymResponse:
    """Return the response of a rollout in which the model never answered."""
    return NeMoGymResponse.model_validate(
        {
            "id": f"resp_{uuid4().hex}",
            "created_at": time.time(),
            "model": "none",
            "object": "response",
            "status": "failed",
            "error": {"code": "server_error", "message": message},
            "output": [],
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
        }
    )


def list_branches(calls: Sequence[RecordedCall], last: RecordedCall | None = None) -> list[list[RecordedCall]]:
    """Return the chains of calls off the main line, which ends with `last`, in the order in which they began."""
    known = {id(call) for call in _walk_to_root(last or _find_last(calls))}
    branches = []
    for leaf in sorted(calls, key=lambda one: one.depth, reverse=True):
        chain = list(takewhile(lambda call: id(call) not in known, _walk_to_root(leaf)))
        if chain:
            known.update(map(id, chain))
            branches.append(chain[::-1])
    indices = {id(call): index for index, call in enumerate(calls)}
    return sorted(branches, key=lambda chain: indices[id(chain[0])])


def write_chain(chain: Sequence[RecordedCall]) -> list[Any]:
    """Return everything said in a chain of calls, from the first answer on."""
    output = list(chain[0].reply.output)
    for call in chain[1:]:
        # What was added, other than by the model, between the parent's answer and this call.
        since = call.asked[len(call.parent.asked) :] if call.parent else []
        output += [*dropwhile(is_from_model, since), *call.reply.output]
    return output


def _find_last(calls: Sequence[RecordedCall]) -> RecordedCall:
    """Return the last call of the longest chain."""
    return max(reversed(calls), key=lambda one: one.depth)


def _walk_to_root(call: RecordedCall | None) -> Iterator[RecordedCall]:
    while call is not None:
        yield call
        call = call.parent


def _read_call(trace: Mapping[str, Any]) -> tuple[NeMoGymResponseCreateParamsNonStreaming, NeMoGymResponse]:
    """Return a call in the Responses dialect. It is valid: the model server answered it."""
    answer = trace["response"]
    dialect = trace["dialect"]
    tokens = {}
    if trace["prompt_token_ids"]:
        tokens = {name: trace[key] for key, name in _TOKEN_FIELDS.items()}
    if dialect == "chat":
        body, _ = sanitize_streaming_chat_body({**trace["params"], "messages": trace["messages"]})
        chat = NeMoGymChatCompletionCreateParamsNonStreaming.model_validate(body)
        params = _CONVERTER.chat_completion_to_responses_create_params(chat)
        choices = [{**choice, "message": {**choice["message"], **tokens}} for choice in answer["choices"]]
        completion = NeMoGymChatCompletion.model_validate({**answer, "choices": choices})
        return params, _CONVERTER.chat_completion_to_response(params, completion)
    if dialect == "messages":
        params = messages_to_responses_create_params({**trace["params"], "messages": trace["messages"]})
    else:
        body, _ = sanitize_streaming_responses_body({**trace["params"], "input": trace["messages"]})
        params = validate_streaming_responses_params(body)
    output = answer["output"]
    return params, NeMoGymResponse.model_validate({**answer, "output": [*output[:-1], {**output[-1], **tokens}]})


def _find_parent(call: RecordedCall, earlier: Sequence[RecordedCall]) -> RecordedCall | None:
    """Return the earlier call whose whole conversation `call` begins with.

    Prefer the longest conversation, then one whose answer is in the history, then the latest.
    """
    found = None
    best = (0, False)
    for other in reversed(earlier):
        count = len(other.forms)
        if len(call.forms) <= count or call.forms[:count] != other.forms or not is_from_model(call.asked[count]):
            continue
        said = [form for form in map(make_form, other.reply.output) if not is_silent(form)]
        if (rank := (count, call.forms[count : count + len(said)] == said)) > best:
            found = other
            best = rank
    return found
