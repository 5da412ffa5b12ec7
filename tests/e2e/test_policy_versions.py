# SPDX-License-Identifier: Apache-2.0
"""A trainer announces policy versions to the servers of `gym env start`, each in processes of its own."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest
import yaml

from nemo_gym.config_types import BaseServerConfig
from nemo_gym.policy_versions import PolicyVersionRefused, announce, read_policy_version
from tests.support.small_servers import free_port, gym, until

pytestmark = pytest.mark.slow

APP = """
import os

from nemo_gym.base_responses_api_model import SimpleResponsesAPIModel
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming as Params
from nemo_gym.testing import reply


class Who(SimpleResponsesAPIModel):
    async def responses(self, body: Params):
        return reply(str(os.getpid()))

    async def chat_completions(self, body):
        raise NotImplementedError


if __name__ == "__main__":
    Who.run_webserver()
"""


def post(url: str, body: dict) -> dict:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


@pytest.mark.thorough
def test_all_workers_of_a_server_have_the_version_when_the_announcement_returns(tmp_path):
    folder, port = tmp_path / "responses_api_models" / "who", free_port()
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port, "num_workers": 2}
    config = tmp_path / "who.yaml"
    config.write_text(yaml.safe_dump({"policy_model": {"responses_api_models": {"who": block}}}))
    url = f"http://127.0.0.1:{port}"
    with gym(tmp_path, "env", "start", "--config", str(config)) as started:
        started.wait_until_ready()
        head = BaseServerConfig(host="127.0.0.1", port=started.head_port)
        assert "policy_version" not in post(f"{url}/v1/responses", {"input": "who?"})
        for version in (5, 6):
            asyncio.run(announce(version, head_server_config=head))
            answers = dict[str, int]()

            def ask_until_both_have_answered(answers=answers) -> bool:
                answer = post(f"{url}/v1/responses", {"input": "who?"})
                answers[answer["output"][0]["content"][0]["text"]] = answer["policy_version"]
                return len(answers) == 2

            until(ask_until_both_have_answered, "both workers have answered")
            assert set(answers.values()) == {version}
        with pytest.raises(PolicyVersionRefused):
            asyncio.run(announce(5, head_server_config=head))
        # The token of the run is in a file of this user; a request without it changes nothing.
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(f"{url}/policy_version", {"version": 7})
        assert asyncio.run(read_policy_version(head)) == 6
