# SPDX-License-Identifier: Apache-2.0
"""Two servers that need different versions of one library run side by side."""

import json
import re
import urllib.request
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from tests.support.gym_process import gym_env_start

APP = """
from importlib.metadata import version

from fastapi import FastAPI
from humanize import intcomma

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer


class CommaServer(SimpleResourcesServer):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/version")(self.version)
        return app

    async def version(self) -> dict[str, str | bool]:
        return {"version": version("humanize"), "works": intcomma(1000) == "1,000"}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=0.0)


if __name__ == "__main__":
    CommaServer.run_webserver()
"""


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    for name, version in (("comma_old", "4.9.0"), ("comma_new", "4.10.0")):
        folder = tmp_path / "mine" / "resources_servers" / name
        (folder / "configs").mkdir(parents=True)
        (folder / "app.py").write_text(APP)
        (folder / "requirements.txt").write_text(f"-e nemo-gym[dev] @ ../../\nhumanize=={version}\n")
        block = {name: {"resources_servers": {name: {"entrypoint": "app.py", "domain": "other"}}}}
        (folder / "configs" / f"{name}.yaml").write_text(json.dumps(block))
    return tmp_path / "mine"


def versions(output: str) -> dict[str, dict]:
    found = {}
    for name, url in re.findall(r"\] (\w+) \(\S+\) (http\S+)", output):
        with urllib.request.urlopen(urllib.request.Request(f"{url}/version", method="POST"), timeout=300) as reply:
            found[name] = json.loads(reply.read())
    return found


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.network
def test_two_versions_of_a_library_run_side_by_side_and_a_second_start_builds_nothing(roots, tmp_path, unused_tcp_port):
    arguments = [
        "--resources-server",
        "comma_old",
        "--resources-server",
        "comma_new",
        f"++head_server.port={unused_tcp_port}",
        f"++cache_dir={tmp_path / 'cache'}",
        f"++uv_cache_dir={PARENT_DIR / 'cache' / 'uv'}",
    ]
    expected = {
        "comma_old": {"version": "4.9.0", "works": True},
        "comma_new": {"version": "4.10.0", "works": True},
    }
    with gym_env_start(*arguments, cwd=tmp_path, roots=roots) as gym:
        assert gym.output.count("building an environment") == 2
        assert versions(gym.output) == expected
        assert gym.stop() == 0
    assert (roots / "resources_servers" / "comma_old" / ".venv" / "bin" / "python").exists()
    with gym_env_start(*arguments, cwd=tmp_path, roots=roots) as gym:
        assert "building" not in gym.output
        assert versions(gym.output) == expected
        assert gym.stop() == 0
