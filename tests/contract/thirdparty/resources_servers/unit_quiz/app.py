# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastapi import Request

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.reward_profile import (
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class UnitQuizConfig(BaseResourcesServerConfig):
    tolerance: float = 1e-6


class UnitQuizVerifyRequest(BaseVerifyRequest):
    expected: float
    unit: str = "m"


class UnitQuizVerifyResponse(UnitQuizVerifyRequest, BaseVerifyResponse):
    extracted: str | None = None


class UnitQuizServer(SimpleResourcesServer):
    config: UnitQuizConfig

    async def verify(self, body: UnitQuizVerifyRequest, request: Request) -> UnitQuizVerifyResponse:
        text = body.response.output_text
        numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
        extracted = numbers[-1] if numbers else None
        right = extracted is not None and abs(float(extracted) - body.expected) <= self.config.tolerance
        return UnitQuizVerifyResponse(**body.model_dump() | {"reward": float(right)}, extracted=extracted)

    @staticmethod
    def _score_fn(result: dict[str, Any]) -> dict[str, float | bool]:
        return {"accuracy": result["reward"], "has_number": result.get("extracted") is not None}

    def compute_metrics(self, tasks: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
        metrics, all_scores, names, max_k = compute_pass_majority_metrics(
            tasks, score_fn=self._score_fn, answer_key="extracted"
        )
        add_avg_sample_std_dev(metrics, all_scores, names, max_k)
        metrics.update(compute_subset_metrics(tasks, "unit", self._score_fn, "extracted"))
        metrics["per_task_metrics"] = [{"unit": task[0]["unit"]} for task in tasks]
        return metrics

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        key = {name: agent_metrics[name] for name in ("mean/input_tokens", "mean/reward") if name in agent_metrics}
        key.update(highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]", score_names=["accuracy"]))
        key.update(highest_k_metrics(agent_metrics, "pass@{k}", exclude_names=["no_answer", "has_number"]))
        key.update(highest_k_metrics(agent_metrics, "majority@{k}"))
        return key

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        result = await super().aggregate_metrics(body)
        result.agent_metrics["rollouts_seen"] = len(body.verify_responses)
        return result


if __name__ == "__main__":
    UnitQuizServer.run_webserver()
