# SPDX-License-Identifier: Apache-2.0
"""Prompts with instructions on the format of the reply, each checked by a rule: follow all, or a share counts."""

import asyncio
from typing import Any

from pydantic import model_validator

from nemo_gym import grading
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer
from resources_servers.instruction_following.instructions import InstructionFollowingMetadata

_LONG_CHARACTERS = 20_000


class InstructionFollowingVerifyRequest(BaseVerifyRequest):
    """A prompt with instructions, which may also be next to `verifier_metadata` instead of in it."""

    id: int | str | None = None
    verifier_metadata: InstructionFollowingMetadata

    @model_validator(mode="before")
    @classmethod
    def _gather_metadata(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        beside = {name: row[name] for name in InstructionFollowingMetadata.model_fields if row.get(name) is not None}
        inside = row.get("verifier_metadata")
        if not beside or not isinstance(inside, dict | None):
            return row
        return {**row, "verifier_metadata": {**beside, **(inside or {})}}


class InstructionFollowingVerifyResponse(BaseVerifyResponse):
    """The reward, and which instructions were followed."""

    follow_all_instructions: bool
    follow_instruction_list: list[bool]
    verifier_metadata: InstructionFollowingMetadata


class InstructionFollowingResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that applies rules."""

    REVERIFY_MODE = ReverifyMode.STATELESS

    async def verify(self, body: InstructionFollowingVerifyRequest) -> InstructionFollowingVerifyResponse:
        """Give 1 or 0, or the share of the instructions that the reply follows."""
        text = grading.last_item_text(body.response)
        answer = grading.strip_thinking(text)
        if answer != text.strip():  # else blank lines at the ends stay, as they count in some instructions
            text = answer
        metadata = body.verifier_metadata
        # Longer texts take milliseconds to read, while other requests would wait.
        if len(text) > _LONG_CHARACTERS:
            followed = await asyncio.to_thread(metadata.check, text)
        else:
            followed = metadata.check(text)
        share = sum(followed) / len(followed)
        return InstructionFollowingVerifyResponse(
            **dict(body),
            follow_all_instructions=all(followed),
            follow_instruction_list=followed,
            reward=share if metadata.grading_mode == "fraction" else float(all(followed)),
        )


if __name__ == "__main__":
    InstructionFollowingResourcesServer.run_webserver()
