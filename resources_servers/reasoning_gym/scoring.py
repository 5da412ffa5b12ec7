# SPDX-License-Identifier: Apache-2.0
"""Find the answer in a reply, and score it in a sandbox with its task's scorer."""

from pathlib import Path
from typing import Any

from nemo_gym import grading
from nemo_gym.code_execution import COMMON_MODULES, CodePool, installed_packages
from nemo_gym.errors import GymError

INSIDE = Path(__file__).parent / "inside"
MODULE = "reasoning_gym_scoring"


class UnknownTask(GymError):
    """The installed library does not have the row's task."""


class ScorerError(GymError):
    """A task's scorer does not work, whatever the answer."""


def extract_answer(text: str) -> str | None:
    r"""Return the answer in a reply: from `<answer>` tags, else from the first `\boxed{}`, else all of it."""
    said = grading.strip_thinking(text)
    tagged = grading.tagged(said, "answer")
    if tagged is not None:
        return tagged
    boxes = grading.all_boxed(said)
    return boxes[0] if boxes else said or None


def scorer_pool(workers: int, timeout_s: float) -> CodePool:
    """Return sandboxes with all scorers loaded."""
    return CodePool(
        workers,
        timeout_s=timeout_s,
        preload=(*COMMON_MODULES, MODULE),
        import_paths=[*installed_packages(), str(INSIDE)],
    )


async def score_answer(pool: CodePool, task: str, answer: str, entry: dict[str, Any]) -> float:
    """Return the score of `answer`, from 0 to 1; 0 if the scorer cannot handle it, or not in time."""
    result = await pool.call(f"from {MODULE} import score", "score", [task, answer, entry])
    if result.status == "error" or (result.status == "ok" and not isinstance(result.value, dict)):
        raise ScorerError(
            f"the scorer of task {task!r} could not run: {result.error}\n"
            "hint: it needs the package `reasoning-gym`: pip install 'nemo-gym[environments]'"
        )
    if result.status != "ok":
        return 0.0
    if "unknown" in result.value:
        raise UnknownTask(
            f"the row's task is {task!r}, which the installed reasoning-gym does not have.\n"
            f"its {len(result.value['unknown'])} tasks: {', '.join(result.value['unknown'])}"
        )
    if "broken" in result.value:
        raise ScorerError(
            f"the scorer of task {task!r} fails on the row's own answer: {result.value['broken']}\n"
            "hint: the row's metadata may be incomplete; write the row again with the installed reasoning-gym"
        )
    return float(result.value["score"])
