# SPDX-License-Identifier: Apache-2.0
"""Write your own environment in one file: a secret number, a tool to guess it, and a reward for few guesses.

    python examples/own_environment.py

It runs the environment with a scripted model, all in this process, and prints the reward. To turn it into a server, put
the class into `resources_servers/guess/app.py`, as docs/guides/write-an-environment.md shows.
"""

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field

from nemo_gym.base_resources_server import (
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY, get_response_json, raise_for_status
from nemo_gym.session_store import SessionStore
from nemo_gym.testing import agent_config, running, scripted_model
from responses_api_agents.simple_agent.app import SimpleAgent

MAX_GUESSES = 4
TOOL = {
    "type": "function",
    "name": "guess",
    "description": "Guess the number; says whether the secret is larger, smaller or found.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    "strict": False,
}


class Game(BaseModel):
    """The state of a session."""

    secret: int
    guesses: list[int] = Field(default_factory=list)


class GuessSeedRequest(BaseSeedSessionRequest):
    """A task with the number to find."""

    secret: int


class GuessRequest(BaseModel):
    """Arguments of the tool."""

    number: int


class GuessServer(SimpleResourcesServer):
    """The environment: a game for each session, one tool, and the reward."""

    games: SessionStore = Field(default_factory=SessionStore)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tool."""
        app = super().setup_webserver()
        app.post("/guess")(self.guess)
        return app

    async def seed_session(self, request: Request, body: GuessSeedRequest) -> BaseSeedSessionResponse:
        """Start a game."""
        self.games[request.session[SESSION_ID_KEY]] = Game(secret=body.secret)
        return BaseSeedSessionResponse()

    async def guess(self, request: Request, body: GuessRequest) -> dict[str, str]:
        """Compare a guess with the secret."""
        game = self.games.of_request(request)
        game.guesses.append(body.number)
        if body.number == game.secret:
            return {"result": "found"}
        return {"result": "larger" if game.secret > body.number else "smaller"}

    async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Return 1 if the first guess is right, less for every further guess, and 0 if the number was not found."""
        game = self.games.of_request(request)
        found = game.secret in game.guesses
        reward = (MAX_GUESSES + 1 - len(game.guesses)) / MAX_GUESSES if found else 0.0
        return BaseVerifyResponse(**dict(body), reward=max(reward, 0.0))


async def main() -> None:
    """Run one rollout: the model guesses twice, then answers."""
    model = scripted_model(("guess", {"number": 5}), ("guess", {"number": 8}), "It is 8.")
    task: dict[str, Any] = {
        "responses_create_params": {"input": "Find a number from 1 to 10.", "tools": [TOOL]},
        "secret": 8,
    }
    async with running(guess=GuessServer, agent=(SimpleAgent, agent_config("guess")), policy_model=model) as client:
        reply = await client.post("agent", "/run", json=task)
        await raise_for_status(reply)
        result = await get_response_json(reply)
    for item in result["response"]["output"]:
        print(item["type"], item.get("arguments") or item.get("output") or item["content"][0]["text"])
    print("reward:", result["reward"])


if __name__ == "__main__":
    asyncio.run(main())
