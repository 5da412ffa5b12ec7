# SPDX-License-Identifier: Apache-2.0
"""List the installed library's environments, and make rows for them. This runs in the server's virtual environment."""

import difflib
from importlib.util import find_spec
from typing import Any

from nemo_gym.errors import GymError

INSTRUCTION = "Do what you are asked by calling the tools that you have. A reply without a call changes nothing."
TOPICS = ("a lighthouse", "two brothers", "the last train", "an honest cook", "snow in June")
_DESCRIPTIONS = {
    "dummy": "Write a five word story with a tool; for trying things out",
    "tasks/dummy": "The same, without a topic",
    "calculator": "Solve `arguments.problem` with a calculator; `arguments.answer` is right (extra gsm8k)",
    "hotpotqa": "Look up and answer `arguments.question` in Wikipedia (extra hotpotqa; needs the network)",
    "tasks/gsm8k": "GSM8K with a calculator (extra gsm8k; the tasks come from the Hugging Face Hub)",
    "tasks/hotpotqa": "HotpotQA in Wikipedia (extra hotpotqa; needs the network and the Hugging Face Hub)",
}
_EXTRAS = {"calculator": "gsm8k", "hotpotqa": "hotpotqa", "tasks/gsm8k": "gsm8k", "tasks/hotpotqa": "hotpotqa"}


class UnknownEnvironment(GymError):
    """The library does not have the requested environment."""


def list_environments() -> list[dict[str, str]]:
    """Return the `id` and `description` of the installed environments. Others are named `package.module:Class`."""
    return [
        {"id": name, "description": description}
        for name, description in _DESCRIPTIONS.items()
        if name not in _EXTRAS or _is_installed(_EXTRAS[name])
    ]


def make_rows(
    environment_id: str, rows: int, seed: int = 0, options: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return rows of an environment.

    `options`: `arguments` for its constructor, `handle_tool_exc`, and, for a task dataset, the `first` index.
    """
    options = dict(options or {})
    if ":" not in environment_id and environment_id not in (known := [one["id"] for one in list_environments()]):
        close = difflib.get_close_matches(environment_id, known, n=3, cutoff=0.4)
        extra = _EXTRAS.get(environment_id)
        raise UnknownEnvironment(
            f"there is no environment {environment_id!r}.\navailable: {', '.join(known)}, or `package.module:Class`\n"
            + (f"hint: add `fhaviary[{extra}]` to `requirements` in this server's config" if extra else "")
            + (f"hint: did you mean {' or '.join(map(repr, close))}?" if close and not extra else "")
        )
    return [make_row(environment_id, number, seed, options) for number in range(rows)]


def make_row(environment_id: str, number: int, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return row `number` of an environment."""
    row: dict[str, Any] = {
        "responses_create_params": {"input": [{"role": "system", "content": INSTRUCTION}]},
        "environment": environment_id,
        "arguments": dict(options.get("arguments") or {}),
        "seed": seed + number,
    }
    if environment_id == "dummy":
        row["arguments"].setdefault("task", TOPICS[(seed + number) % len(TOPICS)])
    if "first" in options or (environment_id.startswith("tasks/") and environment_id != "tasks/dummy"):
        row["index"] = options.get("first", 0) + number
    if "handle_tool_exc" in options:
        row["handle_tool_exc"] = bool(options["handle_tool_exc"])
    return row


def _is_installed(extra: str) -> bool:
    try:
        return find_spec(f"aviary.envs.{extra}") is not None
    except ModuleNotFoundError:
        return False
