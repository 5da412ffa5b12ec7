# SPDX-License-Identifier: Apache-2.0
r"""Questions with a text answer: the row says where it is in the reply, and it must match.

`comparison` says what is forgiven: spelling of numbers, LaTeX and the like, and case unless the row says so.
"""

import re
from typing import Any, Literal

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer
from resources_servers.string_match.comparison import score_answer

ExtractionMode = Literal["boxed", "final_answer", "last_line", "full_response"]

_FINAL_ANSWER = re.compile(r"(?:final\s+answer|answer)\s*+[:：]\s*(.+)", re.IGNORECASE)


class StringMatchVerifyRequest(BaseVerifyRequest):
    """A question and its answer."""

    expected_answer: str
    extraction_mode: ExtractionMode = "final_answer"
    """Where the answer is: in the last box, after the last `Answer:`, on the last line, or the whole reply."""
    case_sensitive: bool = False
    """Whether the answer must be the expected one letter by letter."""
    metadata: dict[str, Any] | None = None


class StringMatchVerifyResponse(StringMatchVerifyRequest, BaseVerifyResponse):
    """The reward, and the answer that was found."""

    extracted_answer: str | None


class StringMatchResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that compares two texts."""

    REVERIFY_MODE = ReverifyMode.STATELESS

    async def verify(self, body: StringMatchVerifyRequest) -> StringMatchVerifyResponse:
        """Give 1 if the answer that was found is the expected one."""
        text = grading.strip_thinking(grading.assistant_text(body.response, between_parts="\n"))
        answer = extract_answer(text, body.extraction_mode)
        reward = score_answer(answer or "", body.expected_answer, case_sensitive=body.case_sensitive)
        return StringMatchVerifyResponse(**dict(body), extracted_answer=answer, reward=reward)


def extract_answer(text: str, mode: ExtractionMode) -> str | None:
    """Return the answer in `text`; None if there is none where it should be."""
    if mode == "final_answer":
        found = _FINAL_ANSWER.findall(text)
        if found:
            return _strip_dots(found[-1])
    if mode in ("final_answer", "boxed"):
        closed = (box for box in grading.boxes_from_last(text) if box is not None)
        box = next(closed, None)
        return None if box is None else grading.peel_text_commands(box)
    if mode == "last_line":
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), None)
    return text.strip() or None


def _strip_dots(answer: str) -> str:
    return answer.strip().removesuffix(".").strip().rstrip(".")


if __name__ == "__main__":
    StringMatchResourcesServer.run_webserver()
