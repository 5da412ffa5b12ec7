# SPDX-License-Identifier: Apache-2.0
"""Rows are played inside a trainer, with its engine; what fails is never handed out."""

import asyncio

import psutil
import pytest
from fastapi import HTTPException

from nemo_gym import global_config
from nemo_gym._servers.processes.server_process import ServerDied
from nemo_gym._training.alignment import Turn
from nemo_gym.errors import ConfigError, RolloutFailure
from nemo_gym.integrations import live
from nemo_gym.integrations.live import LiveGym, LiveGymError, list_messages, read_row, write_row
from nemo_gym.testing import agent_config, running
from nemo_gym.token_engine import ChatFormat, EngineReply, TokenSettings
from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer, ExampleMultiStepVerifyRequest
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.token_engine_model.app import TokenEngineModel
from tests.support.live_gym import AGENT, CONFIG, check_branch, make_engine, open_gym, read_task


def settings_of(engine, **room):
    async def generate(prompt_ids, limit):
        ids, log_probs = engine.write(prompt_ids, limit)
        return EngineReply(ids, log_probs, is_cut_off=limit is not None and len(ids) >= limit, policy_version=2)

    return TokenSettings(generate, ChatFormat(engine.tokenizer), **room)


async def test_a_rollout_of_many_turns_is_one_exact_sequence_with_its_reward():
    row = read_task()
    engine = make_engine(row)
    async with open_gym() as gym:
        played = await gym.play(row, settings_of(engine))
    assert (played.rollout.reward, played.rollout.drift) == (1.0, "clean")
    assert len(engine.calls) == len(row["expected_synonyms"]) + 2
    check_branch(engine, played.branch)
    assert played.rollout.policy_versions == (2, 2)
    assert played.result["response"]["output"][0]["type"] == "reasoning"


async def test_many_rollouts_at_once_do_not_mix():
    row = read_task()
    engines = [make_engine(row) for _ in range(8)]
    async with open_gym() as gym:
        played = await asyncio.gather(*(gym.play(row, settings_of(engine)) for engine in engines))
    for one, engine in zip(played, engines, strict=True):
        check_branch(engine, one.branch)


async def test_an_agent_whose_response_lost_the_tokens_is_trained_on_what_the_engine_said():
    class Forgetful(SimpleAgent):
        async def responses(self, request, response, body):
            answer = await super().responses(request=request, response=response, body=body)
            plain = answer.model_dump()
            for item in plain["output"]:
                for name in ("prompt_token_ids", "generation_token_ids", "generation_log_probs"):
                    item.pop(name, None)
            return type(answer).model_validate(plain)

    row = read_task()
    engine = make_engine(row)
    servers = {"policy_model": TokenEngineModel, "synonyms": ExampleMultiStepResourcesServer}
    async with running(**servers, **{AGENT: (Forgetful, agent_config("synonyms"))}) as client:
        gym = LiveGym(client, asyncio.create_task(asyncio.Event().wait()), asyncio.Event())
        played = await gym.play(row, settings_of(engine))
    check_branch(engine, played.branch)


async def test_a_conversation_that_has_outgrown_its_room_ends_and_is_scored():
    row = read_task()
    engine = make_engine(row)
    async with open_gym() as gym:
        played = await gym.play(row, settings_of(engine, max_response_length=150))
    assert played.rollout.reward == 0.0
    assert played.rollout.cut_off == "length"
    assert len(played.branch.completion_ids) <= 150


class FailsTwice(ExampleMultiStepResourcesServer):
    """Its verifier fails at first, in a way that no retry of the same rollout would help."""

    async def verify(self, body: ExampleMultiStepVerifyRequest):
        FAILURES.append(body)
        if len(FAILURES) <= 2:
            raise HTTPException(422, "not yet")
        return await super().verify(body)


FAILURES = []


async def test_a_rollout_that_fails_is_played_again_from_its_beginning():
    FAILURES.clear()
    row = {**read_task(), "_ng_attempt_index": 2}  # as a row of a resumed run has it
    engine = make_engine(row)
    async with open_gym(FailsTwice) as gym:
        played = await gym.play(row, settings_of(engine), attempts=3)
    assert played.rollout.reward == 1.0
    assert len(FAILURES) == 3
    per_attempt = len(engine.calls) // 3
    engine.calls = engine.calls[-per_attempt:]
    check_branch(engine, played.branch)


async def test_one_that_keeps_failing_is_an_error_and_never_a_zero():
    FAILURES.clear()
    row = read_task()
    async with open_gym(FailsTwice) as gym:
        with pytest.raises(RolloutFailure, match="not yet"):
            await gym.play(row, settings_of(make_engine(row)), attempts=2)
        with pytest.raises(ValueError, match="at least 1"):
            await gym.play(row, settings_of(make_engine(row)), attempts=0)


async def test_a_prompt_that_leaves_no_room_at_all_is_a_failure_that_says_so():
    row = read_task()
    async with open_gym() as gym:
        with pytest.raises(RolloutFailure, match="leaves no room"):
            await gym.play(row, settings_of(make_engine(row), max_length=5), attempts=1)


