# SPDX-License-Identifier: Apache-2.0
"""Rollouts as rows of a file, of two turns with a tool call between them, and what can go wrong with them."""

import orjson

PROMPT, CALL, OUTPUT, ANSWER = [1, 2, 3], [4, 5], [6], [7, 8, 9]
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Look it up.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def tokens(prompt_ids, generated_ids):
    return {
        "prompt_token_ids": prompt_ids,
        "generation_token_ids": generated_ids,
        "generation_log_probs": [-0.5] * len(generated_ids),
    }


def make_row(task=0, rollout=0, reward=1.0, *, history=None, with_tokens=True, answer="It is warm.", **fields):
    """`history`: what the second turn read, if it is not what the first one read and wrote."""
    call = {"type": "function_call", "id": "fc", "call_id": "call_1", "name": "get_weather"}
    call["arguments"] = '{"city": "Bern"}'
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Let me look."}]}
    said = {"type": "function_call_output", "call_id": "call_1", "output": '{"celsius": 21}'}
    text = {"type": "output_text", "text": answer, "annotations": []}
    last = {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [text]}
    if with_tokens:
        call |= tokens(PROMPT, CALL)
        last |= tokens(PROMPT + CALL + OUTPUT if history is None else history, ANSWER)
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Weather of {task}?"}]
    return {
        "responses_create_params": {"input": asked, "tools": [TOOL]},
        "response": {
            "id": "resp",
            "model": "policy",
            "output": [thought, call, said, last],
            "usage": {"input_tokens": 9, "output_tokens": 5, "total_tokens": 14},
        },
        "reward": reward,
        "reward_components": {"answer": reward},
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"type": "responses_api_agents", "name": "player"},
        **fields,
    }


def make_failure(task=0, rollout=0, kind="timeout"):
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"type": "responses_api_agents", "name": "player"},
        "_ng_failure_class": kind,
        "_ng_failure": {"kind": kind, "message": "it took too long"},
    }


def write_rows(path, rows):
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def read_records(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
