# SPDX-License-Identifier: Apache-2.0
"""Define your own metrics: an environment that also reports how long answers are, and pass@k for two scores.

    python examples/custom_metrics.py

A resources server's `compute_metrics` gets the verify responses of every task; the metrics it returns are added to the
usual ones in tables, files and `gym view`. `get_key_metrics` picks the ones to look at first.
"""

import asyncio
from statistics import mean
from typing import Any

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.reward_profile import compute_pass_majority_metrics, highest_k_metrics
from nemo_gym.server_utils import get_response_json, raise_for_status
from nemo_gym.testing import asked, reply, running

MAX_WORDS = 3


class SumVerifyRequest(BaseVerifyRequest):
    """A task with its solution."""

    total: int


class SumVerifyResponse(BaseVerifyResponse):
    """The reward, and the input of the metrics."""

    words: int


class SumServer(SimpleResourcesServer):
    """Correct sums get 1; short answers are only reported."""

    async def verify(self, body: SumVerifyRequest) -> SumVerifyResponse:
        """Look for the total in the answer, and count the answer's words."""
        words = grading.assistant_text(body.response).split()
        return SumVerifyResponse(**dict(body), words=len(words), reward=float(str(body.total) in words))

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the mean length, and pass@k for correct and for short answers."""
        metrics, *_ = compute_pass_majority_metrics(
            tasks, lambda rollout: {"right": rollout["reward"], "short": float(rollout["words"] <= MAX_WORDS)}
        )
        return {**metrics, "words_per_answer": mean(rollout["words"] for task in tasks for rollout in task)}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the mean length, and pass@k for the highest k."""
        highest = highest_k_metrics(agent_metrics, "pass@{k}", score_names=["right", "short"])
        return {"words_per_answer": agent_metrics["words_per_answer"], **highest}


async def main() -> None:
    """Score two answers to each of two tasks, and print the metrics."""
    answers = {7: ["7", "It must be 7 or so"], 9: ["I think it is 8", "The answer is 9"]}
    verified = []
    async with running(sums=SumServer) as client:
        for task, (total, texts) in enumerate(answers.items()):
            for rollout, text in enumerate(texts):
                body = {"responses_create_params": asked("Add!"), "response": reply(text), "total": total}
                scored = await client.post("sums", "/verify", json=body)
                await raise_for_status(scored)
                index = {"_ng_task_index": task, "_ng_rollout_index": rollout}
                verified.append({**await get_response_json(scored), **index})
        aggregated = await client.post("sums", "/aggregate_metrics", json={"verify_responses": verified})
        await raise_for_status(aggregated)
        for name, value in (await get_response_json(aggregated))["key_metrics"].items():
            print(f"{name}: {value:g}")


if __name__ == "__main__":
    asyncio.run(main())
