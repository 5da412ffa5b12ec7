# SPDX-License-Identifier: Apache-2.0
"""Files of small runs, and their rows."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nemo_gym._viewer.files.file_index import Index, open_index
from tests.support.jsonl_files import write

__all__ = ["write"]


@pytest.fixture
def opened() -> Iterator[Callable[..., Index]]:
    """Open a file and wait until it is read; closed when the test ends."""
    with ExitStack() as stack:

        def opened(path: Path, **options: Any) -> Index:
            index = stack.enter_context(open_index(path, **options))
            assert index.wait(300)
            return index

        yield opened


@pytest.fixture
def rollout():
    """A row of a rollouts file: a question, perhaps a tool call, an answer."""

    def rollout(
        task: int = 0,
        number: int = 0,
        reward: Any = 1.0,
        *,
        agent: str = "a",
        text: str = "The answer is 4.",
        tools: tuple[str, ...] = (),
        status: str = "completed",
        **fields: Any,
    ) -> dict[str, Any]:
        output: list[dict[str, Any]] = []
        for place, name in enumerate(tools):
            call = {"type": "function_call", "call_id": f"c{place}", "name": name, "arguments": '{"x":1}'}
            output += [call, {"type": "function_call_output", "call_id": f"c{place}", "output": "ok"}]
        answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        return {
            "_ng_task_index": task,
            "_ng_rollout_index": number,
            "agent_ref": {"name": agent},
            "responses_create_params": {"input": [{"role": "user", "content": f"question {task}"}]},
            "response": {
                "id": f"resp_{task}_{number}",
                "status": status,
                "output": [*output, answer],
                "usage": {"input_tokens": 10, "output_tokens": 5 + task},
            },
            "reward": reward,
            **fields,
        }

    return rollout


@pytest.fixture
def failed():
    """A row of a failures file."""

    def failed(task: int = 0, number: int = 0, kind: str = "timeout", message: str = "too late") -> dict[str, Any]:
        return {
            "_ng_task_index": task,
            "_ng_rollout_index": number,
            "agent_ref": {"name": "a"},
            "_ng_failure_class": kind,
            "_ng_failure": {
                "kind": kind,
                "message": message,
                "boundary": "/run",
                "retryable": True,
                "attempts": 3,
                "elapsed_s": 1.5,
            },
        }

    return failed
