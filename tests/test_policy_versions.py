# SPDX-License-Identifier: Apache-2.0
"""Policy versions from a trainer's announcement to the rows of rollouts, with real servers in this process."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from fastapi import HTTPException, Request
from pydantic import PrivateAttr, ValidationError

from nemo_gym._rollouts.outcomes import Scored
from nemo_gym._rollouts.play import Player
from nemo_gym._servers.processes.private_run_files import TOKEN_HEADER
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import GymError
from nemo_gym.openai_utils import (
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.policy_versions import (
    PolicyVersionError,
    PolicyVersionRefused,
    StalenessGate,
    announce,
    follow,
    read_policy_version,
)
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import agent_config, message, reply, tool_call
from nemo_gym.trajectories import TrainableRollout
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.support.chat_models import chat_reply
from tests.support.served_run import TOKEN, ServedRun, serve_run
from tests.support.small_servers import free_port


class Policy(SimpleResponsesAPIModel):
    """Calls a tool, then answers; each of its calls waits until the test lets it go on."""

    _asked: asyncio.Queue = PrivateAttr(default_factory=asyncio.Queue)
    _has_tokens: bool = PrivateAttr(default=False)
    _waits: bool = PrivateAttr(default=False)
    _failures: int = PrivateAttr(default=0)
    _status: int = PrivateAttr(default=503)

    async def responses(self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()):
        if self._waits:
            go_on = asyncio.Event()
            self._asked.put_nowait(go_on)
            await go_on.wait()
        if self._failures:
            self._failures -= 1
            raise HTTPException(self._status, "loading weights")
        turn = sum(getattr(item, "type", "") == "function_call_output" for item in body.input)
        part = message("done") if turn else tool_call("look", {})
        tokens = {"prompt_token_ids": [1] * (turn + 1), "generation_token_ids": [7], "generation_log_probs": [-0.5]}
        item = {**part.model_dump(), **(tokens if self._has_tokens else {})}
        return NeMoGymResponse.model_validate({**reply().model_dump(), "id": "r", "output": [item]})

    async def chat_completions(self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()):
        tokens = {"prompt_token_ids": [1], "generation_token_ids": [7], "generation_log_probs": [-0.5]}
        return chat_reply("hei", **(tokens if self._has_tokens else {}))


class World(SimpleResourcesServer):
    async def look(self) -> dict:
        return {}

    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/look")(self.look)
        return app

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
ROW = {
    "_ng_task_index": 0,
    "_ng_rollout_index": 0,
    "agent_ref": {"type": "responses_api_agents", "name": "agent"},
    "responses_create_params": {"input": [{"role": "user", "content": "look"}], "tools": [TOOL]},
}


@pytest.fixture
async def run(monkeypatch):
    servers = {"policy_model": Policy, "world": World, "agent": (SimpleAgent, agent_config("world"))}
    async with serve_run(monkeypatch, **servers) as served:
        yield served


def policy_of(run: ServedRun) -> Any:
    return run.servers["policy_model"]


async def ask(run: ServedRun, path: str, body: dict) -> str:
    async with aiohttp.ClientSession() as session, session.post(run.urls["policy_model"] + path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


async def version_of(url: str) -> int | None:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/policy_version") as answer:
        return (await answer.json())["version"]


async def play(run: ServedRun, row=ROW, **player: Any):
    return await Player(lambda agent, given: run.client.post(agent, "/run", json=given), **player).play(dict(row))


async def test_one_announcement_reaches_every_model_and_agent_of_the_run(run):
    assert await read_policy_version(run.head) is None
    await announce(7, head_server_config=run.head)
    assert await read_policy_version(run.head) == 7
    assert [await version_of(run.urls[name]) for name in ("policy_model", "agent")] == [7, 7]


REQUESTS = [
    ("/v1/responses", {"input": "a"}),
    ("/v1/responses", {"input": "a", "stream": True}),
    ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "a"}]}),
    ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": True}),
    ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}),
    ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}], "stream": True}),
]


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize(("path", "body"), REQUESTS)
async def test_answers_carry_the_version_in_every_dialect_once_there_is_one(run, path, body, has_tokens):
    policy_of(run)._has_tokens = has_tokens
    assert "policy_version" not in await ask(run, path, body), "nobody has announced any"
    await announce(7, head_server_config=run.head)
    text = await ask(run, path, body)
    assert '"policy_version":7' in text
    assert "policy_version_end" not in text


async def test_parts_with_tokens_carry_it_too_for_agents_keep_parts_of_many_answers(run):
    policy_of(run)._has_tokens = True
    await announce(7, head_server_config=run.head)
    answer = json.loads(await ask(run, "/v1/responses", {"input": "a"}))
    assert [item["policy_version"] for item in answer["output"]] == [7]
    chat = json.loads(await ask(run, *REQUESTS[2]))
    assert chat["choices"][0]["message"]["policy_version"] == chat["policy_version"] == 7


async def test_a_call_under_which_the_weights_change_says_so(run):
    policy = policy_of(run)
    policy._waits = True
    await announce(7, head_server_config=run.head)
    asking = asyncio.create_task(ask(run, "/v1/responses", {"input": "a"}))
    go_on = await policy._asked.get()
    await announce(8, head_server_config=run.head)
    go_on.set()
    answer = json.loads(await asking)
    assert (answer["policy_version"], answer["policy_version_end"]) == (7, 8)


@pytest.mark.parametrize("has_tokens", [False, True])
async def test_a_rollout_in_whose_middle_the_policy_changes_straddles_and_says_both_versions(run, has_tokens):
    policy = policy_of(run)
    policy._waits, policy._has_tokens = True, has_tokens
    await announce(7, head_server_config=run.head)
    playing = asyncio.create_task(play(run))
    (await policy._asked.get()).set()
    second = await policy._asked.get()
    await announce(8, head_server_config=run.head)
    second.set()
    outcome = await playing
    assert isinstance(outcome, Scored)
    # The second call began under version 7 and ended under version 8.
    assert outcome.result["_ng_policy_versions"] == {"start": 7, "end": 8, "straddles": True}
    assert "_ng_policy_versions" not in outcome.result["response"]
    rollout = TrainableRollout.from_row(outcome.result)
    assert rollout.policy_versions == (7, 8)
    assert rollout.straddles_versions
    versions = [(turn.policy_version, turn.policy_version_end) for turn in rollout.turns]
    assert versions == ([(7, None), (7, 8)] if has_tokens else [])
    assert TrainableRollout.from_json(rollout.to_json()) == rollout


async def test_a_rollout_under_one_version_says_so_and_one_without_any_says_nothing(run):
    outcome = await play(run)
    assert isinstance(outcome, Scored)
    assert "_ng_policy_versions" not in outcome.result
    await announce(0, head_server_config=run.head)
    outcome = await play(run)
    assert outcome.result["_ng_policy_versions"] == {"start": 0, "end": 0, "straddles": False}
    assert TrainableRollout.from_row(outcome.result).policy_versions == (0, 0)


async def test_an_attempt_that_is_retried_begins_with_the_version_then_in_force(run):
    policy = policy_of(run)
    policy._failures = 1
    await announce(7, head_server_config=run.head)

    async def announce_in_the_pause(pause_s):
        await announce(8, head_server_config=run.head)

    outcome = await play(run, sleep=announce_in_the_pause)
    assert (outcome.attempts, outcome.result["_ng_policy_versions"]["start"]) == (2, 8)


# --- who may announce, and what --------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {TOKEN_HEADER: "a guess"}])
async def test_only_who_has_the_token_of_the_run_may_announce(run, headers):
    head = f"http://{run.head.host}:{run.head.port}"
    for url in (head, run.urls["policy_model"], run.urls["agent"]):
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{url}/policy_version", json={"version": 7}, headers=headers) as answer:
                assert answer.status == 401
                said = (await answer.json())["detail"]
        assert "hint:" in said
        assert TOKEN not in said
    assert await read_policy_version(run.head) is None


async def test_a_version_that_goes_back_is_refused_everywhere_unless_the_trainer_restarted(run):
    await announce(7, head_server_config=run.head)
    with pytest.raises(PolicyVersionRefused, match=r"(?s)6 was refused: version 7 is in force.*hint"):
        await announce(6, head_server_config=run.head)
    async with aiohttp.ClientSession(headers={TOKEN_HEADER: TOKEN}) as session:
        async with session.post(f"{run.urls['policy_model']}/policy_version", json={"version": 6}) as answer:
            assert answer.status == 409
            assert "hint:" in (await answer.json())["detail"]
    await announce(6, restart=True, head_server_config=run.head)
    assert await version_of(run.urls["policy_model"]) == 6


@pytest.mark.parametrize("bad", [-1, "x", None])
async def test_what_is_no_version_is_a_422(run, bad):
    with pytest.raises(PolicyVersionError, match="version"):
        await announce(bad, head_server_config=run.head)


async def test_announcements_that_come_together_leave_every_server_with_the_newest(run):
    numbers = list(range(10))
    tries = (announce(number, head_server_config=run.head) for number in reversed(numbers))
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert all(result is None or isinstance(result, PolicyVersionRefused) for result in results)
    assert [await version_of(run.urls[name]) for name in ("policy_model", "agent")] == [9, 9]


async def test_a_server_that_cannot_be_told_is_named_and_the_rest_have_the_version(run):
    gone = {"process_name": "gone", "server_type": "responses_api_models", "url": f"http://127.0.0.1:{free_port()}"}
    run.instances.append(gone)
    with pytest.raises(PolicyVersionError, match=r"(?s)version 3 is in force, but.*gone: .*hint: announce the same"):
        await announce(3, head_server_config=run.head)
    assert await version_of(run.urls["policy_model"]) == 3
    run.instances.remove(gone)
    await announce(3, head_server_config=run.head)


async def test_without_a_head_server_the_error_says_where_it_was_looked_for():
    nowhere = BaseServerConfig(host="127.0.0.1", port=free_port())
    with pytest.raises(PolicyVersionError, match=rf"(?s)127.0.0.1:{nowhere.port}.*hint"):
        await announce(1, head_server_config=nowhere)


# --- the gate and a trainer elsewhere --------------------------------------------------------------------------------


async def test_a_gate_hears_of_versions_that_another_process_announces(run):
    gate = StalenessGate(0, 1, version=None)
    async with follow(gate, run.head):
        first = asyncio.create_task(gate.admit(timeout_s=60))
        await announce(4, head_server_config=run.head)
        assert await first == 4
        second = asyncio.create_task(gate.admit(timeout_s=60))
        await announce(5, head_server_config=run.head)
        assert await second == 5


async def test_a_trainer_that_dies_and_comes_back_goes_on_from_the_version_in_force(run):
    gate = StalenessGate(0, 1, version=0)
    await announce(41, head_server_config=run.head)
    del gate  # with the trainer
    in_force = await read_policy_version(run.head)
    gate = StalenessGate(0, 1, version=in_force)
    assert await gate.admit(timeout_s=60) == 41
    assert not gate.try_admit()
    await announce(in_force + 1, gate=gate, head_server_config=run.head)
    assert gate.try_admit(), "the gate is open again"


@pytest.fixture
def helper(run, monkeypatch):
    monkeypatch.setattr(ServerClient, "load_from_global_config", classmethod(lambda cls, where=None: run.client))
    return RolloutCollectionHelper()


ROWS = [{**ROW, "_ng_task_index": task} for task in range(5)]


async def test_run_examples_begins_no_more_than_the_gate_admits_and_loses_none(run, helper):
    await announce(0, head_server_config=run.head)
    gate, seen = StalenessGate(0, 2, version=0), []
    for number, played in enumerate(helper.run_examples(ROWS, run.head, gate=gate, gate_timeout_s=60), 1):
        row, result = await played
        seen.append((row["_ng_task_index"], result["_ng_policy_versions"]["start"]))
        if number % 2 == 0:
            await announce(number // 2, gate=gate, head_server_config=run.head)
    assert sorted(task for task, _ in seen) == list(range(5))
    assert [version for _, version in seen] == [0, 0, 1, 1, 2]


async def test_a_rollout_of_run_examples_that_fails_gives_its_place_back(run, helper):
    policy_of(run)._failures, policy_of(run)._status = 1, 400
    gate = StalenessGate(0, 1, version=0)
    plays = helper.run_examples(ROWS[:2], run.head, route_failures_to_sidecar=True, gate=gate, gate_timeout_s=60)
    results = [(await played)[1] for played in plays]
    assert sorted("reward" in result for result in results) == [False, True]
    assert gate.free == 0


def collection_of(tmp_path, **fields: Any) -> RolloutCollectionConfig:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps({k: v for k, v in ROW.items() if k[:1] != "_"}) + "\n" for _ in range(4)))
    files = {"input_jsonl_fpath": str(path), "output_jsonl_fpath": str(tmp_path / "rollouts.jsonl")}
    return RolloutCollectionConfig(**files, disable_aggregation=True, max_policy_staleness=0, **fields)


async def test_a_collection_from_a_file_waits_for_the_versions_of_its_trainer(run, helper, tmp_path):
    config, output = collection_of(tmp_path, policy_batch_size=2), tmp_path / "rollouts.jsonl"
    collecting = asyncio.create_task(helper.run_from_config(config))
    await announce(0, head_server_config=run.head)
    async with asyncio.timeout(300):
        while not output.exists() or output.read_bytes().count(b"\n") < 2:  # noqa: ASYNC110  files have no event
            await asyncio.sleep(0.01)
    await announce(1, head_server_config=run.head)
    results = await collecting
    assert sorted(result["_ng_policy_versions"]["start"] for result in results) == [0, 0, 1, 1]


async def test_a_collection_whose_trainer_never_comes_is_given_up_with_the_reason(run, helper, tmp_path):
    config = collection_of(tmp_path, policy_batch_size=2, policy_version_timeout_seconds=0.01)
    with pytest.raises(GymError, match=r"(?s)no policy version was announced.*hint: the trainer announces"):
        await helper.run_from_config(config)


def test_a_bound_on_staleness_needs_the_size_of_a_batch(tmp_path):
    with pytest.raises(ValidationError, match=r"(?s)policy_batch_size is not.*hint: add"):
        collection_of(tmp_path)
