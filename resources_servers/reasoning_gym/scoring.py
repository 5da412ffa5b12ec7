# SPDX-License-Identifier: Apache-2.0
"""Find the answer in a reply, and have it scored in a sandbox by the scorer of its task."""

from pathlib import Path
from typing import Any

from nemo_gym import grading
from nemo_gym.code_execution import COMMON_MODULES, CodePool, installed_packages
from nemo_gym.errors import GymError

INSIDE = Path(__file__).parent / "inside"
MODULE = "reasoning_gym_scoring"


class UnknownTask(GymError):
    """A row is of a task that the installed library does not have."""


class ScorerError(GymError):
    """The scorer of a task cannot be used, whatever the answer."""


def extract_answer(text: str) -> str | None:
    r"""Return what a reply gives as its answer: in `<answer>` tags, else in the first `\boxed{}`, else all of it."""
    said = grading.strip_thinking(text)
    tagged = grading.tagged(said, "answer")
    if tagged is not None:
        return tagged
    boxes = grading.all_boxed(said)
    return boxes[0] if boxes else said or None


def scorer_pool(workers: int, timeout_s: float) -> CodePool:
    """Sandboxes that have loaded all scorers."""
    return CodePool(
        workers,
        timeout_s=timeout_s,
        preload=(*COMMON_MODULES, MODULE),
        import_paths=[*installed_packages(), str(INSIDE)],
    )


async def score_answer(pool: CodePool, task: str, answer: str, entry: dict[str, Any]) -> float:
    """Return what `answer` is worth, from 0 to 1; 0 if the scorer cannot cope with it, or not in time."""
    ran = await pool.call(f"from {MODULE} import score", "score", [task, answer, entry])
    if ran.status == "error" or (ran.status == "ok" and not isinstance(ran.value, dict)):
        raise ScorerError(
            f"the scorer of task {task!r} could not run: {ran.error}\n"
            "hint: it needs the package `reasoning-gym`: pip install 'nemo-gym[environments]'"
        )
    if ran.status != "ok":
        return 0.0
    if "unknown" in ran.value:
        raise UnknownTask(
            f"the row is of task {task!r}, which the installed reasoning-gym does not have.\n"
            f"its {len(ran.value['unknown'])} tasks: {', '.join(ran.value['unknown'])}"
        )
    if "broken" in ran.value:
        raise ScorerError(
            f"the scorer of task {task!r} fails on the answer of the row itself: {ran.value['broken']}\n"
            "hint: the metadata of the row may be incomplete; write the row anew with the installed reasoning-gym"
        )
    return float(ran.value["score"])
