# SPDX-License-Identifier: Apache-2.0
"""The games of TextArena, for one player and for several: the model has one seat, and others have the rest.

The library is loaded in the processes of the episodes alone. Scripted players move there too; an opponent that is a
model is asked here, between two steps of the game.
"""

from typing import Any, Literal

from pydantic import Field, NonNegativeInt, model_validator

from nemo_gym import grading
from nemo_gym.adapters import StepServerConfig, TextStepServer
from nemo_gym.config_types import ModelServerRef
from nemo_gym.errors import RolloutFailure
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status
from nemo_gym.step_environments import Observation
from resources_servers.textarena import environment

_OVER_AT_ONCE = "The game ended before your first turn. Say anything."


class TextArenaResourcesServerConfig(StepServerConfig):
    """Config of the games; a row that has `seat`, `opponent` or `opponent_moves` itself has the say."""

    seat: NonNegativeInt = 0
    """The seat of the model; the first is 0."""
    opponent: Literal["random", "first", "script", "model"] = "random"
    """Who has the other seats: a scripted player by its policy, or a model."""
    opponent_moves: list[str] = Field(default_factory=list)
    """The moves of the policy `script`, made in turn, again and again."""
    opponent_model_server: ModelServerRef | None = None
    """The model server that plays the other seats when the opponent is `model`."""
    opponent_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = Field(
        default_factory=lambda: NeMoGymResponseCreateParamsNonStreaming(input=[])
    )
    """Parameters of the calls to that model. Their input is put before what the game tells its seat."""

    @model_validator(mode="after")
    def _require_opponents(self) -> "TextArenaResourcesServerConfig":
        if self.opponent == environment.MODEL and self.opponent_model_server is None:
            raise ValueError("`opponent` is `model`, and no model is named.\nhint: set `opponent_model_server`")
        return self


class TextArenaResourcesServer(TextStepServer):
    """Games in processes of their own."""

    config: TextArenaResourcesServerConfig
    MEAN_REWARDS_BY = "env_id"
    PRELOAD = ("textarena", "numpy")
    make_environment = staticmethod(environment.make)

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[Observation, dict[str, Any]]:
        """Begin a game, up to the first turn of the model."""
        defaults = self.config.model_dump(include={"seat", "opponent", "opponent_moves"})
        observation, info = await super().reset({**defaults, **metadata}, session_id)
        try:
            begun = await self._play_opponents(
                self.session_state[session_id], {"observation": observation, "info": info}
            )
        except BaseException:
            await self.close_session(session_id)
            raise
        return begun["observation"] or _OVER_AT_ONCE, begun["info"]

    async def act(self, episode: Any, response: NeMoGymResponse) -> dict[str, Any]:
        """Make the move of the model, then those of its opponents, up to its next turn."""
        return await self._play_opponents(episode, await super().act(episode, response))

    async def _play_opponents(self, episode: Any, turn: dict[str, Any]) -> dict[str, Any]:
        while "asks" in turn["info"]:
            move = await self._ask_opponent(turn["info"]["asks"])
            turn = await episode.step([move], self.config.step_timeout_s)
            episode.steps -= 1  # `max_steps` is about the steps of the model
        return turn

    async def _ask_opponent(self, told: str) -> str:
        """Return the move of an opponent that is a model: as in the library, it is told the whole game each time."""
        server = self.config.opponent_model_server
        if server is None:
            raise RolloutFailure(
                "config",
                "the row wants a model for an opponent, and the config names none.\n"
                "hint: set `opponent_model_server` of this server, or another `opponent` in the row",
            )
        params = self.config.opponent_responses_create_params
        before = [{"role": "user", "content": params.input}] if isinstance(params.input, str) else params.input
        asked = params.model_copy(update={"input": [*before, {"role": "user", "content": told}]})
        reply = await self.server_client.post(server_name=server.name, url_path="/v1/responses", json=asked)
        await raise_for_status(reply)
        said = NeMoGymResponse.model_validate(await get_response_json(reply))
        return self.extract_action(grading.assistant_text(said))


if __name__ == "__main__":
    TextArenaResourcesServer.run_webserver()
