# SPDX-License-Identifier: Apache-2.0
"""Prompts with instructions on the form of the reply, each checked by rule: all must be followed, or a share counts."""

import asyncio
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from resources_servers.instruction_following.instructions import Instruction, instructions_of

_LONG_CHARACTERS = 20_000


class InstructionFollowingResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment; it has no settings of its own."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class InstructionFollowingMetadata(BaseModel, extra="allow"):
    """The instructions of a row."""

    instruction_id_list: list[str] = Field(min_length=1)
    prompt: str = ""
    kwargs: list[dict[str, Any] | None] = Field(default_factory=list)
    """The arguments of each instruction; null ones do not count."""
    grading_mode: Literal["binary", "fraction"] = "binary"
    """1 for all of them and else 0, or the share that is followed."""

    @model_validator(mode="after")
    def _can_be_graded(self) -> "InstructionFollowingMetadata":
        self.instructions()
        return self

    def instructions(self) -> list[Instruction]:
        return instructions_of(self.instruction_id_list, self.kwargs)


class InstructionFollowingRunRequest(BaseRunRequest):
    """A prompt with instructions; those may also stand beside `verifier_metadata` instead of in it."""

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


class InstructionFollowingVerifyRequest(InstructionFollowingRunRequest, BaseVerifyRequest):
    """A prompt and the response to it."""


class InstructionFollowingVerifyResponse(BaseVerifyResponse):
    """The reward, and which instructions were followed."""

    follow_all_instructions: bool
    follow_instruction_list: list[bool]
    verifier_metadata: InstructionFollowingMetadata


class InstructionFollowingResourcesServer(SimpleResourcesServer):
    """No tools, and a verifier that applies rules."""

    config: InstructionFollowingResourcesServerConfig

    async def verify(self, body: InstructionFollowingVerifyRequest) -> InstructionFollowingVerifyResponse:
        """1 or the share of the instructions that the reply follows."""
        text, metadata = reply_text(body.response), body.verifier_metadata
        # Longer texts take milliseconds to read, in which other requests would wait.
        is_long = len(text) > _LONG_CHARACTERS
        instructions = metadata.instructions()
        followed = await asyncio.to_thread(_followed, instructions, text) if is_long else _followed(instructions, text)
        share = sum(followed) / len(followed)
        return InstructionFollowingVerifyResponse(
            responses_create_params=body.responses_create_params,
            response=body.response,
            follow_all_instructions=all(followed),
            follow_instruction_list=followed,
            verifier_metadata=metadata,
            reward=share if metadata.grading_mode == "fraction" else float(all(followed)),
        )


def reply_text(response: NeMoGymResponse) -> str:
    """The first text of the last output item, without thinking; empty if that item has none."""
    last = response.output[-1] if response.output else None
    if last is None or last.type != "message":
        return ""
    return grading.strip_thinking(next((part.text for part in last.content if part.type == "output_text"), ""))


def _followed(instructions: list[Instruction], text: str) -> list[bool]:
    return [instruction.is_followed(text) for instruction in instructions]


if __name__ == "__main__":
    InstructionFollowingResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = InstructionFollowingResourcesServer.run_webserver()
