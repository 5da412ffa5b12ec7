# SPDX-License-Identifier: Apache-2.0
"""Questions with lettered options: the right letter is worth 1, anything else 0.

How an answer is found in a reply is in `extraction`; a row or the config of the server says how strict it is.
"""

from typing import Any, ClassVar

from pydantic import field_validator

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.mcqa.extraction import (
    ConfigGradingMode,
    GradingMode,
    checked_patterns,
    extracted_answer,
    letters_of,
)


class MCQAResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    grading_mode: ConfigGradingMode | None = None
    """How answers are found, for all rows; None: as each row says."""


class MCQARunRequest(BaseRunRequest):
    """A question with options."""

    options: list[dict[str, str]]
    """The options in order, each a letter and its text: `{"A": "nitrogen"}`."""
    expected_answer: str
    """The right letter."""
    grading_mode: GradingMode = "strict_single_letter_boxed"
    uuid: str | int | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: dict[str, Any] | None = None
    """`output_regex`, a pattern or several, finds the answer where the prompt asks for a form of its own."""

    @field_validator("template_metadata")
    @classmethod
    def _has_patterns_that_compile(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        checked_patterns((value or {}).get("output_regex"))
        return value


class MCQAVerifyRequest(MCQARunRequest, BaseVerifyRequest):
    """A question and the response to it."""


class MCQAVerifyResponse(BaseVerifyResponse):
    """The reward, and the letter that was found."""

    expected_answer: str
    extracted_answer: str | None


class MCQAResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that looks for a letter."""

    config: MCQAResourcesServerConfig

    async def verify(self, body: MCQAVerifyRequest) -> MCQAVerifyResponse:
        """1 if the letter that was found is the right one."""
        patterns = checked_patterns((body.template_metadata or {}).get("output_regex"))
        text = grading.strip_thinking(grading.assistant_text(body.response))
        mode = self.config.grading_mode or body.grading_mode
        answer = extracted_answer(text, letters_of(body.options), mode, patterns)
        return MCQAVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            expected_answer=body.expected_answer,
            extracted_answer=answer,
            reward=float(answer is not None and answer == body.expected_answer.strip().upper()),
        )


if __name__ == "__main__":
    MCQAResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = MCQAResourcesServer.run_webserver()
