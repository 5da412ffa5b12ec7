# SPDX-License-Identifier: Apache-2.0
"""Replays of recorded rollouts and of scripts, in process."""

import asyncio
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.config_types import ConfigError, ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponseUsage
from nemo_gym.testing import asked, build_server, message, reasoning, reply, running, tool_call
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.replay_model import app as replay_app
from responses_api_models.replay_model.app import ReplayModel, ReplayModelConfig
from responses_api_models.replay_model.recordings import Asked, Recordings, read_recording

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
USAGE = NeMoGymResponseUsage(
    input_tokens=30,
    input_tokens_details={"cached_tokens": 1},
    output_tokens=20,
    output_tokens_details={"reasoning_tokens": 2},
    total_tokens=50,
)


def tool_output(call_id, output):
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def row(prompt, *output, params=None, usage=None, **fields):
    """A line of a rollouts file, in the shape that a run writes."""
    create = asked(prompt, **(params or {})).model_dump(mode="json")
    response = reply(*output, usage=usage).model_dump(mode="json")
    return {"responses_create_params": create, "response": response, "reward": 1.0, **fields}


def recorded(tmp_path, *rows):
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in rows))
    return {"rollouts_jsonl_fpath": str(path)}


def weather(city, degrees, call_id):
    """A rollout of two model turns."""
    return row(
        f"How cold is {city}?",
        reasoning(f"look up {city}"),
        tool_call("get_weather", {"city": city}, call_id=call_id),
        tool_output(call_id, f"{degrees} degrees"),
        f"It is {degrees} in {city}.",
        usage=USAGE,
    )


async def ask(client, body, path="/v1/responses", **kwargs):
    answer = await client.post("policy_model", path, json=body, **kwargs)
    return answer.status, await answer.json()


async def play(client, prompt, tool=lambda call: "anything", **params):
    """What an agent that runs every call gets in the end, cookies and all."""
    items = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    output, cookies, path = [], {}, params.pop("path", "/v1/responses")
    for _ in range(20):
        answer = await client.post("policy_model", path, json={"input": items + output, **params}, cookies=cookies)
        assert answer.status == 200, await answer.json()
        cookies = {name: morsel.value for name, morsel in answer.cookies.items()}
        turn = await answer.json()
        output += turn["output"]
        calls = [item for item in turn["output"] if item["type"] == "function_call"]
        if not calls:
            return output, turn
        output += [tool_output(call["call_id"], tool(call)) for call in calls]
    raise AssertionError("the conversation did not end")


def texts(output):
    return [item["content"][0]["text"] for item in output if item["type"] == "message"]


# --- recorded rollouts ------------------------------------------------------------------------------------------------


async def test_a_recorded_rollout_replays_turn_by_turn_and_exactly(tmp_path):
    line = weather("Oslo", -3, "c1")
    async with running(policy_model=(ReplayModel, recorded(tmp_path, line, weather("Rome", 20, "c2")))) as client:
        output, last = await play(client, "How cold is Oslo?", tool=lambda call: "-3 degrees")
    kept = [{k: v for k, v in item.items() if v is not None} for item in line["response"]["output"]]
    assert [{k: v for k, v in item.items() if v is not None} for item in output] == kept
    assert last["id"] == line["response"]["id"]
    assert last["usage"] == USAGE.model_dump()


async def test_usage_and_the_end_belong_to_the_last_turn_so_that_their_sum_is_the_recorded_one(tmp_path):
    line = weather("Oslo", -3, "c1")
    line["response"] |= {"incomplete_details": {"reason": "max_output_tokens"}, "status": "incomplete"}
    async with running(policy_model=(ReplayModel, recorded(tmp_path, line))) as client:
        _, first = await ask(client, {"input": "How cold is Oslo?"})
        _, last = await play(client, "How cold is Oslo?")
    assert (first["usage"], first["status"], first["incomplete_details"]) == (None, "completed", None)
    assert (last["usage"]["total_tokens"], last["status"]) == (50, "incomplete")


async def test_tool_outputs_may_differ_from_the_recorded_ones(tmp_path):
    async with running(policy_model=(ReplayModel, recorded(tmp_path, weather("Oslo", -3, "c1")))) as client:
        output, _ = await play(client, "How cold is Oslo?", tool=lambda call: "no idea")
    assert texts(output) == ["It is -3 in Oslo."]


