# SPDX-License-Identifier: Apache-2.0
"""Another framework hosts resources servers by itself: finds the config class, builds, wires and calls them."""

import importlib
import inspect
from typing import Any

import pytest
from fastapi.testclient import TestClient
from omegaconf import OmegaConf

from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import ServerClient

SETTINGS: dict[str, dict[str, Any]] = {
    "tally_counter": {},
    "unit_quiz": {"domain": "math"},
    "shelf_tools": {},
    "snippet_runner": {"num_processes": 1},
    "duel_arena": {"opponents": {"ogre": {"model": {"type": "responses_api_models", "name": "m"}}}},
    "essay_rubric": {"criteria": [{"name": "any", "pattern": "."}]},
}


def hosted(folder: str, settings: dict[str, Any]) -> TestClient:
    module = importlib.import_module(f"resources_servers.{folder}.app")
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, SimpleResourcesServer) and value.__module__ == module.__name__
    ]
    server_class = own[-1]
    config_class = server_class.model_fields["config"].annotation
    server = server_class(
        config=config_class(host="127.0.0.1", port=0, entrypoint="app.py", name=folder, **settings),
        server_client=ServerClient(
            head_server_config=BaseServerConfig(host="127.0.0.1", port=0), global_config_dict=OmegaConf.create({})
        ),
    )
    app = server.setup_webserver()
    server.setup_liveness(app)
    server.setup_exception_middleware(app)
    return TestClient(app)


@pytest.mark.parametrize(("folder", "settings"), SETTINGS.items())
def test_a_server_can_be_hosted_by_another_framework(folder: str, settings: dict[str, Any]) -> None:
    client = hosted(folder, settings)
    assert client.get("/").json() == {"status": "ok"}
    seeded = client.post("/seed_session", json={"initial": 1, "opponent": "ogre"})
    assert seeded.status_code == 200
    assert seeded.cookies
    assert client.post("/verify", json={}).status_code == 422
    assert client.get("/reverify_mode").json() in ("stateless", "unsupported", "unknown")
    paths = client.get("/openapi.json").json()["paths"].keys()
    assert paths >= {"/verify", "/seed_session", "/aggregate_metrics"}
    assert "/" not in paths, "whether it lives is no operation of a server"
