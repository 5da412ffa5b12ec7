# SPDX-License-Identifier: Apache-2.0
"""verl: what its engine wrote is what is trained on. With verl itself: test_real_trainers.py."""

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import AsyncMock

import pyarrow.parquet
import pytest
from pydantic import BaseModel

from nemo_gym.errors import RolloutFailure
from nemo_gym.integrations import verl
from nemo_gym.integrations.live import ROW_FIELD, LiveGym, LiveGymError, read_row, write_row
from nemo_gym.integrations.verl import VerlEngine, build_sample, compute_score, play_sample, write_dataset
from nemo_gym.testing import agent_config, running
from nemo_gym.token_engine import ChatFormat
from resources_servers.string_match.app import StringMatchResourcesServer
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.integrations.test_live import FAILURES, FailsTwice
from tests.integrations.test_scoring import QUIZ
from tests.support.live_gym import check_sequence, make_engine, open_gym, read_task

SAMPLING = {"temperature": 1.0, "top_p": 0.9, "logprobs": True}
LENGTHS = {"prompt_length": 4000, "response_length": 4000}


class ServerManager:
    """Calls a scripted engine as verl calls its own."""

    def __init__(self, engine, stop_reason="completed"):
        self.engine, self.stop_reason, self.asked = engine, stop_reason, []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.asked.append((request_id, dict(sampling_params)))
        ids, log_probs = self.engine.write(prompt_ids, sampling_params.get("max_new_tokens"))
        return SimpleNamespace(
            token_ids=ids,
            log_probs=log_probs if sampling_params["logprobs"] else None,
            stop_reason=self.stop_reason,
            num_preempted=1,
            extra_fields={"global_steps": 10 + len(self.engine.calls)},
        )


async def play(engine, sampling=SAMPLING, environment=None, lengths=LENGTHS, **settings):
    manager = ServerManager(engine)
    async with open_gym(*([environment] if environment else [])) as gym:
        chat = ChatFormat(engine.tokenizer)
        output = await play_sample(gym, read_task(), VerlEngine(manager, sampling), chat, **lengths, **settings)
    return output, manager


async def test_a_sample_is_the_exact_sequence_of_a_rollout():
    engine = make_engine(read_task())
    output, manager = await play(engine)
    log_probs = output["response_logprobs"]
    check_sequence(engine, output["prompt_ids"], output["response_ids"], output["response_mask"], log_probs)
    assert output["reward_score"] == 1.0
    assert output["num_turns"] == 2 * len(engine.calls)
    assert output["metrics"]["num_preempted"] == len(engine.calls)
    assert output["metrics"]["generate_sequences"] > 0
    extra = output["extra_fields"]
    assert (extra["min_global_steps"], extra["max_global_steps"]) == (11, 10 + len(engine.calls))
    assert extra["reward_extra_info"] == {"is_cut_off": 0, "branches": 1}
    assert len({request_id for request_id, _ in manager.asked}) == 1, "one replica knows the prefix"


async def test_verl_says_how_to_sample_and_how_long_a_response_may_be():
    engine = make_engine(read_task())
    output, manager = await play(engine, lengths={"prompt_length": 4000, "response_length": 120})
    assert len(output["response_ids"]) <= 120
    assert output["extra_fields"]["reward_extra_info"]["is_cut_off"] == 1
    _, first = manager.asked[0]
    assert first == {**SAMPLING, "max_new_tokens": 120}


async def test_without_log_probs_there_are_none_and_no_zeros_in_their_place():
    output, _ = await play(make_engine(read_task()), {**SAMPLING, "logprobs": False})
    assert output["response_logprobs"] is None
    assert sum(output["response_mask"]) > 0


async def test_a_prompt_that_is_too_long_is_not_cut():
    with pytest.raises(RolloutFailure, match=r"hint: raise data\.max_prompt_length"):
        await play(make_engine(read_task()), lengths={"prompt_length": 10, "response_length": 4000})


async def test_a_rollout_that_keeps_failing_raises_and_one_that_recovers_does_not():
    FAILURES.clear()
    with pytest.raises(RolloutFailure, match="not yet"):
        await play(make_engine(read_task()), environment=FailsTwice, attempts=2)
    output, _ = await play(make_engine(read_task()), environment=FailsTwice, attempts=1)
    assert output["reward_score"] == 1.0


async def test_a_reply_that_verl_has_interrupted_is_a_failure():
    engine = make_engine(read_task())
    async with open_gym() as gym:
        told = VerlEngine(ServerManager(engine, stop_reason="aborted"), SAMPLING)
        with pytest.raises(RolloutFailure, match="told to stop"):
            await play_sample(gym, read_task(), told, ChatFormat(engine.tokenizer), **LENGTHS, attempts=1)


# --- the class, with a stand-in for verl's modules --------------------------------------------------------------------


