# SPDX-License-Identifier: Apache-2.0
"""Base classes of resources servers: tools, per-session state, and `verify`, which turns a response into a reward."""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI
from pydantic import AfterValidator, BaseModel

from nemo_gym._servers.mcp.protocol import (
    METADATA_KEY,
    RESERVED_TOOL_NAMES,
    SESSION_TOKEN_HEADER,
    MCPCatchall,
    MCPServerMetadata as MCPServerMetadata,
    MCPTool,
)
from nemo_gym._transport.failures import FailureKind
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest, BaseRunServerInstanceConfig
from nemo_gym.failure_kinds import validate_failure_kind
from nemo_gym.judge import judge_failsafe
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import AggregateMetricsMixin, compute_aggregate_metrics, compute_mean_rewards_by
from nemo_gym.rollout_correlation import RolloutContextMiddleware
from nemo_gym.server_utils import BaseServer, SimpleServer

NEMO_GYM_MCP_SESSION_TOKEN_HEADER = SESSION_TOKEN_HEADER
NEMO_GYM_MCP_METADATA_KEY = METADATA_KEY
RESERVED_MCP_TOOL_NAMES = RESERVED_TOOL_NAMES


class ReverifyMode(str, Enum):  # noqa: UP042  `str(ReverifyMode.STATELESS)` is part of the contract
    """Whether stored responses can be scored again later."""

    STATELESS = "stateless"
    """`verify` needs nothing but its request."""
    UNSUPPORTED = "unsupported"
    """`verify` needs the live session of the rollout."""
    UNKNOWN = "unknown"
    """The author did not say."""


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """Config of a resources server."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN

    expose_tools_over_mcp: bool = False
    """Also offer the tools over MCP at `/mcp`."""


class BaseRunRequest(BaseModel):
    """A request to run one task: its create params."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class BaseVerifyRequest(BaseRunRequest):
    """A task and the response to it."""

    response: NeMoGymResponse


class BaseVerifyResponse(BaseVerifyRequest):
    """A task, the response to it and its reward."""

    reward: float
    mask_sample: bool = False
    """True if the reward is no measurement, because something other than the answer failed."""
    failure_kind: Annotated[str | None, AfterValidator(validate_failure_kind)] = None
    """What failed: a name of `nemo_gym.failure_kinds`, or `<server>:<what>`."""
    failure_reason: str | None = None
    """The same in a sentence."""


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A verify response whose reward is made up of named parts."""

    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    """A request to start a session; servers with state add task fields."""


class BaseSeedSessionResponse(BaseModel):
    """What the server tells the agent when a session starts."""


def normalize_tool_name(name: str, server_name: str | None = None) -> str:
    """Return `name` without the `mcp__<server>__` prefix that MCP clients add."""
    prefix = "mcp__"
    if not name.startswith(prefix):
        return name
    if server_name is not None:
        return name.removeprefix(f"{prefix}{server_name}__")
    _, separator, tool = name[len(prefix) :].partition("__")
    return tool if separator else name


class BaseResourcesServer(BaseServer):
    """Any server of type `resources_servers`."""

    config: BaseResourcesServerConfig


class SimpleResourcesServer(BaseResourcesServer, AggregateMetricsMixin, SimpleServer):
    """A resources server: override `verify`, and add tool routes in `setup_webserver`."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN
    """Whether stored responses can be scored again later; a config class that also sets this takes precedence."""
    MEAN_REWARDS_BY: ClassVar[str | None] = None
    """A field of the verify response; `compute_metrics` returns the mean reward for each of its values."""

    _failure_kind: ClassVar[FailureKind] = "tool_server"

    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app with the endpoints of every resources server."""
        app = self.new_app()
        self.setup_session_middleware(app)
        app.add_middleware(RolloutContextMiddleware)
        app.post("/seed_session")(self.seed_session)
        app.post("/verify")(judge_failsafe(self.verify))
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.get("/reverify_mode")(self.get_reverify_mode)
        return app

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        """Start a session; a stateless server has nothing to do."""
        return BaseSeedSessionResponse()

    @abstractmethod
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Score a response."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return metrics over many verify responses."""
        return await asyncio.to_thread(
            compute_aggregate_metrics,
            body.verify_responses,
            compute_metrics_fn=self.compute_metrics,
            get_key_metrics_fn=self.get_key_metrics,
        )

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return mean rewards by `MEAN_REWARDS_BY`. Override it for other metrics; see `AggregateMetricsMixin`."""
        if self.MEAN_REWARDS_BY is None:
            return {}
        return compute_mean_rewards_by(tasks, self.MEAN_REWARDS_BY)

    async def get_reverify_mode(self) -> str:
        """Return whether stored responses can be scored again."""
        of_config = self.config.REVERIFY_MODE
        return (self.REVERIFY_MODE if of_config is ReverifyMode.UNKNOWN else of_config).value

    def normalize_tool_name(self, name: str) -> str:
        """Return a tool's name as this server registered it."""
        return normalize_tool_name(name, self.config.name)

    def mcp_tools(self, harvested: list[MCPTool], catchall: MCPCatchall | None = None) -> list[MCPTool]:
        """Return the tools to offer over MCP; by default `harvested`, the ones found from the routes.

        A `/{path}` route comes as `catchall`; `catchall.tool(name, description, input_schema)` is a tool that calls it.
        """
        return harvested

    def mcp_allowed_tools_for_session(self, seed_body: Mapping[str, Any]) -> list[str] | None:
        """Return the names of the tools the session may use; None means all."""
        return None
