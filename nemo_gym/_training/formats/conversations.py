# SPDX-License-Identifier: Apache-2.0
"""Formats that present a rollout as a conversation, one record each: SFT, ATIF, and the traces that prime-rl reads.

A trace holds all branches of its rollout. The others only hold what was said, and need no tokens.
"""

import re
from collections.abc import Iterator
from typing import Any

from nemo_gym._training.alignment import Branch
from nemo_gym._training.capture.call_records import parse_arguments
from nemo_gym._training.chat_messages import ChatConversation, Message, NotExpressible, read_conversation
from nemo_gym._training.formats.sample import Record, Sample
from nemo_gym._util.json_shapes import as_int, as_mapping
from nemo_gym._util.row_keys import RESPONSE_KEY_NAME
from nemo_gym._version import __version__

ATIF_VERSION = "ATIF-v1.7"
_TRACE_VERSION = 1
_DATA_IMAGE = re.compile(r"data:(image/(?:jpeg|png|gif|webp));base64,")
_IMAGE_SUFFIXES = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "gif": "image/gif",
    "webp": "image/webp",
}


def build_sft(sample: Sample) -> Iterator[Record]:
    """Yield a conversation for supervised fine-tuning: `messages`, and `tools` if there are any."""
    conversation = read_conversation(sample.row, parse_arguments=True)
    yield {
        "messages": conversation.given + conversation.said,
        **({"tools": conversation.tools} if conversation.tools else {}),
        "reward": sample.reward,
        **sample.describe(),
    }


# --- ATIF -------------------------------------------------------------------------------------------------------------


def build_atif(sample: Sample) -> Iterator[Record]:
    """Yield a trajectory of the Agent Trajectory Interchange Format, which Harbor reads."""
    rollout = sample.rollout
    response = as_mapping(sample.row.get(RESPONSE_KEY_NAME))
    conversation = read_conversation(sample.row, rollout.turns)
    steps = [*_iter_steps(sample, conversation)]
    usage = as_mapping(response.get("usage"))
    totals = {
        "total_prompt_tokens": as_int(usage.get("input_tokens")),
        "total_completion_tokens": as_int(usage.get("output_tokens")),
        "total_cached_tokens": as_int(as_mapping(usage.get("input_tokens_details")).get("cached_tokens")),
        "total_steps": len(steps),
        "extra": {"reward": sample.reward, "reward_components": rollout.reward_components},
    }
    agent = {
        "name": rollout.agent or "unknown",
        # Agents of an environment have no version of their own: use that of this package.
        "version": __version__,
        "model_name": response.get("model"),
        "tool_definitions": conversation.tools or None,
    }
    name = rollout.rollout_id or f"{rollout.task_index}-{rollout.rollout_index}"
    yield {
        "schema_version": ATIF_VERSION,
        "session_id": name,
        "trajectory_id": name,
        "agent": _drop_nones(agent),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": _drop_nones(totals),
        "extra": _drop_nones(sample.describe()),
    }


def _iter_steps(sample: Sample, conversation: ChatConversation) -> Iterator[Record]:
    """Yield the steps; tool answers are part of the step that called the tools."""
    step: Record | None = None
    for message, number in conversation.list_all():
        if message["role"] == "tool" and step is not None:
            known = {call["tool_call_id"] for call in step.get("tool_calls", [])}
            result = {"content": _convert_parts(message["content"])}
            if message["tool_call_id"] in known:
                result["source_call_id"] = message["tool_call_id"]
            step.setdefault("observation", {"results": []})["results"].append(result)
            continue
        if step is not None:
            yield step
        step = _make_step(sample, message, number)
    if step is not None:
        yield step


def _make_step(sample: Sample, message: Message, number: int | None) -> Record:
    role = message["role"]
    sources = {"assistant": "agent", "user": "user", "system": "system", "developer": "system"}
    if role not in sources:
        raise NotExpressible(f"a message of {role!r} where ATIF has no step for it")
    step: Record = {"source": sources[role], "message": _convert_parts(message["content"])}
    if "reasoning_content" in message:
        step["reasoning_content"] = message["reasoning_content"]
    if "tool_calls" in message:
        step["tool_calls"] = [
            {
                "tool_call_id": call["id"],
                "function_name": call["function"]["name"],
                "arguments": parse_arguments(call["function"]["arguments"]),
            }
            for call in message["tool_calls"]
        ]
    if number is not None:
        turn = sample.rollout.turns[number]
        step["metrics"] = {
            "prompt_tokens": len(turn.prompt_ids),
            "completion_tokens": len(turn.generated_ids),
            "prompt_token_ids": turn.prompt_ids,
            "completion_token_ids": turn.generated_ids,
            "logprobs": turn.log_probs,
        }
        step["llm_call_count"] = 1
        if turn.model:
            step["model_name"] = turn.model
    return step


