# SPDX-License-Identifier: Apache-2.0
"""Model servers on real ports, in front of an endpoint that speaks the real protocols."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn
from omegaconf import OmegaConf

from nemo_gym.server_utils import SimpleServer
from nemo_gym.testing import build_server
from responses_api_models.openai_model.app import SimpleModelServer
from responses_api_models.vllm_model.app import VLLMModel
from tests.clients.endpoint import KEY, Endpoint, serve_endpoint

BACKENDS = ("responses", "chat")


@dataclass(frozen=True)
class Served:
    url: str
    endpoint: Endpoint


@asynccontextmanager
async def serve_model(backend: str) -> AsyncIterator[Served]:
    """Run `openai_model` in front of a Responses endpoint, or `vllm_model` in front of a chat endpoint."""
    async with serve_endpoint() as endpoint:
        server: SimpleServer
        if backend == "responses":
            known = {"openai_base_url": endpoint.base_url, "openai_api_key": KEY, "openai_model": "fake"}
            server = build_server(SimpleModelServer, **known)
        else:
            known = {"base_url": endpoint.base_url, "api_key": KEY, "model": "fake"}
            parts = {"return_token_id_information": False, "uses_reasoning_parser": True}
            server = build_server(VLLMModel, **known, **parts)
        async with serve_over_http(server) as url:
            yield Served(url, endpoint)


@asynccontextmanager
async def serve_over_http(server: SimpleServer) -> AsyncIterator[str]:
    """Run `server` on a free port; yield its URL."""
    app = server.build_complete_app(OmegaConf.create({}))
    listener = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    serving = asyncio.create_task(listener.serve())
    while not listener.started:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.servers[0].sockets[0].getsockname()[1]}"
    finally:
        listener.should_exit = True
        await serving
