# SPDX-License-Identifier: Apache-2.0
"""Small questions: the answer alone is worth 1, anything else 0."""

import pytest

from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, asked, build_server, reasoning, reply, running, scripted_model, tool_call
from resources_servers.first_steps import generate_data, generate_training_data
from resources_servers.first_steps.app import FirstStepsResourcesServer
from responses_api_agents.simple_agent.app import SimpleAgent

REFS = agent_config("first_steps")


async def scored(response, answers=("Paris",)):
    body = {
        "responses_create_params": asked("Capital of France?").model_dump(exclude_unset=True),
        "response": response.model_dump(),
        "category": "capitals",
        "answers": list(answers),
    }
    async with running(first_steps=FirstStepsResourcesServer) as client:
        return await get_response_json(await client.post("first_steps", "/verify", json=body))


@pytest.mark.parametrize("said", ["Paris", "paris", " Paris.\n", "**Paris**", "<think>Lyon? No.</think>Paris"])
async def test_the_right_answer_is_worth_one(said):
    result = await scored(reply(said))
    assert (result["reward"], result["answer"], result["category"]) == (1.0, "paris", "capitals")


@pytest.mark.parametrize(
    "said", ["Lyon", "Pari", "Paris Paris", "Lyon or Paris", "The capital is Paris", "<think>Paris"]
)
async def test_anything_else_is_worth_nothing(said):
    assert (await scored(reply(said)))["reward"] == 0.0


@pytest.mark.parametrize(
    "response", [reply(), reply(""), reply(" .\n"), reply(reasoning("Paris")), reply(tool_call("look_up", "{not json"))]
)
async def test_no_answer_is_worth_nothing(response):
    result = await scored(response)
    assert (result["reward"], result["answer"]) == (0.0, "")


async def test_an_answer_of_punctuation_alone_is_no_match_for_no_answer():
    assert (await scored(reply("!"), answers=["..."]))["reward"] == 0.0


@pytest.mark.parametrize("said", ["sad", "Unhappy"])
async def test_each_of_several_answers_is_right(said):
    assert (await scored(reply(said), answers=["sad", "unhappy"]))["reward"] == 1.0


async def test_a_task_without_answers_is_refused_by_name():
    body = {"responses_create_params": {"input": "?"}, "response": reply("x").model_dump(), "category": "c"}
    async with running(first_steps=FirstStepsResourcesServer) as client:
        for answers in ({}, {"answers": []}):
            refused = await client.post("first_steps", "/verify", json={**body, **answers})
            assert refused.status == 422
            assert (await get_response_json(refused))["detail"][0]["loc"] == ["body", "answers"]


async def test_the_agent_plays_every_row_and_its_gold_answer_passes():
    rows = generate_data.demo_rows()
    model = scripted_model(*(generate_data.solution(row)[0] for row in rows))
    async with running(first_steps=FirstStepsResourcesServer, agent=(SimpleAgent, REFS), policy_model=model) as client:
        rollouts = [await get_response_json(await client.post("agent", "/run", json=row)) for row in rows]
    assert [rollout["reward"] for rollout in rollouts] == [1.0] * len(rows)


def test_every_kind_has_its_own_mean_in_which_tasks_count_alike():
    def task(category, *rewards):
        return [{"category": category, "reward": reward} for reward in rewards]

    server = build_server(FirstStepsResourcesServer)
    metrics = server.compute_metrics([task("a", 1.0, 0.0), task("b", 1.0), task("a", 1.0, 1.0, 1.0, 1.0), []])
    assert (metrics["mean/reward/a"], metrics["mean/reward/b"]) == (0.75, 1.0)
    assert (metrics["n_scored/mean/reward/a"], metrics["n_scored/mean/reward/b"]) == (6, 1)
    key = server.get_key_metrics({**metrics, "mean/reward": 0.8, "mean/output_tokens": 3, "std/reward": 0.4})
    assert set(key) == {"mean/reward", "mean/reward/a", "mean/reward/b"}


async def test_responses_can_be_scored_again_later():
    async with running(first_steps=FirstStepsResourcesServer) as client:
        assert await get_response_json(await client.get("first_steps", "/reverify_mode")) == "stateless"


def test_rows_are_valid_different_and_fairly_mixed():
    rows = generate_data.demo_rows()
    questions = [row["responses_create_params"]["input"][-1]["content"] for row in rows]
    assert len(set(questions)) == len(rows) >= 20
    assert {row["category"] for row in rows[: len(generate_data.KINDS)]} == set(generate_data.KINDS)
    for row in rows:
        assert set(row) == {"responses_create_params", "category", "answers"}
        NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])
        shown = [turn["content"] for turn in row["responses_create_params"]["input"][:-1]]
        assert not set(shown) & {row["responses_create_params"]["input"][-1]["content"]}, "an example gives it away"


def test_the_sets_to_train_tune_and_test_with_share_no_word():
    sets = [
        generate_training_data.training_rows(),
        generate_training_data.held_out_rows(),
        generate_training_data.test_rows(),
    ]
    words = [{word for row in rows for word in row["answers"][0].split()} for rows in sets]
    assert len(set().union(*words, {"sun", "tree"})) == sum(map(len, words)) + 2
    for rows in sets:
        assert len({row["answers"][0] for row in rows}) == len(rows)
    for row in (sets[0][0], sets[1][-1], sets[2][-1]):
        first, second = row["responses_create_params"]["input"][-1]["content"].removeprefix("Swap: ").split()
        assert row["answers"] == [f"{second} {first}"]
        NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])


def test_the_files_for_training_are_what_the_script_writes(tmp_path):
    generate_training_data.write(tmp_path)
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert written == {name: (generate_training_data.HERE / "data" / name).read_text() for name in written}
    assert set(written) == {"swapping_training.jsonl", "swapping_held_out.jsonl", "swapping_test.jsonl"}
