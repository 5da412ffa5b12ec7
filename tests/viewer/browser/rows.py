# SPDX-License-Identifier: Apache-2.0
"""Rollouts files for the viewer's tests: small, but with all that the page has a view for."""

import json
import random
from pathlib import Path
from typing import Any

HOSTILE = (
    "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    "<style>body{display:none}</style></pre></details></div>"
    "[click](javascript:window.pwned=3) **not bold** {{constructor.constructor('window.pwned=4')()}} ${window.pwned=5}"
)
_CITIES = ("Oslo", "Lima", "Cairo", "Kyoto", "Quito", "Accra", "Turin", "Perth", "Hanoi", "Sofia", "Dakar", "Minsk")


_SYSTEM = """You are a weather assistant for travellers.
- Look a place up before you say anything about it.
- Answer in at most five sentences, in degrees Celsius and km/h, and say whether a coat is needed."""
_THOUGHT = """The user asks about {city} and wants to know whether to take a coat. I should not guess: the tools \
have current data. First the temperature for today, then, if it is near the threshold of 15 degrees, the wind as well, \
since wind makes it feel colder than it is.

Then I answer briefly, the coat first."""
_MODEL = "qwen3-8b-instruct"


def rollout(
    task: int, repeat: int, *, agent: str = "weather_agent", reward: float = 1.0, **more: Any
) -> dict[str, Any]:
    """A rollout with reasoning, tool calls and an answer."""
    city = _CITIES[task % len(_CITIES)]
    calls = [item for step in range(task % 4) for item in _tool_call(step, city, 18 + task, 11 + repeat)]
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "agent_ref": {"type": "responses_api_agents", "name": agent},
        "responses_create_params": _asked(city),
        "response": {
            "id": f"resp_{task}_{repeat}",
            "model": _MODEL,
            "object": "response",
            "status": "completed" if repeat != 3 else "incomplete",
            "incomplete_details": None if repeat != 3 else {"reason": "max_output_tokens"},
            "output": [_reasoning(city), *calls, _message(_answer(city, 18 + task, repeat, reward))],
            "usage": _usage(120 + 40 * (task % 4), 30 + 7 * repeat),
        },
        "reward": reward,
        "format_reward": 0.5 if repeat % 2 else 1.0,
        "coat": "none" if reward else "unclear",
        **more,
    }


def planned(task: int, repeat: int) -> dict[str, Any]:
    """A row of the materialized inputs: the task as it was before it was played."""
    city = _CITIES[task % len(_CITIES)]
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "responses_create_params": _asked(city),
        "expected_answer": "no coat",
        "climate": "hot" if task % 2 else "mild",
    }


def with_crashed_tool(row: dict[str, Any]) -> dict[str, Any]:
    """The same rollout, in which the first tool crashed."""
    row["response"]["output"][2]["output"] = "Internal Server Error: no such station"
    return {**row, "_ng_tool_errors": [{"tool": "get_weather", "status": 500, "message": "no such station"}]}


def _asked(city: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "name": "get_weather", "description": "The weather of a city."}
    return {
        "input": [
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": f"What is the weather in {city}, and should I take a coat?"},
        ],
        "temperature": 0.7,
        "max_output_tokens": 512,
        "tools": [{**tool, "parameters": parameters}],
    }


def _reasoning(city: str) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": _THOUGHT.format(city=city)}],
    }


def _tool_call(step: int, city: str, degrees: int, wind: int) -> list[dict[str, Any]]:
    """A call and its output."""
    return [
        {
            "type": "function_call",
            "id": f"fc_{step}",
            "call_id": f"call_{step}",
            "name": "get_weather" if step % 2 == 0 else "get_wind",
            "arguments": json.dumps({"city": city, "days": step + 1, "unit": "celsius"}),
            "status": "completed",
        },
        {
            "type": "function_call_output",
            "call_id": f"call_{step}",
            "output": json.dumps({"temperature": degrees, "wind_kmh": wind}),
            "status": "completed",
        },
    ]


def _message(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _usage(read: int, written: int) -> dict[str, Any]:
    return {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 8},
    }


def _answer(city: str, degrees: int, repeat: int, reward: float) -> str:
    if not reward:
        return f"I cannot say what the weather in {city} is like at the moment. Coats are a matter of taste."
    parts = [f"No coat needed: it is {degrees} degrees in {city}, with a light wind from the west."]
    parts += [
        "Towards the evening it cools down to 12 degrees, so take a pullover if you stay out.",
        "Over the week:\n\n- until Wednesday: dry, a few clouds\n- from Thursday: showers, wind up to 30 km/h",
        "These figures are of the station at the airport, which lies 80 m higher than the old town; near the water "
        "it is usually a degree or two warmer, and calmer.",
    ][:repeat]
    return "\n\n".join(parts)


def with_calls(row: dict[str, Any]) -> dict[str, Any]:
    """The same rollout with its calls to the model, as a run with capture writes them."""
    calls = [
        {
            "model_ref": {"type": "responses_api_models", "name": "policy_model"},
            "status_code": 200,
            "latency_total_ms": 812.4 + 400 * number,
            "latency_ttft_ms": 95.0 + number,
            "response_status": "completed",
            "tokens_in": 1180 + 212 * number,
            "tokens_out": 64 - 9 * number,
        }
        for number in range(2)
    ]
    calls.append({"model_ref": {"name": "policy_model"}, "status_code": 503, "error_category": "upstream_error"})
    return {**row, "ng_model_call_capture": {"calls": calls}}


