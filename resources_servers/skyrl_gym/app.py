# SPDX-License-Identifier: Apache-2.0
"""The environments of `skyrl-gym`, played step by step by `gymnasium_agent`.

The library runs the model's programs and SQL in its own process, or in a plain child process. Here, the environments
that do so are played in sandboxes, and the others in separate processes. This process never loads the library.
"""

import os
from typing import Any

from fastapi import FastAPI, Request
from pydantic import Field, PositiveFloat, PositiveInt, PrivateAttr, field_validator

from nemo_gym.adapters import StepServerConfig, TextStepServer
from nemo_gym.code_execution import CodePool
from nemo_gym.cpu_pool import usable_cpus
from nemo_gym.errors import RolloutFailure
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.step_environments import EnvResetRequest, EnvResetResponse
from resources_servers.skyrl_gym import environment
from resources_servers.skyrl_gym.sandboxed_episode import SandboxedEpisode, make_pool

RUNS_CODE = ("lcb", "text2sql")
REFUSED = {
    "searchcode": "it runs the model's programs unprotected, and its search needs the network, so no sandbox can "
    "contain it.\nhint: play `search` for searching, or `lcb` for programs",
}
"""Environments of the library that are not supported, and why."""


class SkyrlGymResourcesServerConfig(StepServerConfig):
    """Config of the environments."""

    env_configs: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings by environment, as in SkyRL: `{search: {search_url: ...}, text2sql: {db_path: ...}}`."""
    num_sandboxes: PositiveInt | None = None
    """How many replies with programs or SQL run at a time; None: one per processor."""
    step_timeout_s: PositiveFloat = 300.0
    """The time limit for a step; the library itself allows 6 s for a test and 5 s or 30 s for an SQL query."""

    @field_validator("env_configs")
    @classmethod
    def make_folders_absolute(cls, env_configs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Resolve `db_path` where the server was started: a sandbox has another working directory."""
        return {
            name: {key: os.path.abspath(value) if key == "db_path" else value for key, value in settings.items()}
            for name, settings in env_configs.items()
        }


class SkyrlGymResourcesServer(TextStepServer):
    """Plays each row in the environment named by its `env_class`."""

    MEAN_REWARDS_BY = "env_class"
    PRELOAD = ("skyrl_gym", "resources_servers.skyrl_gym.inside.skyrl_environment")
    make_environment = staticmethod(environment.make)
    config: SkyrlGymResourcesServerConfig
    _sandboxes: CodePool = PrivateAttr()

    def setup_webserver(self) -> FastAPI:
        """Return the app. The sandboxes end with it; none starts before it is needed."""
        app = super().setup_webserver()
        databases: str | None = self.config.env_configs.get("text2sql", {}).get("db_path")
        self._sandboxes = make_pool(
            self.config.num_sandboxes or usable_cpus(),
            self.config.session_memory_mb,
            [] if databases is None else [databases],
        )
        self._sandboxes.close_with(app)
        return app

    async def handle_reset(self, body: EnvResetRequest, request: Request) -> EnvResetResponse:
        """`POST /reset`. Pass the prompt to the library's environment."""
        messages = body.responses_create_params.model_dump(mode="json", exclude_unset=True)["input"]
        prompt = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return await super().handle_reset(body.model_copy(update={"prompt": prompt}), request)

    async def reset(self, metadata: dict[str, Any], session_id: str) -> Any:
        """Start an episode, if this server can play it."""
        env_class = metadata.get("env_class")
        if problem := self.find_problem(metadata):
            raise RolloutFailure("tool_server", f"environment {env_class!r} cannot be played: {problem}")
        settings = self.config.env_configs.get(str(env_class), {})
        return await super().reset({**metadata, "_ng_env_config": settings}, session_id)

    def find_problem(self, task: dict[str, Any]) -> str | None:
        """Return why a task cannot be played with this config, and what to do; None if it can."""
        env_class = task.get("env_class")
        settings = self.config.env_configs.get(str(env_class), {})
        if env_class is None:
            return "the row has no `env_class`.\nhint: rows in SkyRL's format have one"
        if env_class == "search" and "search_url" not in settings:
            return "it needs a retriever.\nhint: set `env_configs: {search: {search_url: http://HOST:PORT/retrieve}}`"
        if env_class == "text2sql" and "db_script" not in task and "db_path" not in settings:
            return "its databases are files.\nhint: set `env_configs: {text2sql: {db_path: FOLDER}}`"
        return REFUSED.get(env_class)

    async def open_episode(self, task: dict[str, Any]) -> Any:
        """Return a sandboxed episode if the environment runs the model's code, else one in a process."""
        return SandboxedEpisode(self._sandboxes) if task["env_class"] in RUNS_CODE else await super().open_episode(task)

    async def act(self, episode: Any, response: NeMoGymResponse) -> dict[str, Any]:
        """Pass everything the model wrote to the environment, including its thinking, as SkyRL does."""
        return await episode.step([write_out(response)], self.config.step_timeout_s)


def write_out(response: NeMoGymResponse) -> str:
    """Return a reply as the model wrote it: put separate reasoning items back, in `<think>` tags."""
    parts = []
    for item in response.output:
        if item.type == "reasoning":
            thought = "\n".join(part.text for part in item.content or item.summary)
            parts.append(f"<think>{thought}</think>")
        elif item.type == "message":
            parts.extend(part.text for part in item.content if part.type == "output_text")
    return "\n".join(parts)


if __name__ == "__main__":
    SkyrlGymResourcesServer.run_webserver()