def _convert_parts(content: str | list[dict[str, Any]]) -> str | list[Record]:
    return content if isinstance(content, str) else [_convert_part(part) for part in content]


def _convert_part(part: dict[str, Any]) -> Record:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    url = str(as_mapping(part.get("image_url")).get("url") or "")
    media_type = _IMAGE_SUFFIXES.get(url.rpartition(".")[2].lower())
    if found := _DATA_IMAGE.match(url):
        media_type = found[1]
    if media_type is None:
        raise NotExpressible("a content part that is neither text nor a picture of a known kind")
    return {"type": "image", "source": {"media_type": media_type, "path": url}}


# --- traces -----------------------------------------------------------------------------------------------------------


def build_prime_rl(sample: Sample) -> Iterator[Record]:
    """Yield a trace in the form of verifiers, for prime-rl: a graph of messages with a path for every branch."""
    rollout = sample.rollout
    conversation = read_conversation(sample.row, rollout.turns)
    nodes: list[Record] = []
    calls: list[Record] = []
    tools = [{"type": "function", **tool["function"]} for tool in conversation.tools]
    for _, branch in sample.iter_branches():
        conversation.require_turns(branch)
        _add_path(nodes, calls, sample, conversation, branch, tools)
    name = rollout.rollout_id or f"{rollout.task_index}-{rollout.rollout_index}"
    yield {
        "version": _TRACE_VERSION,
        "id": name,
        "task": {"type": "NeMoGymTask", "data": {"idx": rollout.task_index}, "key": str(rollout.task_index)},
        "agent": {"config": {"model": rollout.turns[-1].model}, "name": rollout.agent or "agent"},
        "tools": tools,
        "nodes": nodes,
        "calls": calls,
        "rewards": {"reward": {"score": sample.reward}},
        "metrics": rollout.reward_components,
        "info": sample.describe(),
        "is_completed": True,
        "ok": True,
        "stop_condition": rollout.cut_off,
    }


def _add_path(
    nodes: list[Record],
    calls: list[Record],
    sample: Sample,
    conversation: ChatConversation,
    branch: Branch,
    tools: list[Record],
) -> None:
    """Add the messages of a branch, each with the tokens that it adds to the sequence.

    The boundaries between the messages of a prompt are unknown, so all its tokens go to the last of them.
    """
    turns = sample.rollout.turns
    places = dict(zip(branch.turns, branch.find_generated(turns), strict=True))
    root = len(nodes)
    parent = None
    for message in conversation.given:
        nodes.append({"parent": parent, "message": _convert_message(message)})
        parent = len(nodes) - 1
    nodes[-1] |= {"token_ids": branch.prompt_ids, "mask": [0] * len(branch.prompt_ids)}
    if tools:
        nodes[root]["tools"] = tools
    end = 0
    missing = len(places)
    for message, number in zip(conversation.said, conversation.turns, strict=True):
        node: Record = {"parent": parent, "message": _convert_message(message)}
        if number is not None and number in places:
            turn = turns[number]
            _, stop = places[number]
            node["token_ids"] = branch.completion_ids[end:stop]
            node["mask"] = branch.mask[end:stop]
            node["logprobs"] = turn.log_probs
            node["sampled"] = True
            calls.append({"node": len(nodes), "model": turn.model})
            end = stop
            missing = missing - 1
        parent = len(nodes)
        nodes.append(node)
        if not missing:
            return


def _convert_message(message: Message) -> Message:
    if message["role"] == "developer":
        return {"role": "system", "content": message["content"]}
    if "tool_calls" not in message:
        return message
    calls = [{"id": call["id"], **call["function"]} for call in message["tool_calls"]]
    return {**message, "tool_calls": calls}


def _drop_nones(fields: Record) -> Record:
    return {name: value for name, value in fields.items() if value is not None}
