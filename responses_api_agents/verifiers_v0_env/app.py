# SPDX-License-Identifier: Apache-2.0
"""Plays verifiers 0.1 (v0) environments: the library owns the loop and the score, the model server the model."""

import asyncio
import json
from typing import Any, Literal

from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.adapters.rollout_runner import (
    LibraryRunner,
    ModelEndpoint,
    RolloutRunnerConfig,
    RunnerResult,
    RunnerRunRequest,
    RunnerVerifyResponse,
    read_sampling,
)
from nemo_gym.errors import GymError, RolloutFailure
from responses_api_agents.verifiers_v0_env.environments import (
    load_environment,
    note_reward_errors,
    read_examples,
    require_example,
    weigh_metrics,
)

_MODEL_RETRIES = 2
_SCORED_ERRORS = ("ToolError", "ToolParseError", "ToolCallError")
"""Errors with which an environment ends a rollout because of the model's tool calls; the library scores these."""


class VerifiersV0EnvConfig(RolloutRunnerConfig):
    """Config of the agent."""

    reward_errors: Literal["fail", "zero"] = "fail"
    """What happens if a reward function raises: the rollout fails, or that part is 0, as in the library itself."""


class EnvironmentExample(BaseModel, extra="forbid"):
    """A reference to an example of an environment."""

    id: str
    """The name of the environment's package, or the path of its module."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its `load_environment`."""
    split: Literal["eval", "train"] = "eval"
    example: int
    """The index of the example in the split."""


class VerifiersV0RunRequest(RunnerRunRequest):
    """A task."""

    environment: EnvironmentExample


class VerifiersV0Env(LibraryRunner):
    """An agent whose rollouts a verifiers 0.1 environment plays and scores."""

    config: VerifiersV0EnvConfig
    _client: Any = PrivateAttr(default=None)

    async def run(self, body: VerifiersV0RunRequest) -> RunnerVerifyResponse:  # type: ignore[override]
        """Play one rollout."""
        return await super().run(body)

    async def play_in_library(self, task: dict[str, Any], model: ModelEndpoint) -> RunnerResult:
        """Play an example as the library does, and return its reward."""
        asked = EnvironmentExample.model_validate(task["environment"])
        name = asked.id
        split = asked.split
        try:
            # Loading takes seconds; other rollouts continue meanwhile.
            environment = await asyncio.to_thread(load_environment, name, json.dumps(asked.args, sort_keys=True))
        except GymError as error:
            raise RolloutFailure("agent", str(error)) from error
        if environment.requires_group_rollouts:
            raise RolloutFailure(
                "agent",
                f"{name!r} scores several rollouts of an example together, but here each is played on its own.\n"
                "hint: use an environment that scores rollouts one by one",
            )
        example = require_example(read_examples(environment, split), asked.example, name, split)
        with note_reward_errors() as errors:
            played = await environment.run_rollout(example, self._make_client(model), model.model, read_sampling(task))
        self._raise_on_errors(name, played, errors)
        metrics = {key: float(value) for key, value in (played["metrics"] or {}).items()}
        info = {
            "stop_condition": played["stop_condition"],
            "is_truncated": played["is_truncated"],
            "error": played["error"] and played["error"]["error"],
            "reward_errors": errors,
        }
        reward = float(played["reward"])
        parts = weigh_metrics(environment.rubric, metrics, reward)
        return RunnerResult(reward, components=parts, metrics=metrics, info=info)

    def _raise_on_errors(self, name: str, played: Any, errors: list[str]) -> None:
        """Raise where the library would give 0 for something that is not the model's fault."""
        error = played["error"]
        if error is not None and error["error"] not in _SCORED_ERRORS:
            is_reply = error["error"] in ("EmptyModelResponseError", "InvalidModelResponseError")
            raise RolloutFailure(
                "model_reply_invalid" if is_reply else "agent",
                f"the environment {name!r} ended with an error: {error['error_chain_str']}",
                True,
            )
        if errors and self.config.reward_errors == "fail":
            raise RolloutFailure(
                "verifier",
                f"a reward function of {name!r} raised: {'; '.join(errors)}\n"
                "hint: if it does so for bad answers, set `reward_errors: zero`, which is what the library does",
            )

    def _make_client(self, model: ModelEndpoint) -> Any:
        """Return a library client for the model of one rollout; all clients share their connections."""
        import openai
        from verifiers.clients import OpenAIChatCompletionsClient

        if self._client is None:
            self._client = openai.AsyncOpenAI(
                base_url=model.base_url,
                api_key=model.api_key,
                max_retries=_MODEL_RETRIES,
                timeout=self.config.rollout_timeout_s,
                http_client=openai.DefaultAsyncHttpxClient(limits=openai.DEFAULT_CONNECTION_LIMITS, trust_env=False),
            )
        return OpenAIChatCompletionsClient(self._client.with_options(base_url=model.base_url, api_key=model.api_key))


if __name__ == "__main__":
    VerifiersV0Env.run_webserver()
