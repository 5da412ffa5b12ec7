# SPDX-License-Identifier: Apache-2.0
"""TextArena's games for one or more players: the model takes one seat, and opponents take the others.

Only the episode processes load the library. Scripted players move there too; an opponent that is a model is called
here, between two steps of the game.
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

_ENDED_EARLY = "The game ended before your first turn. Say anything."


class TextArenaResourcesServerConfig(StepServerConfig):
    """Config of the games; a row's own `seat`, `opponent` and `opponent_moves` take precedence."""

    seat: NonNegativeInt = 0
    """The model's seat; the first is 0."""
    opponent: Literal["random", "first", "script", "model"] = "random"
    """Who takes the other seats: a scripted player, named by its policy, or a model."""
    opponent_moves: list[str] = Field(default_factory=list)
    """The moves of the policy `script`, which repeats them in order."""
    opponent_model_server: ModelServerRef | None = None
    """The model server that plays the other seats when the opponent is `model`."""
    opponent_responses_create_params: NeMoGymResponseCreateParamsNonStreaming = Field(
        default_factory=lambda: NeMoGymResponseCreateParamsNonStreaming(input=[])
    )
    """Parameters of the calls to that model. Their input comes before the game's own text."""

    @model_validator(mode="after")
    def _require_opponents(self) -> "TextArenaResourcesServerConfig":
        if self.opponent == environment.MODEL and self.opponent_model_server is None:
            raise ValueError("`opponent` is `model`, but no model is named.\nhint: set `opponent_model_server`")
        return self


class TextArenaResourcesServer(TextStepServer):
    """Plays each game in its own process."""

    config: TextArenaResourcesServerConfig
    MEAN_REWARDS_BY = "env_id"
    PRELOAD = ("textarena", "numpy")
    make_environment = staticmethod(environment.make)

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[Observation, dict[str, Any]]:
        """Start a game and play up to the model's first turn."""
        defaults = self.config.model_dump(include={"seat", "opponent", "opponent_moves"})
        observation, info = await super().reset({**defaults, **metadata}, session_id)
        try:
            start = await self._play_opponents(
                self.session_state[session_id], {"observation": observation, "info": info}
            )
        except BaseException:
            await self.close_session(session_id)
            raise
        return start["observation"] or _ENDED_EARLY, start["info"]

    async def act(self, episode: Any, response: NeMoGymResponse) -> dict[str, Any]:
        """Make the model's move, then its opponents' moves up to the model's next turn."""
        return await self._play_opponents(episode, await super().act(episode, response))

    async def _play_opponents(self, episode: Any, turn: dict[str, Any]) -> dict[str, Any]:
        while "asks" in turn["info"]:
            move = await self._ask_opponent(turn["info"]["asks"])
            turn = await episode.step([move], self.config.step_timeout_s)
            episode.steps -= 1  # `max_steps` only counts the model's steps
        return turn

    async def _ask_opponent(self, observation: str) -> str:
        """Return the move of an opponent that is a model. As in the library, it gets the whole game each time."""
        server = self.config.opponent_model_server
        if server is None:
            raise RolloutFailure(
                "config",
                "the row asks for a model as opponent, but the config names none.\n"
                "hint: set `opponent_model_server` in this server's config, or another `opponent` in the row",
            )
        params = self.config.opponent_responses_create_params
        prompt = [{"role": "user", "content": params.input}] if isinstance(params.input, str) else params.input
        request = params.model_copy(update={"input": [*prompt, {"role": "user", "content": observation}]})
        reply = await self.server_client.post(server_name=server.name, url_path="/v1/responses", json=request)
        await raise_for_status(reply)
        response = NeMoGymResponse.model_validate(await get_response_json(reply))
        return self.extract_action(grading.assistant_text(response))


if __name__ == "__main__":
    TextArenaResourcesServer.run_webserver()
