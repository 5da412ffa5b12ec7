# SPDX-License-Identifier: Apache-2.0
"""The model server with the real model in it. What the model says is its own affair; the contract is checked."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from nemo_gym.config_types import ConfigError
from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponse
from nemo_gym.server_utils import ServerClient
from nemo_gym.testing import build_server, running
from responses_api_models.local_model import engine as engines, exact
from responses_api_models.local_model.app import LocalModel
from responses_api_models.local_model.engine import Engine, EngineSettings
from responses_api_models.local_model.tests.conftest import FIELDS
from responses_api_models.local_model.weights import ensure_weights, weights_folder

pytestmark = pytest.mark.local_model

Serve = Callable[..., AbstractAsyncContextManager[ServerClient]]
FAILURE = "x-nemo-gym-failure"
CITY = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}, "required": ["city"]}
SUM = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS = [
    {"type": "function", "name": "get_weather", "description": "Get the weather.", "parameters": CITY, "strict": True},
    {"type": "function", "name": "add", "description": "Add numbers.", "parameters": SUM, "strict": True},
]
ENDLESS = {"metadata": {"extra_body": '{"ignore_eos": true}'}, "max_output_tokens": 900}


async def ask(client: ServerClient, given: Any, **fields: Any) -> NeMoGymResponse:
    body = {"input": given, "max_output_tokens": 8, "temperature": 0, **fields}
    reply = await client.post("policy_model", "/v1/responses", json=body)
    assert reply.status == 200, await reply.text()
    return NeMoGymResponse.model_validate(await reply.json())


async def chat(client: ServerClient, given: str, **fields: Any) -> NeMoGymChatCompletion:
    body = {"messages": [{"role": "user", "content": given}], "max_tokens": 8, "temperature": 0, **fields}
    reply = await client.post("policy_model", "/v1/chat/completions", json=body)
    assert reply.status == 200, await reply.text()
    return NeMoGymChatCompletion.model_validate(await reply.json())


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(300):
        while not await holds():  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.01)


async def busy(engine: Engine) -> int:
    return sum(slot["is_processing"] for slot in await engine._get("/slots"))


def text_of(response: NeMoGymResponse) -> str:
    return str(response.output_text)


# --- the three dialects -----------------------------------------------------------------------------------------------


async def test_it_answers_in_all_three_dialects_with_the_same_words(serve: Serve) -> None:
    async with serve() as client:
        response = await ask(client, "Name a colour.")
        completion = await chat(client, "Name a colour.")
        asked = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 8, "temperature": 0}
        anthropic = await (await client.post("policy_model", "/v1/messages", json={"model": "any", **asked})).json()
    assert text_of(response)
    assert completion.choices[0].message.content == text_of(response) == anthropic["content"][0]["text"]
    assert response.model == completion.model == "SmolLM2-135M-Instruct"
    assert response.usage is not None
    assert response.usage.output_tokens == completion.usage.completion_tokens == anthropic["usage"]["output_tokens"]
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


async def test_a_stream_ends_with_the_whole_reply(serve: Serve) -> None:
    async with serve() as client:
        body = {"input": "Name a colour.", "max_output_tokens": 4, "temperature": 0, "stream": True}
        events = (await (await client.post("policy_model", "/v1/responses", json=body)).text()).splitlines()
        expected = await ask(client, "Name a colour.", max_output_tokens=4)
    last = json.loads(next(line for line in reversed(events) if line.startswith("data: ")).removeprefix("data: "))
    assert last["type"] == "response.incomplete"  # four tokens are not enough
    assert NeMoGymResponse.model_validate(last["response"]).output_text == expected.output_text


async def test_limits_and_stop_strings_end_a_reply_and_are_named(serve: Serve) -> None:
    async with serve() as client:
        cut = await ask(client, "Count from 1 to 10.", max_output_tokens=3)
        stopped = await ask(
            client, "Count from 1 to 10.", max_output_tokens=40, metadata={"extra_body": '{"stop": ["3"]}'}
        )
    assert (cut.status, cut.incomplete_details.reason, cut.usage.output_tokens) == (
        "incomplete",
        "max_output_tokens",
        3,
    )
    assert stopped.status == "completed"
    assert "3" not in text_of(stopped)
    assert stopped.model_extra["stop_sequence"] == "3"


async def test_chat_log_probs_and_several_choices(serve: Serve) -> None:
    async with serve() as client:
        reply = await chat(client, "Hello!", n=2, temperature=2.0, seed=7, logprobs=True, top_logprobs=2, max_tokens=6)
    first, second = reply.choices
    assert first.message.content != second.message.content
    for scored in first.logprobs.content:
        assert scored.logprob <= 0
        assert [other.logprob for other in scored.top_logprobs] == sorted(
            (other.logprob for other in scored.top_logprobs), reverse=True
        )
        assert len(scored.top_logprobs) == 2


# --- sampling ---------------------------------------------------------------------------------------------------------


async def test_temperature_zero_gives_the_same_text_alone_and_among_others(serve: Serve) -> None:
    async with serve() as client:
        alone = [text_of(await ask(client, f"Tell me about the number {number}.")) for number in range(2)]
        among = await asyncio.gather(*(ask(client, f"Tell me about the number {number}.") for number in range(2)))
    assert [text_of(each) for each in among] == alone


async def test_seeds_decide_what_is_sampled(serve: Serve) -> None:
    async with serve() as client:
        said = [(await chat(client, "Tell a story.", temperature=1.5, seed=seed)) for seed in (1, 1, 2)]
        free = [(await chat(client, "Tell a story.", temperature=1.5)) for _ in range(2)]
    same, again, other = (reply.choices[0].message.content for reply in said)
    assert same == again != other
    assert free[0].choices[0].message.content != free[1].choices[0].message.content


async def test_a_seed_in_the_config_makes_runs_equal_and_repeats_differ(serve: Serve) -> None:
    runs = []
    for _ in range(2):
        async with serve(seed=3) as client:
            runs.append([text_of(await ask(client, "Tell a story.", temperature=1.5)) for _ in range(2)])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


# --- tools and structure ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", {"get_weather", "add"}), ({"type": "function", "name": "add"}, {"add"})],
)
async def test_a_demanded_call_comes_with_arguments_of_its_schema(serve: Serve, choice: Any, names: set[str]) -> None:
    async with serve() as client:
        response = await ask(client, "What is 3 + 4?", tools=TOOLS, tool_choice=choice, max_output_tokens=60)
    assert response.status == "completed"
    (call,) = response.output
    assert call.type == "function_call"
    assert call.name in names
    arguments = json.loads(call.arguments)
    if call.name == "add":
        assert {name: type(value) for name, value in arguments.items()} == {"a": int, "b": int}
    else:
        assert arguments["city"] in ("Oslo", "Rome")


async def test_a_call_is_made_by_itself_where_it_helps_and_not_where_it_does_not(serve: Serve) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    weather = {"type": "function", "name": "get_weather", "description": "Get the current weather of a city."}
    tools = [{**weather, "parameters": parameters, "strict": True}]
    async with serve() as client:
        helped = await ask(client, "What is the weather in Paris?", tools=tools, max_output_tokens=50)
        spoken = await ask(client, "Hello! How are you?", tools=tools)
    assert [(item.type, json.loads(item.arguments)) for item in helped.output] == [("function_call", {"city": "Paris"})]
    assert [item.type for item in spoken.output] == ["message"]


async def test_the_result_of_a_call_reaches_the_model(serve: Serve) -> None:
    history = [
        {"role": "user", "content": "What is the weather in Rome?"},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "snow"},
    ]
    async with serve() as client:
        response = await ask(client, history, tools=TOOLS[:1], max_output_tokens=24)
    assert "snow" in text_of(response)


@pytest.mark.parametrize("cut", [3, 60])
async def test_a_reply_in_a_json_schema_is_one_unless_it_was_cut_off(serve: Serve, cut: int) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    text_format = {"format": {"type": "json_schema", "name": "person", "schema": schema}}
    async with serve() as client:
        response = await ask(client, "Describe a person.", text=text_format, max_output_tokens=cut)
    if cut == 3:
        assert response.status == "incomplete"
        return
    person = json.loads(text_of(response))
    assert person.keys() == {"name", "age"}
    assert len(person["name"]) <= 12
    assert person["age"] <= 120


async def test_a_json_object_may_be_asked_for_without_a_schema(serve: Serve) -> None:
    async with serve() as client:
        reply = await chat(client, "Describe a person.", response_format={"type": "json_object"}, max_tokens=4)
    assert reply.choices[0].message.content.startswith("{")


async def test_a_schema_that_cannot_be_enforced_is_refused_by_name(serve: Serve) -> None:
    tags = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    parameters = {"type": "object", "properties": {"name": {"type": "string"}, "tags": tags}}
    tool = {"type": "function", "function": {"name": "save", "parameters": parameters}}
    async with serve() as client:
        body = {"messages": [{"role": "user", "content": "Save it."}], "tools": [tool]}
        reply = await client.post("policy_model", "/v1/chat/completions", json=body)
        assert reply.status == 400
        assert "tool 'save'" in await reply.text()
        assert "properties.tags" in await reply.text()


# --- tokens -----------------------------------------------------------------------------------------------------------


def tokens_of(response: NeMoGymResponse) -> tuple[list[int], list[int], list[float]]:
    last = response.output[-1]
    return last.prompt_token_ids, last.generation_token_ids, last.generation_log_probs


@pytest.mark.parametrize("question", ["What is 2 + 2?", "Repeat after me: 🌍🌌"])
async def test_token_ids_are_those_of_the_engine_and_spell_the_text(
    serve: Serve, engine: Engine, question: str
) -> None:
    async with serve(return_token_id_information=True) as client:
        response = await ask(client, question, max_output_tokens=18)
        prompt, generated, log_probs = tokens_of(response)
        again = await engine.generate_whole({"prompt": prompt, "n_predict": 18, "temperature": 0})
        spelled = (await engine.call("/detokenize", {"tokens": generated}))["content"]
        asked = (await engine.call("/detokenize", {"tokens": prompt}))["content"]
    assert again.token_ids == generated
    assert spelled.removesuffix("<|im_end|>").rstrip("\ufffd") == text_of(response)
    assert question in asked
    assert response.usage.output_tokens == len(generated) == len(log_probs)
    assert response.usage.input_tokens == len(prompt)
    assert all(value <= 0 for value in log_probs)


async def test_a_conversation_goes_on_with_the_tokens_that_were_written(serve: Serve, engine: Engine) -> None:
    question = {"role": "user", "content": "Say hello."}
    async with serve(return_token_id_information=True) as client:
        prompt = await engine.tokenize_prompt([question])
        (end,) = await engine.tokenize("<|im_end|>", parse_special=True)
        spelled = [token for letter in "Hello there" for token in await engine.tokenize(letter)] + [end]
        tokens = {
            "prompt_token_ids": prompt,
            "generation_token_ids": spelled,
            "generation_log_probs": [0.0] * len(spelled),
        }
        said = {"type": "message", "role": "assistant", "content": "Hello there", **tokens}
        goes_on = await ask(client, [question, said, {"role": "user", "content": "Again."}])
        edited = await ask(client, [question, {**said, "content": "Hi"}, {"role": "user", "content": "Again."}])
    so_far = prompt + spelled
    assert tokens_of(goes_on)[0][: len(so_far)] == so_far
    assert "Again." in await engine.detokenize(tokens_of(goes_on)[0][len(so_far) :])
    assert "assistant\nHi<|im_end|>" in await engine.detokenize(tokens_of(edited)[0])


async def test_a_call_that_a_grammar_has_ended_is_extended_by_the_next_turn(serve: Serve) -> None:
    question = {"role": "user", "content": "What is 3 + 4?"}
    settings = {"tools": TOOLS, "tool_choice": "required", "max_output_tokens": 60}
    async with serve(return_token_id_information=True) as client:
        first = await ask(client, [question], **settings)
        call = first.output[-1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "7"}
        second = await ask(client, [question, call.model_dump(), result], **settings)
    prompt, generated, log_probs = tokens_of(first)
    assert len(generated) == len(log_probs)
    assert tokens_of(second)[0][: len(prompt) + len(generated)] == prompt + generated


async def test_the_text_of_token_ids_is_the_engines(serve: Serve, engine: Engine) -> None:
    async with serve() as client:
        prompt = await engine.tokenize_prompt([{"role": "user", "content": "Hello 🌍!"}])
        answer = await client.post("policy_model", "/detokenize", json={"tokens": prompt})
        text = (await answer.json())["prompt"]
    assert "Hello 🌍!<|im_end|>" in text
    assert await engine.tokenize(text, parse_special=True) == prompt


async def test_a_character_of_several_tokens_has_all_of_them(engine: Engine, serve: Serve) -> None:
    async with serve():
        prompt = await engine.tokenize_prompt([{"role": "user", "content": "Reply with an emoji."}])
        grammar = '%llguidance {}\nstart: "🌍ok"'
        body = {"prompt": prompt, "n_predict": 20, "temperature": 0, "n_probs": 1, "grammar": grammar}
        streamed = await engine.generate(body)
        made = await exact.complete_tokens(engine, body, streamed)
        fields = await exact.build_token_fields(engine, prompt, made)
        whole = await engine.tokenize("🌍ok")
    assert len(streamed.token_ids) < len(made.token_ids)
    assert made.token_ids[: len(whole)] == whole
    assert len(fields["generation_log_probs"]) == len(made.token_ids)


async def test_a_log_prob_that_is_looked_up_equals_the_one_the_engine_reported(engine: Engine, serve: Serve) -> None:
    async with serve():
        prompt = await engine.tokenize_prompt([{"role": "user", "content": "Hello!"}])
        made = await engine.generate({"prompt": prompt, "n_predict": 4, "temperature": 0, "n_probs": 1})
        found = [
            await exact._find_log_prob(engine, [*prompt, *made.token_ids[:at]], token)
            for at, token in enumerate(made.token_ids)
        ]
    assert found == pytest.approx([score["logprob"] for score in made.scores], abs=1e-3)


async def test_the_tokens_of_a_call_are_on_the_call_without_the_end_that_the_grammar_wrote(serve: Serve) -> None:
    async with serve(return_token_id_information=True) as client:
        response = await ask(client, "Add 1 and 2.", tools=TOOLS, tool_choice="required", max_output_tokens=60)
    assert response.output[-1].type == "function_call"
    assert len(tokens_of(response)[1]) == response.usage.output_tokens - 1


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_prompt_longer_than_the_context_gives_an_incomplete_response(serve: Serve) -> None:
    async with serve() as client:
        response = await ask(client, "word " * 1200)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert text_of(response) == ""
    assert response.usage.input_tokens > 1024


async def test_an_outside_program_is_told_that_its_prompt_is_longer_than_the_context(serve: Serve) -> None:
    async with serve():
        app = build_server(LocalModel, **FIELDS).build_complete_app({})
        transport = httpx.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            reply = await client.post("http://here/v1/responses", json={"input": "word " * 1200})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_a_reply_ends_where_the_context_does(serve: Serve) -> None:
    small = {"context_length": 64, "slots": 1, "extra_body": {"ignore_eos": True}}
    async with serve(**small) as client:
        response = await ask(client, "Hello!", max_output_tokens=None)
    assert response.status == "incomplete"
    assert response.usage.total_tokens == 64


async def test_a_cancelled_request_stops_generating_and_frees_its_slot(serve: Serve, engine: Engine) -> None:
    async with serve() as client:
        task = asyncio.create_task(ask(client, "Tell a very long story.", **ENDLESS))
        await eventually(lambda: _is(busy(engine), 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.gate.inside == 0
        await eventually(lambda: _is(busy(engine), 0))
        done = max(slot["n_prompt_tokens"] for slot in await engine._get("/slots") if "n_prompt_tokens" in slot)
    assert done < 900


async def test_a_client_that_hangs_up_stops_the_generation(engine: Engine, serve: Serve) -> None:
    body = json.dumps({"input": "Tell a very long story.", **ENDLESS}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Mapping[str, Any]] = []

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await eventually(lambda: _is(busy(engine), 1))
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with serve():
        server = build_server(LocalModel, **FIELDS)
        app = server.build_complete_app({})
        async with app.router.lifespan_context(app):
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": headers}
            await app({**scope, "query_string": b"", "root_path": "", "server": ("x", 1)}, receive, send)
            assert engine.gate.inside == 0
            await eventually(lambda: _is(busy(engine), 0))
    assert sent[0]["status"] == 499


async def test_more_requests_than_may_wait_are_refused_with_a_time_to_come_back(serve: Serve, engine: Engine) -> None:
    async with serve(max_queue=1) as client:
        running_ones = [asyncio.create_task(ask(client, "Tell a very long story.", **ENDLESS)) for _ in range(3)]
        await eventually(lambda: _is(_now((engine.gate.inside, engine.gate.waiting)), (2, 1)))
        refused = await client.post("policy_model", "/v1/responses", json={"input": "Hello!"})
        health = await (await client.get("policy_model", "/health")).json()
        for task in running_ones:
            task.cancel()
        await asyncio.gather(*running_ones, return_exceptions=True)
        assert refused.status == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert "2 requests are running and 1 are waiting" in await refused.text()
        assert (health["running"], health["waiting"]) == (2, 1)
        await eventually(lambda: _is(busy(engine), 0))


async def test_a_request_that_takes_too_long_is_a_timeout_worth_another_try(serve: Serve, engine: Engine) -> None:
    async with serve(request_timeout_s=0.05) as client:
        reply = await client.post("policy_model", "/v1/responses", json={"input": "Tell a story.", **ENDLESS})
        failure = json.loads(reply.headers[FAILURE])
        assert (reply.status, failure["kind"], failure["retryable"]) == (500, "timeout", True)
        assert "request_timeout_s = 0.05" in failure["message"]
        await eventually(lambda: _is(busy(engine), 0))


async def _is(value: Awaitable[Any], expected: Any) -> bool:
    return bool(await value == expected)


async def _now(value: Any) -> Any:
    return value


# --- loading ----------------------------------------------------------------------------------------------------------


async def test_servers_with_the_same_model_share_an_engine_that_the_last_one_frees(engine: Engine) -> None:
    fields = {**FIELDS, "slots": 1, "context_length": 256}
    first, second = build_server(LocalModel, **fields), build_server(LocalModel, model="other", **fields)
    async with running(first=first, second=second) as client:
        before = await client.get("first", "/")
        assert (await before.json()) == {"status": "ok"}
        assert first._engine is second._engine
        loaded = await first._wait_for_engine()
        health = await client.get("second", "/health")
        assert (health.status, (await health.json())["status"]) == (200, "ok")
        models = await (await client.get("second", "/v1/models")).json()
        assert [model["id"] for model in models["data"]] == ["other"]
    assert loaded._server is None
    assert first._settings not in engines._ENGINES


async def test_a_file_that_is_no_model_is_reported_by_health_and_by_every_request(tmp_path: Any) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    server = build_server(LocalModel, **{**FIELDS, "model_path": str(broken)})
    async with running(policy_model=server) as client:
        reply = await client.post("policy_model", "/v1/responses", json={"input": "Hello!"})
        assert reply.status == 500
        failure = json.loads(reply.headers[FAILURE])
        assert (failure["kind"], failure["retryable"]) == ("model_endpoint", False)
        assert "broken.gguf" in failure["message"]
        health = await client.get("policy_model", "/health")
        assert (health.status, (await health.json())["status"]) == (503, "failed")


def test_a_model_path_that_does_not_exist_is_an_error_of_the_config() -> None:
    with pytest.raises(ConfigError, match=r"model_path 'no-such\.gguf', but there is no such file"):
        build_server(LocalModel, model_path="no-such.gguf")


def test_a_missing_extra_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigError, match=r"hint: \S+ -m uv pip install --python \S+ xllamacpp"):
        build_server(LocalModel)


def test_an_engine_that_is_closed_at_once_does_not_hang() -> None:
    engine = Engine(EngineSettings(ensure_weights(weights_folder()), 256, 1, 1, 64))
    address = urlsplit(engine._url)
    engine.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=300)


ONE_ANSWER = """
import asyncio
from nemo_gym.testing import running
from responses_api_models.local_model.app import LocalModel

async def main():
    fields = {"slots": 1, "context_length": 256, "threads": 1}
    async with running(model=(LocalModel, fields)) as client:
        reply = await client.post("model", "/v1/responses", json={"input": "Hello!", "max_output_tokens": 4})
        print(reply.status)

asyncio.run(main())
"""


def test_a_process_with_a_model_in_it_ends_cleanly_and_prints_nothing_of_llama_cpp(engine: Engine) -> None:
    ended = subprocess.run([sys.executable, "-c", ONE_ANSWER], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "200\n", "")
