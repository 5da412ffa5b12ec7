# SPDX-License-Identifier: Apache-2.0
"""List the environments installed alongside the library, and make rows of their examples."""

import json
import random
from typing import Any

from responses_api_agents.verifiers_v0_env.environments import (
    list_environments as list_environments,
    load_environment,
    read_examples,
)


def make_rows(environment_id: str, rows: int, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return up to `rows` rows of examples drawn with `seed`, in the order of the dataset.

    Options: `args` of the environment's `load_environment`, and `split`, `eval` or `train`.
    """
    args = options.get("args") or {}
    split = options.get("split", "eval")
    examples = read_examples(load_environment(environment_id, json.dumps(args, sort_keys=True)), split)
    chosen = sorted(random.Random(seed).sample(range(len(examples)), min(rows, len(examples))))
    return [
        {
            # Only for readers: the library writes the prompt of a rollout itself.
            "responses_create_params": {"input": _read_prompt(examples[index])},
            "environment": {"id": environment_id, "args": args, "split": split, "example": index},
        }
        for index in chosen
    ]


def make_config(environment_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return overrides of the default config: the environment's package, if given."""
    return {"requirements": options["requirements"]} if options.get("requirements") else {}


def _read_prompt(example: Any) -> list[dict[str, Any]]:
    prompt = example.get("prompt") or []
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return [
        {"role": message["role"], "content": message["content"]}
        for message in messages
        if isinstance(message.get("content"), str) and message["role"] in ("system", "developer", "user", "assistant")
    ]
