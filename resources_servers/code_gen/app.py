# SPDX-License-Identifier: Apache-2.0
"""Programming tasks: the model writes a program, which passes if all unit tests pass.

Programs run in sandboxes of `nemo_gym.code_execution`. There is no partial credit, and a harmful program
fails.
"""

import logging
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.code_execution import CodePool, Limits, find_package
from nemo_gym.reward_profile import compute_pass_majority_metrics, compute_subset_metrics, highest_k_metrics
from resources_servers.code_gen.checking import HarnessProcess, UnitTests, check, extract_code

LOG = logging.getLogger(__name__)
MEMORY_MIB = 4096


def _measure_accuracy(rollout: dict[str, Any]) -> dict[str, float]:
    return {"accuracy": float(rollout["reward"] > 0)}


class CodeGenResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    num_processes: int = Field(8, ge=1)
    """How many programs run at once."""
    unit_test_timeout_secs: float = Field(10, gt=0)
    """How many seconds a program may take per unit test."""
    debug: bool = False
    """Log the result of every unit test."""
    reasoning_format_penalty: float = 0.0
    """The reward of a program beside reasoning tags in a message, or repeated ones in the reasoning."""
    harness_process: HarnessProcess = "auto"
    """Where a harness runs: `separate`, in its own process, which gets only plain values from the program's; `shared`,
    in the program's process, where a malicious program can deceive it. `auto`: separate for tasks that name their
    `entry_points`, shared for others."""


class VerifierMetadata(BaseModel):
    """What a task is scored with."""

    unit_tests: UnitTests
    difficulty: str | None = None


class CodeGenRunRequest(BaseRunRequest):
    """A task, and where it comes from."""

    verifier_metadata: VerifierMetadata
    hash_id: str | None = None
    dataset: str | None = None
    source: str | None = None


class CodeGenVerifyRequest(CodeGenRunRequest, BaseVerifyRequest):
    """A task and the response to it."""


class CodeGenVerifyResponse(CodeGenVerifyRequest, BaseVerifyResponse):
    """The reward, and what it rests on."""

    extracted_model_output: str | None = None
    """All that the model said; None if it said nothing."""
    extracted_model_code: str | None = None
    """The program in it; None if there is none."""
    result: list[bool | int] | None = None
    """A value for each unit test up to the first that failed: true, or false (wrong answer), -3 (took too long),
    -4 (error)."""
    metadata: dict[str, Any] | None = None
    """Of a failure: `error_code`, `error_message`, and the unit test it is about."""
    unit_tests_time_taken: float | None = None
    reasoning_format_violation_rate: float = 0.0
    """1 if the reply has reasoning tags where they do not belong, else 0."""
    difficulty: str | None = None


class CodeGenResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that runs programs."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    MEAN_REWARDS_BY = "difficulty"
    config: CodeGenResourcesServerConfig
    _pool: CodePool = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Create the sandboxes; none starts before there is something to run."""
        super().model_post_init(context)
        limits = Limits(memory_mib=MEMORY_MIB)
        self._pool = CodePool(
            self.config.num_processes,
            limits,
            timeout_s=self.config.unit_test_timeout_secs,
            import_paths=find_package("numpy"),
        )

    def setup_webserver(self) -> FastAPI:
        """Return the app; the sandboxes end with it."""
        app = super().setup_webserver()
        self._pool.close_with(app)
        return app

    async def verify(self, body: CodeGenVerifyRequest) -> CodeGenVerifyResponse:
        """Give 1 if the program passes all unit tests; beside misplaced reasoning, what the config says."""
        text = grading.joined_text(body.response)
        code = extract_code(text)
        is_misplaced = has_misplaced_reasoning(text, body.response.output)
        reward = 0.0
        extras: dict[str, Any] = {}
        if code:
            tests = body.verifier_metadata.unit_tests
            timeout_s = self.config.unit_test_timeout_secs
            report = await check(self._pool, code, tests, timeout_s, self.config.harness_process)
            reward = self.config.reasoning_format_penalty if is_misplaced else float(report.has_passed)
            extras = {
                "result": report.result,
                "metadata": report.metadata,
                "unit_tests_time_taken": report.elapsed_s,
            }
            if self.config.debug:
                LOG.info("task %r: %s %s", body.hash_id, report.result, report.metadata)
        return CodeGenVerifyResponse(
            **dict(body),
            **extras,
            reward=reward,
            extracted_model_output=text or None,
            extracted_model_code=code or None,
            reasoning_format_violation_rate=float(is_misplaced),
            difficulty=body.verifier_metadata.difficulty,
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return pass@k, majority@k and the like, for all tasks and per difficulty, and the mean rewards."""
        found, *_ = compute_pass_majority_metrics(tasks, _measure_accuracy, answer_key="extracted_model_code")
        by_difficulty = compute_subset_metrics(
            tasks, "difficulty", _measure_accuracy, answer_key="extracted_model_code"
        )
        return {**super().compute_metrics(tasks), **found, **by_difficulty}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the mean reward, overall and per difficulty, and the rates of passing for the most attempts."""
        means = {name: value for name, value in agent_metrics.items() if name.startswith("mean/reward")}
        averages = highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]", score_names=["accuracy"])
        passes = highest_k_metrics(agent_metrics, "pass@{k}", score_names=["accuracy"])
        return {**means, **averages, **passes}


def has_misplaced_reasoning(text: str, output: list[Any]) -> bool:
    """Return whether a thinking tag is in a message, or one occurs more than once in the reasoning."""
    summaries = (part.text for item in output if item.type == "reasoning" for part in item.summary)
    thought = "".join(summaries)
    return any(tag in text or thought.count(tag) > 1 for tag in ("<think>", "</think>"))


if __name__ == "__main__":
    CodeGenResourcesServer.run_webserver()
