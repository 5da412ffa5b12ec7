# SPDX-License-Identifier: Apache-2.0
"""An environment of several tool calls: find the synonyms of a term in a long list and report their values in order.

The last call of `extract_synonym_values` is the answer. Besides the reward, the verifier says how an answer is wrong:
how much of it is right, whether only the order is wrong, whether the term itself was looked up.
"""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field, ValidationError

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer
from nemo_gym.openai_utils import NeMoGymResponse


class GetSynonymValueRequest(BaseModel):
    """Arguments of `get_synonym_value`."""

    synonym: str


class GetSynonymValueResponse(BaseModel):
    """The value of a synonym."""

    synonym_value: int


class ExtractSynonymValuesRequest(BaseModel):
    """Arguments of `extract_synonym_values`."""

    synonym_values: list[int]


class ExtractSynonymValuesResponse(BaseModel):
    """Confirms that the values were received; the verifier decides whether they are right."""

    success: bool


class ExampleMultiStepVerifyRequest(BaseVerifyRequest):
    """A task: a term to look up, with the synonyms and values that are the right answer."""

    id: int | str
    expected_synonyms: list[str]
    expected_synonym_values: list[int] = Field(min_length=1)
    minefield_label: str
    """The term itself, which is not one of its synonyms."""
    minefield_label_value: int


class ExampleMultiStepVerifyResponse(BaseVerifyResponse):
    """The reward, and how a wrong answer is wrong."""

    parsed_synonym_values: list[int]
    """The answer; empty if there is none that can be read."""
    accuracy: bool
    """The answer is right: all values, in order, and nothing else."""
    set_overlap: float
    """The share of the expected values that is in the answer."""
    original_term_minefield_hit: bool
    """The term itself or its value is in the answer."""
    order_instruction_following_failure: bool
    """All values are in the answer, but it is wrong."""


class ExampleMultiStepResourcesServer(SimpleResourcesServer):
    """Two tools: one to look up the value of a synonym, one to hand in the answer."""

    REVERIFY_MODE = ReverifyMode.STATELESS

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tools."""
        app = super().setup_webserver()
        app.post("/get_synonym_value")(self.get_synonym_value)
        app.post("/extract_synonym_values")(self.extract_synonym_values)
        return app

    async def get_synonym_value(self, body: GetSynonymValueRequest) -> GetSynonymValueResponse:
        """Get the value of a synonym."""
        return GetSynonymValueResponse(synonym_value=synonym_value(body.synonym))

    async def extract_synonym_values(self, body: ExtractSynonymValuesRequest) -> ExtractSynonymValuesResponse:
        """Hand in the values of all synonyms of the term, in order."""
        return ExtractSynonymValuesResponse(success=True)

    async def verify(self, body: ExampleMultiStepVerifyRequest) -> ExampleMultiStepVerifyResponse:
        """Compare the answer with the expected values."""
        expected = body.expected_synonym_values
        answer = extract_values(body.response)
        accuracy = answer == expected
        overlap = sum(value in answer for value in set(expected)) / len(expected)
        return ExampleMultiStepVerifyResponse(
            **dict(body),
            reward=float(accuracy),
            parsed_synonym_values=read_values(answer),
            accuracy=accuracy,
            set_overlap=overlap,
            original_term_minefield_hit=body.minefield_label in answer or body.minefield_label_value in answer,
            order_instruction_following_failure=not accuracy and overlap == 1.0,
        )


def synonym_value(synonym: str) -> int:
    """Return the value of a word: the sum of the codes of its characters."""
    return sum(map(ord, synonym))


def extract_values(response: NeMoGymResponse) -> list[Any]:
    """Return the values of the last call of `extract_synonym_values` as they were written; none if it has no list."""
    calls = [call for call in grading.function_calls(response) if call.name == "extract_synonym_values"]
    values = (calls[-1].arguments or {}).get("synonym_values") if calls else None
    return values if isinstance(values, list) else []


def read_values(values: list[Any]) -> list[int]:
    """Return `values` as the tool reads them, numbers in texts too; none if it would refuse them."""
    try:
        return ExtractSynonymValuesRequest(synonym_values=values).synonym_values
    except ValidationError:
        return []


if __name__ == "__main__":
    ExampleMultiStepResourcesServer.run_webserver()
