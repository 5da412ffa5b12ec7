# SPDX-License-Identifier: Apache-2.0
"""What NeMo RL sends and what it does with a result, written down from its rules."""

from typing import Any

TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}


def make_example(number: int, habit: str, agent: str = "plain", cities: int = 2) -> dict[str, Any]:
    """A row as NeMo RL sends it; `habit` and `cities` are for the engine of `tests.support.drifting_engine`."""
    asked = {"role": "user", "content": f"{habit} rollout-{number} {cities}"}
    params = {"input": [asked], "tools": [TOOL], "temperature": 1.0}
    agent_ref = {"type": "responses_api_agents", "name": agent}
    return {"_rowidx": number, "agent_ref": agent_ref, "responses_create_params": params}


def walk_as_nemo_rl_does(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages that NeMo RL makes of a result; AssertionError where its rule is broken."""
    so_far, messages = list[int](), list[dict[str, Any]]()
    for item in result["response"]["output"]:
        if "generation_token_ids" not in item:
            continue
        prompt_ids, generated_ids = item["prompt_token_ids"], item["generation_token_ids"]
        assert prompt_ids[: len(so_far)] == so_far
        messages.append({"role": "user", "token_ids": prompt_ids[len(so_far) :]})
        log_probs = item["generation_log_probs"]
        assert len(log_probs) == len(generated_ids)
        messages.append({"role": "assistant", "token_ids": generated_ids, "generation_logprobs": log_probs})
        so_far = prompt_ids + generated_ids
    assert messages, "nothing to train on"
    return messages