def with_tokens(row: dict[str, Any]) -> dict[str, Any]:
    """The same rollout with the token ids and log-probs that training needs."""
    message = row["response"]["output"][-1]
    words = message["content"][0]["text"].split()
    message["prompt_token_ids"] = list(range(100, 124))
    message["generation_token_ids"] = list(range(200, 200 + len(words)))
    message["generation_log_probs"] = [-0.01 - 0.35 * (place % 9) for place in range(len(words))]
    return row


def by_program(text: str) -> dict[str, Any]:
    """What a program adds to a rollout that it played, with `text` wherever it or its model writes."""
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {
        "program": {"exit_code": 0, "seconds": 7.5, "stdout": text, "stderr": ""},
        "model_calls": 4,
        "branches": [
            {"begins_after_call": None, "calls": [0], "responses_create_params": {"input": text}, "output": [said]}
        ],
        "artifacts": {f".log/{text}": text},
        "workspace_diff": f"--- a/{text}\n+++ b/{text}\n@@ -1 +1,2 @@\n-{text}\n+{'long ' * 60}\n+{text}\n",
    }


def hostile(task: int) -> dict[str, Any]:
    """A rollout that tries to be more than text, everywhere."""
    row = rollout(task, 0, agent=f"agent {HOSTILE}"[:60], reward=0.0)
    row["responses_create_params"]["input"][1]["content"] = HOSTILE
    row["response"]["output"][0]["summary"][0]["text"] = HOSTILE
    row["response"]["output"][-1]["content"][0]["text"] = HOSTILE
    row["response"]["id"] = f"resp_{HOSTILE}"
    row["note"] = HOSTILE
    row |= by_program(HOSTILE)
    row["response"]["output"].insert(
        1, {"type": "function_call", "call_id": HOSTILE, "name": HOSTILE, "arguments": json.dumps({"x": HOSTILE})}
    )
    return row


def run(
    tasks: int, repeats: int, *, seed: int, skill: float, agents: tuple[str, ...] = ("weather_agent",)
) -> list[Any]:
    """Rollouts of a run, in an order such as they end in."""
    chance = random.Random(seed)
    rows = [
        rollout(task, repeat, agent=agent, reward=float(chance.random() < skill + task / (3 * tasks)))
        for agent in agents
        for task in range(tasks)
        for repeat in range(repeats)
    ]
    chance.shuffle(rows)
    return rows


def failure(task: int, kind: str, message: str) -> dict[str, Any]:
    """A row of a failures file, with the calls that were captured."""
    output = [_reasoning("Oslo"), _tool_call(0, "Oslo", 3, 4)[0]]
    request = {"input": [*_asked("Oslo")["input"], *output, _tool_call(0, "Oslo", 3, 4)[1]]}
    calls = [{"model_call_id": "m", "status_code": 200, "latency_total_ms": 700.0, "response_status": "completed"}]
    said = [{"model_call_id": "m", "response": {"status": "completed", "output": output}}]
    calls.append({"model_call_id": "n", "status_code": 503, "error_category": "upstream_error"})
    said.append({"model_call_id": "n", "request": request})
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": 0,
        "agent_ref": {"type": "responses_api_agents", "name": "weather_agent"},
        "ng_model_call_capture": {"calls": calls},
        "ng_trajectory": {"model_calls": said},
        "_ng_failure": {
            "kind": kind,
            "boundary": "agent",
            "message": message,
            "retryable": True,
            "attempts": 3,
            "status": 503,
        },
    }


def with_examples(row: dict[str, Any]) -> dict[str, Any]:
    """The same rollout after an example in its prompt, and with the calls that are expected of it."""
    example = [{"role": "user", "content": "And Rome?"}, {"role": "assistant", "content": "No coat needed in Rome."}]
    row["responses_create_params"]["input"][1:1] = example
    made = [item for item in row["response"]["output"] if item["type"] == "function_call"]
    expected = [{"name": call["name"], "arguments": call["arguments"]} for call in made]
    return {**row, "ground_truth": [*expected, {"name": "get_tide", "arguments": "{}"}]}


def manifest(secret: str) -> dict[str, Any]:
    """The record of a run, in which somebody has left a secret."""
    policy = {"openai_model": "qwen3-8b-instruct", "openai_api_key": secret}
    return {
        "schema": 1,
        "status": "finished",
        "started_at": "2026-11-16T14:50:24.316+00:00",
        "ended_at": "2026-11-16T14:53:11.127+00:00",
        "counts": {"requested": 99, "scored": 96, "failed": 3},
        "input": {"path": "data/weather.jsonl", "size_bytes": 1, "sha256": "ab" * 32},
        "settings": {"num_repeats": 4, "responses_create_params": {"temperature": 0.7}},
        "config": {
            "policy_model": {"responses_api_models": {"vllm_model": policy}},
            "weather": {"resources_servers": {"weather": {"domain": "agent"}}},
        },
        "nemo_gym": "0.1.0",
        "python": "3.11.7",
        "git": {"commit": "c0ffee" * 6, "dirty": True},
    }


def write(path: Path, rows: list[Any]) -> Path:
    """Rows as JSONL; text is written as it is."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