class Output(BaseModel, extra="forbid"):
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float] | None
    reward_score: float | None
    num_turns: int
    metrics: dict
    extra_fields: dict


class Base:
    def __init__(self, trainer_config, server_manager, tokenizer):
        self.rollout_config, self.server_manager, self.tokenizer = trainer_config, server_manager, tokenizer
        self.apply_chat_template_kwargs = {}


class Parser:
    """Speaks as verl's parsers do: its text ends with the token that ends a turn."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    async def extract_tool_calls(self, ids, tools):
        from nemo_gym._training.chat_tokens import parse_hermes_calls

        assert tools is None, "the schemas of these tools are more than this stand-in takes"
        parsed = parse_hermes_calls(self.tokenizer.decode(ids))
        return parsed.text, [SimpleNamespace(name=name, arguments=text) for name, text in parsed.calls]


@pytest.fixture
def fake_verl(monkeypatch):
    class Schema(BaseModel, extra="forbid"):
        pass

    parsers = SimpleNamespace(get_tool_parser=lambda name, tokenizer: {"hermes": Parser}[name](tokenizer))
    modules = {
        "verl": {},
        "verl.experimental": {},
        "verl.experimental.agent_loop": {},
        "verl.experimental.agent_loop.agent_loop": {
            "AgentLoopBase": Base,
            "AgentLoopOutput": Output,
        },
        "verl.experimental.agent_loop.tool_parser": {"ToolParser": parsers},
        "verl.tools": {},
        "verl.tools.schemas": {"OpenAIFunctionToolSchema": Schema},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    verl.build_agent_loop.cache_clear()
    yield
    verl.build_agent_loop.cache_clear()


async def test_the_agent_loop_is_found_by_its_address_and_plays_the_row_of_a_sample(fake_verl, monkeypatch):
    cls = verl.GymAgentLoop
    assert cls is verl.GymAgentLoop
    assert f"{cls.__module__}.{cls.__qualname__}" == "nemo_gym.integrations.verl.GymAgentLoop"
    engine = make_engine(read_task())
    engine.tokenizer.eos_token = "<|im_end|>"
    rollout = SimpleNamespace(**LENGTHS, multi_turn=SimpleNamespace(format="hermes"))
    loop = cls(rollout, ServerManager(engine), engine.tokenizer, config_paths=("a.yaml",), attempts=1)
    async with open_gym() as gym:
        of_process = AsyncMock(return_value=gym)
        monkeypatch.setattr(LiveGym, "of_process", of_process)
        output = await loop.run(SAMPLING, **build_sample(read_task(), 3))
    of_process.assert_awaited_once_with(["a.yaml"], [])
    log_probs = output.response_logprobs
    check_sequence(engine, output.prompt_ids, output.response_ids, output.response_mask, log_probs)
    assert output.reward_score == 1.0


# --- rewards and datasets ---------------------------------------------------------------------------------------------


async def test_a_solution_is_scored_by_the_environment_of_its_row(monkeypatch):
    servers = {"quiz": StringMatchResourcesServer, "quiz_agent": (SimpleAgent, agent_config("quiz"))}
    async with running(**servers) as client:
        monkeypatch.setitem(verl._clients, (asyncio.get_running_loop(), "here:1"), client)
        extra = {"index": 0, ROW_FIELD: write_row(QUIZ)}
        for text, reward in ((r"\boxed{yes}", 1.0), (r"\boxed{no}", 0.0)):
            assert await compute_score("quiz", text, "", extra, head_server="here:1", unknown=1) == reward
    with pytest.raises(LiveGymError, match=r"extra_info\.nemo_gym_row of a sample holds no row"):
        await compute_score("quiz", "yes", "", None)


def test_rows_become_a_dataset_with_the_row_in_it(tmp_path):
    rows, output = tmp_path / "rows.jsonl", tmp_path / "train.parquet"
    nameless = {name: value for name, value in QUIZ.items() if name != "agent_ref"}
    rows.write_text(f"{write_row(QUIZ)}\n{write_row(nameless)}\n")
    verl.main([str(rows), str(output), "--agent", "another"])
    samples = pyarrow.parquet.read_table(output).to_pylist()
    assert [sample["data_source"] for sample in samples] == ["quiz_agent", "another"]
    assert [sample["agent_name"] for sample in samples] == ["nemo_gym"] * 2
    assert samples[0]["prompt"] == [{"role": "user", "content": "Say yes."}]
    assert [sample["extra_info"]["index"] for sample in samples] == [0, 1]
    assert read_row(samples[0]["extra_info"][ROW_FIELD], "") == QUIZ
    with pytest.raises(LiveGymError, match="1 rows name no agent, the first is row 1"):
        write_dataset(rows, output)
    with pytest.raises(SystemExit):
        verl.main([str(rows), str(output)])
