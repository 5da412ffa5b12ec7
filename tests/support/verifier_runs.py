# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` and `gym eval reverify` with a verifier whose code the test writes."""

import json
import textwrap
from pathlib import Path
from typing import Any

import yaml

from tests.support.eval_runs import Endpoint, Runner

_APP = """
import asyncio, os, pathlib, signal, subprocess, sys, time

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, ReverifyMode, SimpleResourcesServer
)

HERE = pathlib.Path(__file__).parent


class Config(BaseResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.STATELESS


class Request(BaseVerifyRequest):
    number: int


class Own(SimpleResourcesServer):
    config: Config

    async def verify(self, body: Request) -> BaseVerifyResponse:
{verify}
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


if __name__ == "__main__":
    Own.run_webserver()
"""


class VerifierRunner(Runner):
    """Runs whose only server besides agent and model is `own`, which calls every response worth 1 after `verify`.

    `verify` sees the number of the task as `body.number`, and its own folder as `HERE`.
    """

    def __init__(self, folder: Path, endpoint: Endpoint, head_port: int, verify: str, **config: Any) -> None:
        super().__init__(folder, endpoint, head_port)
        self.server = folder / "resources_servers" / "own"
        self.server.mkdir(parents=True)
        (self.server / "app.py").write_text(_APP.format(verify=textwrap.indent(textwrap.dedent(verify), " " * 8)))
        reference = {"type": "resources_servers", "name": "own"}
        model = {"type": "responses_api_models", "name": "policy_model"}
        agent = {"entrypoint": "app.py", "resources_server": reference, "model_server": model}
        blocks = {
            "own": {"resources_servers": {"own": {"entrypoint": "app.py", "domain": "other", **config}}},
            "own_agent": {"responses_api_agents": {"simple_agent": agent}},
        }
        (folder / "own.yaml").write_text(yaml.safe_dump(blocks))
        self.flags[:2] = ["--config", "own.yaml"]

    def command(self, *arguments: str) -> list[str]:
        return ["eval", "run", *self.flags, "-o", str(self.output), "-a", "own_agent", *arguments]

    def write_tasks(self, number: int) -> str:
        """So many tasks, by their numbers; return the path of their file."""
        path = self.folder / "tasks.jsonl"
        rows = [{"responses_create_params": {"input": f"task {index}"}, "number": index} for index in range(number)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    @property
    def counts(self) -> dict[str, Any]:
        """What the run says of itself."""
        return json.loads(self.output.with_name(f"{self.output.stem}_run.json").read_text())["counts"]
