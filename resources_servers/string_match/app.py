# SPDX-License-Identifier: Apache-2.0
r"""Questions with a text answer: the row says where it is in the reply, and it must match.

Spaces around and within an answer do not count, and case only if the row says so. Nothing else is forgiven.
"""

from typing import Literal

from pydantic import Field

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer

ExtractionMode = Literal["boxed", "final_answer", "last_line", "full_response"]


class StringMatchVerifyRequest(BaseVerifyRequest):
    """A question and its answer."""

    expected_answer: str = Field(min_length=1)
    extraction_mode: ExtractionMode = "boxed"
    """Where the answer is: in the last box, after the last `Final answer:`, on the last line, or the whole reply."""
    case_sensitive: bool = False


class StringMatchVerifyResponse(StringMatchVerifyRequest, BaseVerifyResponse):
    """The reward, and the answer that was found."""

    extracted_answer: str | None


class StringMatchResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that compares two texts."""

    REVERIFY_MODE = ReverifyMode.STATELESS

    async def verify(self, body: StringMatchVerifyRequest) -> StringMatchVerifyResponse:
        """Give 1 if the answer that was found is the expected one."""
        text = grading.strip_thinking(grading.assistant_text(body.response))
        answer = extract_answer(text, body.extraction_mode)
        is_right = answer is not None and _folded(answer, body) == _folded(body.expected_answer, body)
        return StringMatchVerifyResponse(**dict(body), extracted_answer=answer, reward=float(is_right))


def extract_answer(text: str, mode: ExtractionMode) -> str | None:
    """Return the answer in `text`; None if there is none where it should be."""
    if mode == "boxed":
        return grading.boxed(text)
    if mode == "final_answer":
        return grading.labelled_answer(text, "Final answer")
    if mode == "last_line":
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), None)
    return text.strip() or None


def _folded(answer: str, body: StringMatchVerifyRequest) -> str:
    spaced = " ".join(answer.split())
    return spaced if body.case_sensitive else spaced.casefold()


if __name__ == "__main__":
    StringMatchResourcesServer.run_webserver()
