# SPDX-License-Identifier: Apache-2.0
"""The real model, loaded once for all tests of this folder."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from nemo_gym.server_utils import ServerClient, close_global_aiohttp_client
from nemo_gym.testing import build_server, running
from responses_api_models.local_model.app import LocalModel
from responses_api_models.local_model.engine import Engine, acquire_engine, release_engine

FIELDS: dict[str, Any] = {"slots": 2, "context_length": 1024, "threads": 1, "batch_size": 64}

Serve = Callable[..., AbstractAsyncContextManager[ServerClient]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "local_model: needs the weights of the default local model")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine that every server of `serve` shares."""
    server = build_server(LocalModel, **FIELDS)
    lease = acquire_engine(server._settings, server._prepare)
    yield lease.loaded.result(timeout=600)
    release_engine(lease)


@pytest.fixture
def serve(engine: Engine) -> Serve:
    """Runs a model server, with `fields` in its config, as `policy_model`."""

    @asynccontextmanager
    async def served(**fields: Any) -> AsyncIterator[ServerClient]:
        async with running(policy_model=(LocalModel, {**FIELDS, **fields})) as client:
            yield client
            await close_global_aiohttp_client()

    return served
