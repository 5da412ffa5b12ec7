# SPDX-License-Identifier: Apache-2.0
"""Names that other people's tests replace: replacing them where they are looked up changes what happens."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from omegaconf import DictConfig, OmegaConf

import nemo_gym.global_config
import nemo_gym.server_utils
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import (
    find_open_port,
    get_first_server_config_dict,
    get_global_config_dict,
    get_hf_token,
    maybe_get_global_config_dict,
)
from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.rollout_collection import RolloutCollectionHelper
from nemo_gym.server_utils import BaseServer, HeadServer, ServerClient, get_server_url
from nemo_gym.testing import build_server, reply

HEAD = BaseServerConfig(host="127.0.0.1", port=1)
CONFIG = OmegaConf.create(
    {
        "head_server": {"host": "10.1.1.1", "port": 11000},
        "hf_token": "hf_test",
        "world": {"resources_servers": {"world": {"entrypoint": "app.py", "host": "10.0.0.7", "port": 7}}},
    }
)


class Agent(SimpleResponsesAPIAgent):
    config: BaseResponsesAPIAgentConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def run(self, body: Any) -> Any:
        raise NotImplementedError


class Server(BaseServer):
    config: BaseResourcesServerConfig


@pytest.fixture
def config_of_the_process(monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    config = CONFIG.copy()
    monkeypatch.setattr(nemo_gym.global_config, "_GLOBAL_CONFIG_DICT", config)
    return config


def test_replacing_the_global_config_is_seen_by_every_accessor(config_of_the_process: DictConfig) -> None:
    assert maybe_get_global_config_dict() is config_of_the_process
    assert get_global_config_dict() is config_of_the_process
    assert get_hf_token() == "hf_test"
    assert get_server_url("world") == "http://10.0.0.7:7"
    assert ServerClient.load_head_server_config().host == "10.1.1.1"
    config_of_the_process.port_range_low = config_of_the_process.port_range_high = 3
    with pytest.raises(RuntimeError):
        find_open_port(disallowed_ports=[3])


def test_without_a_global_config_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemo_gym.global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "hf_token: from_env")
    assert get_hf_token() == "from_env"


def test_server_utils_get_global_config_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.server_utils.get_global_config_dict", lambda: CONFIG)
    monkeypatch.setenv("NEMO_GYM_CONFIG_PATH", "world")
    assert get_server_url("world") == "http://10.0.0.7:7"
    assert Server.load_config_from_global_config().port == 7
    assert "10.0.0.7" in HeadServer(config=HEAD).global_config_dict_yaml()


def test_server_utils_get_global_config_dict_may_give_a_plain_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.server_utils.get_global_config_dict", lambda: OmegaConf.to_container(CONFIG))
    assert get_server_url("world") == "http://10.0.0.7:7"


async def test_server_utils_get_first_server_config_dict_and_request(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ServerClient(head_server_config=HEAD, global_config_dict=CONFIG.copy())
    lookup = MagicMock(return_value=OmegaConf.create({"host": "patched", "port": 5}))
    request = AsyncMock(return_value="the answer")
    monkeypatch.setattr("nemo_gym.server_utils.get_first_server_config_dict", lookup)
    monkeypatch.setattr("nemo_gym.server_utils.request", request)
    assert await client.post("world", "/verify", json={"a": 1}, cookies={"c": "d"}) == "the answer"
    lookup.assert_called_once_with(client.global_config_dict, "world")
    sent = request.await_args
    assert sent is not None
    assert {"POST", "http://patched:5/verify"} <= {*sent.args, *map(str, sent.kwargs.values())}
    assert sent.kwargs["json"] == {"a": 1}
    assert sent.kwargs["cookies"] == {"c": "d"}
    assert sent.kwargs["_internal"] is True


async def test_server_utils_get_global_aiohttp_client(monkeypatch: pytest.MonkeyPatch) -> None:
    session = MagicMock()
    session.request = AsyncMock(return_value=SimpleNamespace(status=200, ok=True))
    monkeypatch.setattr("nemo_gym.server_utils.get_global_aiohttp_client", lambda *_, **__: session)
    answer = await nemo_gym.server_utils.request("GET", "http://somewhere/")
    assert answer.status == 200
    session.request.assert_awaited_once()


def test_agent_get_first_server_config_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = build_server(Agent)
    lookup = MagicMock(return_value=OmegaConf.create({"host": "patched", "port": 5}))
    monkeypatch.setattr("nemo_gym.base_responses_api_agent.get_first_server_config_dict", lookup)
    assert agent.resolve_model_base_url("policy_model") == "http://patched:5/v1"
    assert lookup.call_args.args[1] == "policy_model"


def test_converter_uuid4_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.responses_converter.uuid4", lambda: SimpleNamespace(hex="fixed"))
    monkeypatch.setattr("nemo_gym.responses_converter.time", lambda: 12.0)
    completion = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "<think>hm</think>yes"},
            }
        ],
    }
    response = ResponsesConverter(return_token_id_information=False).chat_completion_to_response(
        NeMoGymResponseCreateParamsNonStreaming(input="q"), completion
    )
    assert response.id == "resp_fixed"
    assert [item.id for item in response.output] == ["rs_fixed", "msg_fixed"]
    assert response.created_at == 12


async def test_openai_utils_request(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = MagicMock(ok=True, status=200)
    answer.read = AsyncMock(return_value=b'{"data": []}')
    request = AsyncMock(return_value=answer)
    monkeypatch.setattr("nemo_gym.openai_utils.request", request)
    client = NeMoGymAsyncOpenAI(base_url="http://api/v1", api_key="k")
    assert await client.create_models() == {"data": []}
    request.assert_awaited_once()


async def test_openai_utils_raise_for_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nemo_gym.openai_utils.request", AsyncMock(return_value=MagicMock(ok=False, status=400)))
    monkeypatch.setattr("nemo_gym.openai_utils.raise_for_status", AsyncMock(side_effect=KeyError("patched")))
    with pytest.raises(KeyError, match="patched"):
        await NeMoGymAsyncOpenAI(base_url="http://api/v1", api_key="k").create_models()


async def test_judge_names(monkeypatch: pytest.MonkeyPatch) -> None:
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(return_value=MagicMock(ok=True))
    monkeypatch.setattr("nemo_gym.judge.get_response_json", AsyncMock(return_value=reply("patched").model_dump()))
    asked = {"server_name": "j", "url_path": "/v1/responses", "json": {}, "response_model": NeMoGymResponse}
    assert (await call_judge(client, **asked)).output_text == "patched"
    monkeypatch.setattr("nemo_gym.judge.raise_for_status", AsyncMock(side_effect=RuntimeError("patched")))
    with pytest.raises(JudgeError, match="patched"):
        await call_judge(client, **asked)


async def test_rollout_collection_setup_server_client(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = MagicMock(ok=True, status=200)
    answer.read = AsyncMock(return_value=b'{"reward": 1.0}')
    client = MagicMock(spec=ServerClient)
    client.post = AsyncMock(return_value=answer)
    row = {"agent_ref": {"name": "agent"}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    with monkeypatch.context() as patch:
        patch.setattr("nemo_gym.rollout_collection.setup_server_client", lambda _=None: client)
        results = [await future for future in RolloutCollectionHelper().run_examples([row])]
    assert results[0][1]["reward"] == 1.0
    monkeypatch.setattr(RolloutCollectionHelper, "setup_server_client", lambda *_, **__: client)
    assert len([await future for future in RolloutCollectionHelper().run_examples([row, row])]) == 2


def test_the_lookup_itself_takes_plain_dicts() -> None:
    plain = {"world": {"resources_servers": {"impl": {"host": "h"}}}}
    assert get_first_server_config_dict(plain, "world") == {"host": "h"}  # type: ignore[arg-type]


def test_a_container_provider_can_be_built_where_its_engine_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from nemo_gym.sandbox.providers.apptainer import provider as apptainer
    from nemo_gym.sandbox.providers.docker import provider as docker

    monkeypatch.setattr(apptainer, "_require_apptainer", lambda bin_path=None: bin_path or "/opt/apptainer")
    monkeypatch.setattr(docker, "_require_docker", lambda: None)
    built = apptainer.ApptainerProvider(
        exec={"default_binds": ["/a:/b"]}, create={"mount_point": "/m"}, bin_path="/opt/bin/apptainer"
    )
    assert (built._exec_config.default_binds, built._create_config.mount_point) == (["/a:/b"], "/m")
    config = docker.DockerCreateConfig(network="none")
    plain = docker.DockerProvider(create=config, exec={"concurrency": 4}, probe={"timeout_s": 5})
    assert plain._create_config is config
    assert plain._exec_config == docker.DockerExecConfig(concurrency=4)