async def test_a_history_without_reasoning_or_ids_is_recognised(tmp_path):
    call = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Oslo"}'}
    history = [{"role": "user", "content": [{"type": "input_text", "text": "How cold is Oslo?"}]}, call]
    async with running(policy_model=(ReplayModel, recorded(tmp_path, weather("Oslo", -3, "c1")))) as client:
        _, answer = await ask(client, {"input": [*history, tool_output("c1", "x")]})
    assert texts(answer["output"]) == ["It is -3 in Oslo."]


async def test_a_prompt_may_hold_earlier_turns_of_its_own(tmp_path):
    shots = [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2"},
    ]
    lines = row(shots, "4"), row("1+1", "2")
    async with running(policy_model=(ReplayModel, recorded(tmp_path, *lines))) as client:
        assert texts((await ask(client, {"input": shots}))[1]["output"]) == ["4"]
        assert texts((await ask(client, {"input": "1+1"}))[1]["output"]) == ["2"]


async def test_instructions_count_as_the_system_message_they_are(tmp_path):
    lines = row("hi", "ahoy", params={"instructions": "pirate"}), row("hi", "hello")
    async with running(policy_model=(ReplayModel, recorded(tmp_path, *lines))) as client:
        system = [{"role": "developer", "content": "pirate"}, {"role": "user", "content": "hi"}]
        for body, answer in (
            ({"input": "hi", "instructions": "pirate"}, "ahoy"),
            ({"input": system}, "ahoy"),
            ({"input": "hi"}, "hello"),
        ):
            assert texts((await ask(client, body))[1]["output"]) == [answer]


async def test_observations_of_an_environment_separate_turns_as_tool_outputs_do(tmp_path):
    steps = {"role": "user", "content": "warmer", "type": "message"}
    line = row("Guess.", "1", steps, "2", steps, "3")
    async with running(policy_model=(ReplayModel, recorded(tmp_path, line))) as client:
        items = [{"role": "user", "content": "Guess."}]
        for expected in "123":
            _, answer = await ask(client, {"input": items})
            assert texts(answer["output"]) == [expected]
            items += [*answer["output"], {"role": "user", "content": "colder"}]


async def test_prompts_with_images_are_told_apart_by_them(tmp_path):
    def look(url):
        parts = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": url, "detail": "auto"}]
        return [{"role": "user", "content": parts}]

    lines = row(look("http://x/cat.png"), "a cat"), row(look("http://x/dog.png"), "a dog")
    async with running(policy_model=(ReplayModel, recorded(tmp_path, *lines))) as client:
        assert texts((await ask(client, {"input": look("http://x/dog.png")}))[1]["output"]) == ["a dog"]


async def test_calls_to_hosted_tools_are_part_of_a_turn(tmp_path):
    search = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "x"}}
    line = row("hi", search, tool_call("f", call_id="c1"), tool_output("c1", "ok"), "done")
    async with running(policy_model=(ReplayModel, recorded(tmp_path, line))) as client:
        output, _ = await play(client, "hi")
    kinds = ["web_search_call", "function_call", "function_call_output", "message"]
    assert [item["type"] for item in output] == kinds


async def test_tokens_are_replayed(tmp_path):
    line = row("hi", "hello")
    line["response"]["output"][0] |= TOKENS
    async with running(policy_model=(ReplayModel, recorded(tmp_path, line))) as client:
        _, answer = await ask(client, {"input": "hi"})
        _, completed = await ask(client, {"messages": [{"role": "user", "content": "hi"}]}, "/v1/chat/completions")
    assert TOKENS.items() <= answer["output"][0].items()
    assert TOKENS.items() <= completed["choices"][0]["message"].items()


async def test_repeats_are_handed_out_in_order_and_each_session_stays_with_its_own(tmp_path):
    # Same call ids in both: only the session tells which rollout a second turn belongs to.
    lines = weather("Oslo", -3, "c1"), weather("Oslo", -9, "c1"), row("hi", "hello")
    async with running(policy_model=(ReplayModel, recorded(tmp_path, *lines))) as client:
        played = [texts((await play(client, "How cold is Oslo?"))[0])[0] for _ in range(3)]
        both = await asyncio.gather(*(play(client, "How cold is Oslo?") for _ in range(2)))
    assert played == ["It is -3 in Oslo.", "It is -9 in Oslo.", "It is -3 in Oslo."]
    assert sorted(texts(output)[0] for output, _ in both) == ["It is -3 in Oslo.", "It is -9 in Oslo."]


