# SPDX-License-Identifier: Apache-2.0
"""A resources server as others write them, whose tools are offered over MCP; it remembers what each session asked."""

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY


class TideTablesConfig(BaseResourcesServerConfig):
    expose_tools_over_mcp: bool = True


class HarborRequest(BaseModel):
    harbor: str


class TideTables(SimpleResourcesServer):
    config: TideTablesConfig
    asked: dict[str, list[str]] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/high_tide")(self.high_tide)
        return app

    async def high_tide(self, body: HarborRequest, request: Request) -> dict[str, list[str]]:
        """When the water is highest."""
        harbors = self.asked.setdefault(request.session[SESSION_ID_KEY], [])
        harbors.append(body.harbor)
        return {"asked": harbors}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