async def test_an_engine_that_writes_nothing_gives_nothing_to_train_on():
    async def generate(prompt_ids, limit):
        return EngineReply([], [])

    row = read_task()
    async with open_gym() as gym:
        with pytest.raises(RolloutFailure, match="no_tokens"):
            await gym.play(row, TokenSettings(generate, ChatFormat(make_engine(row).tokenizer)), attempts=1)


async def test_an_engine_that_raises_fails_the_rollout_with_its_words():
    async def generate(prompt_ids, limit):
        raise RuntimeError("the weights are away")

    row = read_task()
    async with open_gym() as gym:
        with pytest.raises(RolloutFailure, match="the weights are away"):
            await gym.play(row, TokenSettings(generate, ChatFormat(make_engine(row).tokenizer)), attempts=1)


async def test_an_attempt_may_be_bounded_in_time():
    async def generate(prompt_ids, limit):
        await asyncio.Event().wait()

    row = read_task()
    async with open_gym() as gym:
        settings = TokenSettings(generate, ChatFormat(make_engine(row).tokenizer))
        with pytest.raises(RolloutFailure, match=r"timeout: no result within 0\.05 s"):
            await gym.play(row, settings, attempts=1, timeout_s=0.05)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_a_failure(reward):
    rollout = live.TrainableRollout(0, 0, reward=reward, turns=[Turn([1], [2], [0.0], "engine")])
    rollout.branches = live.join_turns(rollout.turns)
    with pytest.raises(RolloutFailure, match="no_reward"):
        live.require_trainable(rollout, {})


def test_masked_rollouts_are_not_trained_on():
    rollout = live.TrainableRollout(0, 0, reward=1.0, invalid="mask_sample")
    with pytest.raises(RolloutFailure, match="tokens_lost"):
        live.require_trainable(rollout, {})


# --- servers of the process -------------------------------------------------------------------------------------------


@pytest.fixture
def own_config(monkeypatch):
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.setattr("sys.argv", ["trainer", "--its-own=flag"])


async def test_the_servers_of_a_process_are_started_once_and_play(own_config):
    row = read_task()
    engine = make_engine(row)
    gyms = await asyncio.gather(*(LiveGym.of_process([CONFIG]) for _ in range(3)))
    assert gyms[0] is gyms[1] is gyms[2]
    async with gyms[0] as gym:
        played = await gym.play(row, settings_of(engine))
        check_branch(engine, played.branch)
        with pytest.raises(LiveGymError, match="hint: name all environments in one list"):
            await LiveGym.of_process(["another.yaml"])
    assert LiveGym._of_process is None
    with pytest.raises(LiveGymError, match="stopped"):
        await gym.run(row)


@pytest.mark.thorough
@pytest.mark.slow
async def test_an_agent_in_a_process_of_its_own_asks_the_engine_of_its_rollout(own_config):
    row = read_task()
    engines = [make_engine(row) for _ in range(3)]
    apart = f"++{AGENT}.responses_api_agents.simple_agent.placement=process"
    async with await LiveGym.start([CONFIG], [apart]) as gym:
        played = await asyncio.gather(*(gym.play(row, settings_of(engine)) for engine in engines))
    for one, engine in zip(played, engines, strict=True):
        check_branch(engine, one.branch)


async def test_configs_that_cannot_be_used_are_said_so_and_may_be_corrected(own_config):
    with pytest.raises(Exception, match=r"nowhere\.yaml"):
        await LiveGym.of_process(["nowhere.yaml"])
    assert LiveGym._of_process is None


async def test_servers_that_cannot_start_are_said_so(own_config):
    server = "example_multi_step_resources_server.resources_servers.example_multi_step"
    with pytest.raises(ConfigError, match="the entrypoint of server"):
        await LiveGym.start([CONFIG], [f"++{server}.entrypoint=nowhere.py"])


@pytest.mark.slow
async def test_servers_that_have_died_are_an_error_for_every_later_rollout(own_config):
    apart = f"++{AGENT}.responses_api_agents.simple_agent.placement=process"
    gym = await LiveGym.start([CONFIG], [apart])
    for child in psutil.Process().children():
        if AGENT in child.environ().get("NEMO_GYM_CONFIG_PATH", ""):
            child.kill()
    with pytest.raises(ServerDied):
        await gym._serving
    row = read_task()
    with pytest.raises(ServerDied):
        await gym.play(row, settings_of(make_engine(row)))


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_row_travels_as_text():
    row = read_task()
    assert read_row(write_row(row), "here") == row
    assert read_row(row, "here") == row
    assert list_messages(row) == [{"role": "user", "content": "Look up the synonyms."}]


@pytest.mark.parametrize("carried", [None, "", "42", "no json", "{}", {"input": "a"}])
def test_what_is_no_row_is_refused_with_where_it_was_found(carried):
    with pytest.raises(LiveGymError, match="the label holds no row"):
        read_row(carried, "the label")