async def test_a_rollout_id_in_the_path_picks_the_repeat(tmp_path):
    lines = [{**row("hi", f"answer {r}"), "_ng_task_index": 4, "_ng_rollout_index": r} for r in range(3)]
    async with running(policy_model=(ReplayModel, recorded(tmp_path, *lines))) as client:
        for wanted in ("4-2", "4-0", "4-2-a1"):
            output, _ = await play(client, "hi", path=f"/ng-rollout/{wanted}/v1/responses")
            assert texts(output) == [f"answer {wanted[2]}"]


async def test_metadata_picks_the_repeat_too(tmp_path):
    lines = [row("hi", f"answer {r}", params={"metadata": {"extra_body": f'{{"seed": {r}}}'}}) for r in range(3)]
    async with running(policy_model=(ReplayModel, recorded(tmp_path, *lines))) as client:
        for r in (2, 0, 2):
            output, _ = await play(client, "hi", metadata={"extra_body": f'{{"seed": {r}}}'})
            assert texts(output) == [f"answer {r}"]


async def test_a_prompt_that_was_not_recorded_is_an_error_that_shows_the_nearest(tmp_path):
    lines = weather("Oslo", -3, "c1"), row("Write a poem about the sea.", "no")
    async with running(policy_model=(ReplayModel, recorded(tmp_path, *lines))) as client:
        status, answer = await ask(client, {"input": "How cold is Osaka?"})
    assert status == 404
    assert "How cold is Osaka?" in answer["detail"]
    assert "nearest recorded prompt: 'How cold is Oslo?'" in answer["detail"]


async def test_a_conversation_that_left_the_recording_is_an_error_that_says_where(tmp_path):
    other = {"type": "function_call", "call_id": "c9", "name": "get_weather", "arguments": "{}"}
    async with running(policy_model=(ReplayModel, recorded(tmp_path, weather("Oslo", -3, "c1")))) as client:
        items = [{"role": "user", "content": "How cold is Oslo?"}, other]
        status, answer = await ask(client, {"input": items})
    assert status == 404
    assert "c9 get_weather" in answer["detail"]
    assert "How cold is Oslo?" in answer["detail"]


async def test_with_cycle_an_unknown_prompt_plays_some_recording_to_its_end(tmp_path):
    source = recorded(tmp_path, weather("Oslo", -3, "c1"), weather("Rome", 20, "c2"))
    async with running(policy_model=(ReplayModel, {**source, "on_miss": "cycle"})) as client:
        played = {}
        for number, _ in itertools.product(range(20), range(2)):
            output, _ = await play(client, f"load test {number}")
            assert [item["type"] for item in output] == [
                "reasoning",
                "function_call",
                "function_call_output",
                "message",
            ]
            assert played.setdefault(number, texts(output)) == texts(output)
    assert len({text for said in played.values() for text in said}) == 2


async def test_the_model_name_is_the_recorded_one_unless_configured(tmp_path):
    source = recorded(tmp_path, row("hi", "hello"))
    for config, name in (({}, "scripted"), ({"model": "mine"}, "mine")):
        async with running(policy_model=(ReplayModel, {**source, **config})) as client:
            assert (await ask(client, {"input": "hi"}))[1]["model"] == name


async def test_chat_clients_get_the_same_replay(tmp_path):
    async with running(policy_model=(ReplayModel, recorded(tmp_path, weather("Oslo", -3, "c1")))) as client:
        messages = [{"role": "user", "content": "How cold is Oslo?"}]
        _, first = await ask(client, {"messages": messages}, "/v1/chat/completions")
        said = first["choices"][0]["message"]
        assert first["choices"][0]["finish_reason"] == "tool_calls"
        messages += [
            {k: v for k, v in said.items() if v is not None},
            {"role": "tool", "tool_call_id": "c1", "content": "?"},
        ]
        _, last = await ask(client, {"messages": messages}, "/v1/chat/completions")
    assert last["choices"][0]["message"]["content"] == "It is -3 in Oslo."
    assert (last["choices"][0]["finish_reason"], last["usage"]["total_tokens"]) == ("stop", 50)


