# SPDX-License-Identifier: Apache-2.0
"""Questions with lettered options: the right letter is worth 1, anything else 0.

`extraction` finds the answer in a reply; a row or the config of the server says how strict it is.
"""

from typing import Any

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from resources_servers.mcqa import extraction


class MCQAResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    grading_mode: extraction.ConfigGradingMode | None = None
    """How answers are found, for all rows; None: as each row says."""


class MCQARunRequest(BaseRunRequest):
    """A question with options."""

    options: list[dict[str, str]]
    """The options in order, each a letter and its text: `{"A": "nitrogen"}`."""
    expected_answer: str
    """The right letter."""
    grading_mode: extraction.GradingMode = "strict_single_letter_boxed"
    uuid: str | int | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: grading.TemplateMetadata | None = None
    """`output_regex`, a pattern or several, finds the answer where the prompt asks for a format of its own."""


class MCQAVerifyRequest(MCQARunRequest, BaseVerifyRequest):
    """A question and the response to it."""


class MCQAVerifyResponse(BaseVerifyResponse):
    """The reward, and the letter that was found."""

    expected_answer: str
    extracted_answer: str | None


class MCQAResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that looks for a letter."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    config: MCQAResourcesServerConfig

    async def verify(self, body: MCQAVerifyRequest) -> MCQAVerifyResponse:
        """Give 1 if the letter that was found is the right one."""
        text = grading.strip_thinking(grading.assistant_text(body.response))
        mode = self.config.grading_mode or body.grading_mode
        options = extraction.index_options(body.options)
        answer = extraction.extract_answer(text, options, mode, body.template_metadata)
        is_right = answer is not None and answer == body.expected_answer.strip().upper()
        return MCQAVerifyResponse(**dict(body), extracted_answer=answer, reward=float(is_right))


if __name__ == "__main__":
    MCQAResourcesServer.run_webserver()
