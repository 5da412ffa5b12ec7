# SPDX-License-Identifier: Apache-2.0
"""Small questions with one short answer each, of several kinds; two examples before each show the form of the answer.

A response is right if it is the answer and nothing else. An essay that mentions the capital it was asked for is not an
answer: there is no partial credit.
"""

from typing import Any

from pydantic import Field

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer


class FirstStepsVerifyRequest(BaseVerifyRequest):
    """A question, its kind, and its answers."""

    category: str
    answers: list[str] = Field(min_length=1)
    """Any of them is right."""


class FirstStepsVerifyResponse(FirstStepsVerifyRequest, BaseVerifyResponse):
    """The reward, and the answer it is for."""

    answer: str
    """What the model said, as it was compared: lower case, without punctuation around it; empty if it said nothing."""


class FirstStepsResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that compares the whole answer."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    MEAN_REWARDS_BY = "category"

    async def verify(self, body: FirstStepsVerifyRequest) -> FirstStepsVerifyResponse:
        """Give 1 if the response is one of the answers and nothing else."""
        answer = grading.normalize_text(grading.strip_thinking(grading.last_assistant_text(body.response)))
        is_right = answer != "" and answer in map(grading.normalize_text, body.answers)
        return FirstStepsVerifyResponse(**dict(body), answer=answer, reward=float(is_right))

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the mean reward, overall and per kind."""
        return {name: value for name, value in agent_metrics.items() if name.startswith("mean/reward")}


if __name__ == "__main__":
    FirstStepsResourcesServer.run_webserver()
