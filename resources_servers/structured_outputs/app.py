# SPDX-License-Identifier: Apache-2.0
"""Replies in JSON, YAML, XML, TOML or CSV, as text or as a tool call, that must fit a JSON schema: 1, or 0 and why.

Reading and checking run in worker processes: a reply can be long, and a schema can hold patterns that take forever.
"""

import itertools
import logging
import statistics
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.cpu_pool import CpuPool, WorkerDied
from nemo_gym.openai_utils import NeMoGymResponse
from resources_servers.structured_outputs.checking import ErrorType, Finding, check_text, check_value
from resources_servers.structured_outputs.formats import ParseError, SchemaType, parse

LOG = logging.getLogger(__name__)

_PRELOADED = ("jsonschema", "referencing", "yaml", "tomllib", "resources_servers.structured_outputs.checking")
# A run may send all its replies at once; they wait rather than fail.
_MAX_WAITING = 1_000_000
_LONGEST_MESSAGE = 200


class StructuredOutputsResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    xml_coerce_types: bool = True
    """Read the texts of XML as the numbers, booleans and lists that the schema asks for."""
    check_timeout_seconds: float = Field(10, gt=0)
    """Seconds after which a reply counts as one that cannot be read."""


class StructuredOutputsVerifyRequest(BaseVerifyRequest):
    """A request for a value, and its schema."""

    schema_str: str
    """A JSON schema as text, whatever the format of the reply."""
    schema_type: SchemaType = "json"
    """The format of the reply."""
    response_mode: Literal["text", "tool_call"] = "text"
    tool_name: str | None = None
    """The tool that must be called; None for any."""
    tool_payload_key: str | None = None
    """The argument that holds the value; None: the arguments are the value."""
    problem_type: Any = None
    schema_repr: Any = None
    """How the prompt shows the schema."""
    schema_fields_count: Any = None
    source_format: Any = None
    num_turns: Any = None
    source_record_id: Any = None
    source_schema_type: Any = None
    num_distractors: Any = None
    tool_schema_mode: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    num_tools: Any = None
    has_distractors: Any = None
    instruction_layout: Any = None
    instruction_detail_level: Any = None
    system_instruction_style: Any = None
    tool_name_style: Any = None
    distractor_style: Any = None
    tool_union_mode: Any = None


# The fields by whose values the metrics break down the reward, and what stands before the value.
_REWARD_GROUPS = {
    "schema_type": "",
    "problem_type": "",
    "schema_repr": "repr_",
    **{
        field: f"{field}_"
        for field in (
            "response_mode",
            "tool_schema_mode",
            "tool_choice",
            "parallel_tool_calls",
            "num_tools",
            "has_distractors",
            "instruction_layout",
            "instruction_detail_level",
            "system_instruction_style",
            "tool_name_style",
            "distractor_style",
            "tool_union_mode",
        )
    },
}


class StructuredOutputsVerifyResponse(StructuredOutputsVerifyRequest, BaseVerifyResponse):
    """The reward, and what was wrong."""

    error_type: ErrorType | None = None
    error_message: str | None = None


class ToolCallAccepted(BaseModel):
    """What a tool gives back."""

    output: str


class StructuredOutputsResourcesServer(SimpleResourcesServer):
    """Whatever tool a row offers, and a verifier that checks a schema."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    config: StructuredOutputsResourcesServerConfig
    _pool: CpuPool = PrivateAttr()

    def setup_webserver(self) -> FastAPI:
        """Return the app with all tools, and workers that end when it does; none starts before there is a reply."""
        app = super().setup_webserver()
        app.post("/{tool_name}")(self.accept_tool_call)
        timeout_s = self.config.check_timeout_seconds
        self._pool = CpuPool(max_queue=_MAX_WAITING, timeout_s=timeout_s, preload=_PRELOADED)
        self._pool.close_with(app)
        return app

    async def accept_tool_call(self, tool_name: str) -> ToolCallAccepted:
        """Accept a call of any tool: what counts is how it is called, which `verify` checks."""
        return ToolCallAccepted(output=f"{tool_name}: done")

    async def verify(self, body: StructuredOutputsVerifyRequest) -> StructuredOutputsVerifyResponse:
        """Give 1 to a reply that is in its format and fits the strict schema."""
        finding = await self._examine(body)
        message = finding.error_message
        return StructuredOutputsVerifyResponse(
            **dict(body),
            error_type=finding.error_type,
            error_message=None if message is None else message[:_LONGEST_MESSAGE],
            reward=float(finding.error_type is None),
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the mean reward for every value of the fields that describe a row, as `mean/reward_<value>`."""
        rewards: dict[str, list[float]] = {}
        for rollout in itertools.chain.from_iterable(tasks):
            for field, prefix in _REWARD_GROUPS.items():
                value = rollout.get(field)
                if value is not None:
                    name = str(value).lower() if isinstance(value, bool) else str(value)
                    rewards.setdefault(f"mean/reward_{prefix}{name}", []).append(rollout["reward"])
        return {name: statistics.mean(values) for name, values in rewards.items()}

    async def _examine(self, body: StructuredOutputsVerifyRequest) -> Finding:
        if body.response_mode == "tool_call":
            if body.response.error is not None:
                return Finding("api_error", f"the model gave an error instead of a reply: {body.response.error}")
            payload = _find_tool_payload(body.response, body.tool_name, body.tool_payload_key)
            return payload if isinstance(payload, Finding) else await self._check(check_value, payload, body.schema_str)
        text = grading.answer_text(body.response)
        if not text:
            return Finding("empty_response", "the reply has no text")
        return await self._check(check_text, text, body.schema_type, body.schema_str, self.config.xml_coerce_types)

    async def _check(self, check: Any, *arguments: Any) -> Finding:
        for is_last in (False, True):
            try:
                finding: Finding = await self._pool.run(check, *arguments)
                return finding
            except TimeoutError as error:
                LOG.warning("%s: a reply could not be checked in time: %s", self.config.name, error)
                return Finding("parse_error", f"reading and checking it took too long: {error}")
            except WorkerDied as error:
                if is_last:
                    # It is the reply's own fault, unless nothing at all can be checked; that would raise here.
                    await self._pool.run(check_text, "{}", "json", "{}")
                    LOG.warning("%s: a reply takes down whoever reads it: %s", self.config.name, error)
        return Finding("parse_error", "it cannot be read: it takes the reading process down")


def _find_tool_payload(response: NeMoGymResponse, tool_name: str | None, payload_key: str | None) -> Any:
    """Return the value in the one tool call of a response, or a Finding that says why there is none.

    `tool_name` is the tool that must be called, None for any; `payload_key` the argument that holds the value, None if
    the arguments are the value.
    """
    calls = [item for item in response.output if item.type == "function_call"]
    if not calls:
        return Finding("missing_tool_call", "the reply calls no tool")
    if len(calls) > 1:
        return Finding("multiple_tool_calls", f"the reply calls {len(calls)} tools, not one")
    call = calls[0]
    if tool_name is not None and call.name != tool_name:
        return Finding("wrong_tool_name", f"the reply calls {call.name!r}, not {tool_name!r}")
    try:
        arguments = parse(call.arguments, "json", {})
    except ParseError as error:
        return Finding("tool_arguments_parse_error", f"the arguments are not JSON: {error}")
    if payload_key is None:
        return arguments
    if not isinstance(arguments, dict) or payload_key not in arguments:
        return Finding("missing_tool_payload_key", f"there is no argument {payload_key!r}")
    return arguments[payload_key]


if __name__ == "__main__":
    StructuredOutputsResourcesServer.run_webserver()
