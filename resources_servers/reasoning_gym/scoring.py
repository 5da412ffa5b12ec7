# SPDX-License-Identifier: Apache-2.0
"""Find the answer in a reply, and score it in a sandbox with its task's scorer."""

import re
from pathlib import Path
from typing import Any

from nemo_gym.code_execution import COMMON_MODULES, CodePool, installed_packages
from nemo_gym.errors import GymError

INSIDE = Path(__file__).parent / "inside"
MODULE = "reasoning_gym_scoring"
_BOX = re.compile(r"\\boxed\{([^}]+)\}")


class UnknownTask(GymError):
    """The installed library does not have the row's task."""


class ScorerError(GymError):
    """A task's scorer does not work, whatever the answer."""


def extract_answer(text: str) -> str:
    r"""Return the answer in a reply: from the last `<answer>` tags, else from the first `\boxed{}`, else all of it."""
    tagged = None
    start = text.find("<answer>")
    while start >= 0:
        end = text.find("</answer>", start)
        if end < 0:
            break
        tagged = text[start + len("<answer>") : end].strip()
        start = text.find("<answer>", end)
    if tagged is not None:
        return tagged
    # Without what follows the last brace: the search would read it once for every box that is never closed.
    box = _BOX.search(text[: text.rfind("}") + 1])
    return box[1].strip() if box else text.strip()


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
