# SPDX-License-Identifier: Apache-2.0
"""Questions with lettered options: the right letter is worth 1, anything else 0.

`extraction` finds the answer in a reply; a row or the config of the server says how strict it is.
"""

from typing import Annotated, Any

from pydantic import AfterValidator

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


def _require_texts(template_metadata: dict[str, Any]) -> dict[str, Any]:
    patterns = template_metadata.get("output_regex")
    if not all(isinstance(one, str) for one in (patterns if isinstance(patterns, list) else [patterns or ""])):
        raise ValueError("output_regex must be a pattern or a list of patterns")
    if not isinstance(template_metadata.get("answer_prefix") or "", str):
        raise ValueError("answer_prefix must be a text")
    return template_metadata


class MCQARunRequest(BaseRunRequest):
    """A question with options."""

    options: list[dict[str, str | None]] | None = None
    """The options in order, each a letter and its text: `{"A": "nitrogen"}`. One without a text is not there."""
    expected_answer: str | None = None
    """The right letter."""
    grading_mode: extraction.GradingMode = "strict_single_letter_boxed"
    uuid: str | int | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: Annotated[dict[str, Any], AfterValidator(_require_texts)] | None = None
    """`output_regex`, a pattern or several, finds the answer where the prompt asks for a format of its own. In mode
    `lenient_answer_colon_md`, `answer_prefix` is what a prompt in another language puts for `Answer:`."""


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
        mode = self.config.grading_mode or body.grading_mode
        options = extraction.index_options(body.options or [])
        answer = extraction.extract_answer(grading.answer_text(body.response), options, mode, body.template_metadata)
        expected = (body.expected_answer or "").strip().upper()
        is_right = answer is not None and answer == expected
        row = {**dict(body), "expected_answer": expected}
        return MCQAVerifyResponse(**row, extracted_answer=answer, reward=float(is_right))


if __name__ == "__main__":
    MCQAResourcesServer.run_webserver()