async def test_an_agent_gets_back_the_rollout_it_recorded(tmp_path):
    class Weather(SimpleResourcesServer):
        def setup_webserver(self):
            app = super().setup_webserver()
            app.post("/get_weather")(self.get_weather)
            return app

        async def get_weather(self, body: dict):
            return f"-3 degrees in {body['city']}"

        async def verify(self, body):
            raise NotImplementedError

    line = weather("Oslo", -3, "c1")
    agent = {
        "resources_server": ResourcesServerRef(type="resources_servers", name="weather"),
        "model_server": ModelServerRef(type="responses_api_models", name="policy_model"),
    }
    servers = {
        "weather": Weather,
        "agent": (SimpleAgent, agent),
        "policy_model": (ReplayModel, recorded(tmp_path, line)),
    }
    async with running(**servers) as client:
        answer = await client.post("agent", "/v1/responses", json={"input": "How cold is Oslo?"})
        replayed = await answer.json()
    assert [item["type"] for item in replayed["output"]] == [item["type"] for item in line["response"]["output"]]
    assert texts(replayed["output"]) == ["It is -3 in Oslo."]
    assert replayed["usage"]["total_tokens"] == 50


async def test_latency_is_added_to_every_answer(tmp_path, monkeypatch):
    sleep = AsyncMock()
    monkeypatch.setattr(replay_app, "asyncio", SimpleNamespace(sleep=sleep))
    source = recorded(tmp_path, row("hi", "hello"))
    async with running(policy_model=(ReplayModel, {**source, "latency_ms": 30})) as client:
        await ask(client, {"input": "hi"})
    sleep.assert_awaited_once_with(0.03)


# --- files that cannot be replayed ------------------------------------------------------------------------------------


def load(path):
    return build_server(ReplayModel, rollouts_jsonl_fpath=str(path))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{nope", "line 2, is not JSON"),
        ('{"responses_create_params": {"input": "hi"}}', "line 2, is not a rollout"),
        ("[]", "line 2, is not a rollout"),
        (
            '{"responses_create_params": {"input": "hi"}, "response": {"output": 1}}',
            "line 2, holds a response that cannot",
        ),
        (json.dumps(row("hi")), "without anything from the model"),
    ],
)
def test_a_bad_line_is_an_error_that_names_it(tmp_path, line, words):
    path = tmp_path / "rollouts.jsonl"
    path.write_text(f"{json.dumps(row('hi', 'hello'))}\n{line}\n")
    with pytest.raises(ConfigError, match=words):
        load(path)


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path, caplog):
    path = tmp_path / "rollouts.jsonl"
    path.write_text(f'{json.dumps(row("hi", "hello"))}\n{{"responses_create_par')
    load(path)
    assert "line 2 is cut off" in caplog.text


def test_a_missing_or_empty_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ConfigError, match="no rollouts"):
        load(tmp_path / "empty.jsonl")


# --- scripts ----------------------------------------------------------------------------------------------------------

REPLIES = [
    {"reasoning": "look it up", "tool_calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]},
    "It is cold.",
]


async def test_every_conversation_gets_the_replies_in_order():
    async with running(policy_model=(ReplayModel, {"replies": REPLIES})) as client:
        played = await asyncio.gather(*(play(client, f"question {number}") for number in range(5)))
    for output, last in played:
        assert [item["type"] for item in output] == ["reasoning", "function_call", "function_call_output", "message"]
        assert json.loads(output[1]["arguments"]) == {"city": "Oslo"}
        assert (texts(output), last["model"]) == (["It is cold."], "replay")


async def test_a_script_can_be_a_yaml_list_or_a_json_value_a_line(tmp_path):
    (tmp_path / "script.yaml").write_text(yaml.safe_dump(REPLIES))
    (tmp_path / "script.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in REPLIES))
    for name in ("script.yaml", "script.jsonl"):
        async with running(policy_model=(ReplayModel, {"script": str(tmp_path / name)})) as client:
            assert texts((await play(client, "hi"))[0]) == ["It is cold."]


async def test_after_the_last_reply_comes_an_error_or_the_first_one_as_configured():
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "and?"},
    ]
    async with running(policy_model=(ReplayModel, {"replies": ["a"]})) as client:
        status, answer = await ask(client, {"input": history})
    assert status == 404
    assert "has 1 replies" in answer["detail"]
    async with running(policy_model=(ReplayModel, {"replies": ["a"], "on_miss": "cycle"})) as client:
        assert texts((await ask(client, {"input": history}))[1]["output"]) == ["a"]


async def test_call_ids_stay_unique_when_a_script_starts_over():
    only_call = [{"tool_calls": [{"name": "step"}]}]
    async with running(policy_model=(ReplayModel, {"replies": only_call, "on_miss": "cycle"})) as client:
        items = [{"role": "user", "content": "go"}]
        for _ in range(3):
            _, answer = await ask(client, {"input": items})
            items += [answer["output"][0], tool_output(answer["output"][0]["call_id"], "ok")]
    assert len({item["call_id"] for item in items[1:]}) == 3


