# SPDX-License-Identifier: Apache-2.0
"""What can be played here: the tasksets that are installed beside the library, and rows of their tasks."""

import itertools
import random
from typing import Any

from responses_api_agents.verifiers_env.environments import build_environment
from responses_api_agents.verifiers_env.environments import list_environments as list_environments


def make_rows(environment_id: str, rows: int, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rows of tasks that `seed` draws, in the order of the taskset; at most as many as it has.

    Of a taskset without end, its first tasks. Option: `config`, the library's block `env`.
    """
    config = options.get("config") or {}
    taskset = build_environment(environment_id, config, harness="null", runtime="subprocess").taskset
    tasks = list(taskset if taskset.bounded else itertools.islice(taskset, rows))
    chosen = sorted(random.Random(seed).sample(range(len(tasks)), min(rows, len(tasks))))
    return [
        {
            # For readers: the library writes the prompt of a rollout itself.
            "responses_create_params": {"input": _read_prompt(tasks[index].data)},
            "environment": {"id": environment_id, "config": config, "task": index},
        }
        for index in chosen
    ]


def make_config(environment_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what the block of the server needs besides its default: a package, a harness, a runtime, if given."""
    return {key: options[key] for key in ("requirements", "harness", "runtime") if options.get(key)}


def _read_prompt(data: Any) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*system, {"role": "user", "content": data.prompt}]
    told = [(message.role, message.content) for message in data.prompt or ()]
    return system + [{"role": role, "content": text} for role, text in told if isinstance(text, str)]
