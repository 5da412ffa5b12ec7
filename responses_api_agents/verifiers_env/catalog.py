# SPDX-License-Identifier: Apache-2.0
"""List the tasksets installed alongside the library, and make rows of their tasks."""

import itertools
import random
from typing import Any

from responses_api_agents.verifiers_env.environments import build_environment, list_environments as list_environments


def make_rows(environment_id: str, rows: int, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return up to `rows` rows of tasks drawn with `seed`, in the order of the taskset.

    An unbounded taskset gives its first tasks. Option: `config`, the library's `env` block.
    """
    config = options.get("config") or {}
    taskset = build_environment(environment_id, config, harness="null", runtime="subprocess").taskset
    tasks = list(taskset if taskset.bounded else itertools.islice(taskset, rows))
    chosen = sorted(random.Random(seed).sample(range(len(tasks)), min(rows, len(tasks))))
    return [
        {
            # Only for readers: the library writes the prompt of a rollout itself.
            "responses_create_params": {"input": _read_prompt(tasks[index].data)},
            "environment": {"id": environment_id, "config": config, "task": index},
        }
        for index in chosen
    ]


def make_config(environment_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return overrides of the default config: the package, harness and runtime, if given."""
    return {key: options[key] for key in ("requirements", "harness", "runtime") if options.get(key)}


def _read_prompt(data: Any) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*system, {"role": "user", "content": data.prompt}]
    messages = [(message.role, message.content) for message in data.prompt or ()]
    return system + [{"role": role, "content": text} for role, text in messages if isinstance(text, str)]