async def test_assistant_messages_of_the_prompt_are_not_mistaken_for_replies():
    shots = [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2"},
    ]
    async with running(policy_model=(ReplayModel, {"replies": ["4", "5"]})) as client:
        assert texts((await ask(client, {"input": shots}))[1]["output"]) == ["4"]


async def test_turns_of_only_reasoning_count():
    replies = [{"reasoning": "a"}, {"reasoning": "b"}, "done"]
    async with running(policy_model=(ReplayModel, {"replies": replies})) as client:
        items = [{"role": "user", "content": "go"}]
        for _ in range(3):
            items += (await ask(client, {"input": items}))[1]["output"]
    assert [item.get("type") for item in items[1:]] == ["reasoning", "reasoning", "message"]


async def test_a_reply_may_be_a_whole_response_and_usage_is_completed():
    whole = {
        "output": [message("x").model_dump()],
        "status": "incomplete",
        "incomplete_details": {"reason": "content_filter"},
    }
    for scripted, field, expected in (
        (whole, "status", "incomplete"),
        ({"text": "x", "usage": {"input_tokens": 2, "output_tokens": 3}}, "usage", 5),
    ):
        async with running(policy_model=(ReplayModel, {"replies": [scripted]})) as client:
            _, answer = await ask(client, {"input": "hi", "tool_choice": "none"})
        assert (answer[field] if field == "status" else answer[field]["total_tokens"]) == expected
        assert answer["tool_choice"] == "none"


async def test_streams_are_replayed_as_events():
    async with running(policy_model=(ReplayModel, {"replies": ["hello"]})) as client:
        answer = await client.post("policy_model", "/v1/responses", json={"input": "hi", "stream": True})
        events = (await answer.read()).decode()
    assert "response.completed" in events
    assert "hello" in events


@pytest.mark.parametrize(
    "bad", [{"txt": "typo"}, 7, {}, {"tool_calls": [{"arguments": {}}]}, {"output": []}, {"usage": {}}]
)
def test_a_reply_that_cannot_be_understood_is_an_error_that_counts_to_it(bad):
    with pytest.raises(ConfigError, match=r"reply 2 of the config of 'test_server'"):
        build_server(ReplayModel, replies=["fine", bad])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("s.yaml", "a: b", "must be a list"), ("s.yaml", "[", "not YAML"), ("s.jsonl", '"a"\n{', "line 2")],
)
def test_a_bad_script_is_an_error_that_names_the_file(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words) as error:
        build_server(ReplayModel, script=str(tmp_path / name))
    assert name in str(error.value)


@pytest.mark.parametrize("fields", [{}, {"replies": ["a"], "script": "s.yaml"}])
def test_exactly_one_source_is_needed(fields):
    with pytest.raises(ValueError, match="exactly one of rollouts_jsonl_fpath, script, replies"):
        build_server(ReplayModel, **fields)


def test_the_shipped_config_needs_only_a_source():
    text = (Path(__file__).parents[1] / "configs" / "replay_model.yaml").read_text()
    fields = yaml.safe_load(text)["policy_model"]["responses_api_models"]["replay_model"]
    assert ReplayModelConfig(**fields, replies=["x"], host="h", port=1, name="policy_model").on_miss == "error"


# --- any rollout ------------------------------------------------------------------------------------------------------

TURN = st.lists(st.sampled_from(["reasoning", "call", "message"]), min_size=1, max_size=3)


@given(st.lists(TURN, min_size=1, max_size=4), st.text(max_size=20))
@settings(max_examples=30, deadline=None)
def test_any_rollout_replays_exactly_from_any_of_its_turns(kinds, prompt):
    make = {
        "reasoning": lambda: reasoning("hm"),
        "call": lambda: tool_call("f", {"x": 1}),
        "message": lambda: message("m"),
    }
    turns = [[make[kind]() for kind in turn] for turn in kinds]
    heard = tool_output("c", "heard")
    output = [item for turn in turns for item in (*turn, heard)][:-1]
    path = Path("any.jsonl")
    replay = Recordings([read_recording(row(prompt, *output), path, 1)], str(path))
    history = list(asked(prompt).input)
    for turn in turns:
        answer = replay.find_next_turn(history, None, Asked())
        assert [item.model_dump() for item in answer.output] == [item.model_dump() for item in turn]
        history += [*answer.output, heard]
