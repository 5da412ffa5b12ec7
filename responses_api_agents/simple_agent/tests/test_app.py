# SPDX-License-Identifier: Apache-2.0
"""The simple agent in process: a real resources server, a scripted model, and the mocks that other suites use."""

import asyncio
import json
import sys
from http.cookies import SimpleCookie
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import aiohttp
import pytest
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.testclient import TestClient
from pydantic import BaseModel, ConfigDict, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.errors import UnknownServerError
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseUsage,
)
from nemo_gym.rollout_observability import AgentObservationBundle, TrajectoryRecord
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from nemo_gym.testing import ScriptedModel, agent_config, reasoning, reply, running, scripted_model, tool_call
from responses_api_agents.simple_agent import client as client_script
from responses_api_agents.simple_agent.app import (
    ModelServerRef,
    ResourcesServerRef,
    SimpleAgent,
    SimpleAgentConfig,
    SimpleAgentRunRequest,
)
from responses_api_agents.simple_agent.loop import MAX_SILENT_REPLIES, RESERVED_TOOL_NAMES, InvalidReply

REFS = agent_config("world")
ODD_NAMES = {"verify#x", "%76erify", "verify\n", "ng-rollout/1-1/verify", "a b"}
ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}


class WorldSeedRequest(BaseSeedSessionRequest):
    start: int = 0


class WorldVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")
    expected: int = 0


class WorldVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")
    total: int


class Amount(BaseModel):
    amount: int


class World(SimpleResourcesServer):
    """A running total per session, a tool that fails, and a note of every path and cookie that arrives."""

    config: BaseResourcesServerConfig
    _totals: dict[str, int] = PrivateAttr(default_factory=dict)
    _seen: list[tuple[str, dict[str, str]]] = PrivateAttr(default_factory=list)
    _gate: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        app.post("/flavour")(self.flavour)
        app.post("/fail")(self.fail)
        app.post("/refuse")(self.refuse)
        app.post("/wait_for_other")(self.wait_for_other)
        app.post("/let_other_go")(self.let_other_go)
        return app

    def paths(self) -> list[str]:
        return [path for path, _ in self._seen]

    def _note(self, request: Request) -> str:
        self._seen.append((request.url.path, dict(request.cookies)))
        return str(request.session[SESSION_ID_KEY])

    async def seed_session(self, body: WorldSeedRequest, request: Request) -> BaseSeedSessionResponse:
        self._totals[self._note(request)] = body.start
        return BaseSeedSessionResponse()

    async def add(self, body: Amount, request: Request) -> dict[str, int]:
        session = self._note(request)
        self._totals[session] = self._totals.get(session, 0) + body.amount
        return {"total": self._totals[session]}

    async def flavour(self, request: Request, response: Response) -> dict[str, bool]:
        self._note(request)
        response.set_cookie("flavour", "vanilla")
        return {"ok": True}

    async def fail(self) -> None:
        raise ZeroDivisionError("the tool broke")

    async def refuse(self) -> None:
        raise HTTPException(403, "not today")

    async def wait_for_other(self) -> str:
        await self._gate.wait()
        return "waited"

    async def let_other_go(self) -> str:
        self._gate.set()
        return "went"

    async def verify(self, body: WorldVerifyRequest, request: Request) -> WorldVerifyResponse:
        total = self._totals.get(self._note(request), 0)
        return WorldVerifyResponse(**body.model_dump(), total=total, reward=float(total == body.expected))


def task(prompt: Any = "Add.", **fields: Any) -> dict[str, Any]:
    params = fields.pop("params", {})
    return {"responses_create_params": {"input": [{"role": "user", "content": prompt}], **params}, **fields}


async def run_task(
    row: dict[str, Any], *replies: NeMoGymResponse | str, world: World | None = None, **config: Any
) -> tuple[dict[str, Any], ScriptedModel]:
    model = scripted_model(*replies)
    async with running(world=world or World, policy_model=model, agent=(SimpleAgent, {**REFS, **config})) as client:
        response = await client.post("agent", "/run", json=row)
        assert response.ok, await response.text()
        return await response.json(), model


def new_world() -> World:
    config = BaseResourcesServerConfig(host="", port=0, entrypoint="app.py", name="world")
    return World(config=config, server_client=MagicMock(spec=ServerClient))


def outputs(result: dict[str, Any]) -> list[str]:
    return [item["output"] for item in result["response"]["output"] if item["type"] == "function_call_output"]


class TestRollout:
    async def test_a_rollout_seeds_plays_in_that_session_and_verifies_there(self):
        result, _ = await run_task(
            task(start=40, expected=42, colour="green"), reply(tool_call("add", {"amount": 2})), "Done."
        )
        assert result["reward"] == 1.0
        assert result["total"] == 42
        assert result["colour"] == "green"

    async def test_the_response_holds_everything_after_the_input_in_order(self):
        result, model = await run_task(
            task(), reply(reasoning("hm"), tool_call("add", {"amount": 1}, call_id="c1")), "It is 1."
        )
        kinds = [item["type"] for item in result["response"]["output"]]
        assert kinds == ["reasoning", "function_call", "function_call_output", "message"]
        assert result["response"]["output"][2] == {
            "call_id": "c1",
            "output": '{"total":1}',
            "type": "function_call_output",
            "id": None,
            "status": None,
        }
        assert [item.type for item in model.requests[1].input] == ["message", *kinds[:3]]

    async def test_the_usage_of_all_turns_is_summed(self):
        def usage(tokens: int) -> NeMoGymResponseUsage:
            return NeMoGymResponseUsage(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)

        result, _ = await run_task(
            task(), reply(tool_call("add", {"amount": 1}), usage=usage(10)), reply("1", usage=usage(20))
        )
        assert result["response"]["usage"]["total_tokens"] == 32

    async def test_a_text_as_input_becomes_a_user_message(self):
        row = {"responses_create_params": {"input": "Add."}}
        _, model = await run_task(row, "No.")
        assert model.requests[0].input == [NeMoGymEasyInputMessage(role="user", content="Add.", type="message")]

    async def test_settings_of_the_task_reach_the_model_on_every_turn_and_nothing_else_does(self):
        _, model = await run_task(
            task(params={"temperature": 0.5, "tools": [ADD]}), reply(tool_call("add", {"amount": 1})), "1"
        )
        for request in model.requests:
            assert request.model_fields_set == {"input", "temperature", "tools"}
            assert request.temperature == 0.5

    async def test_skipped_verification_gives_the_configured_reward_and_calls_no_verifier(self):
        world = new_world()
        result, _ = await run_task(
            task(colour="green"), "Hi.", world=world, skip_verification=True, skip_verification_reward=0.25
        )
        assert (result["reward"], result["verification_skipped"], result["colour"]) == (0.25, True, "green")
        assert world.paths() == ["/seed_session"]

    async def test_metrics_are_the_resources_servers(self):
        class CountingWorld(World):
            def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
                return {"tasks": len(tasks)}

        rows = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]
        async with running(world=CountingWorld, policy_model=scripted_model(), agent=(SimpleAgent, REFS)) as client:
            response = await client.post("agent", "/aggregate_metrics", json={"verify_responses": rows})
            assert (await response.json())["agent_metrics"]["tasks"] == 1


class TestEndOfTheLoop:
    async def test_replies_that_say_nothing_cannot_go_on_for_ever(self):
        silent = [reply(reasoning("hm")) for _ in range(MAX_SILENT_REPLIES)]
        result, model = await run_task(task(), *silent)
        assert len(model.requests) == MAX_SILENT_REPLIES
        assert len(result["response"]["output"]) == MAX_SILENT_REPLIES

    async def test_thinking_may_be_followed_by_an_answer(self):
        result, _ = await run_task(task(), reply(reasoning("hm")), reply(reasoning("hm")), "Yes.")
        assert result["response"]["output"][-1]["content"][0]["text"] == "Yes."

    async def test_a_call_starts_the_count_of_silent_replies_anew(self):
        silent = [reply(reasoning("hm")) for _ in range(MAX_SILENT_REPLIES - 1)]
        _, model = await run_task(task(), *silent, reply(tool_call("add", {"amount": 1})), *silent, "Yes.")
        assert len(model.requests) == 2 * MAX_SILENT_REPLIES

    async def test_max_steps_ends_the_loop_after_the_tools_ran(self):
        call = reply(tool_call("add", {"amount": 1}))
        result, model = await run_task(task(expected=2), call, call, max_steps=2)
        assert len(model.requests) == 2
        assert result["reward"] == 1.0
        assert result["response"]["output"][-1]["type"] == "function_call_output"
        assert result["_ng_cut_off"] == "max_steps"
        assert "_ng_cut_off" not in result["response"]

    async def test_an_answer_in_the_last_step_that_is_allowed_is_not_cut_off(self):
        result, _ = await run_task(task(), reply(tool_call("add", {"amount": 1})), "1", max_steps=2)
        assert "_ng_cut_off" not in result

    async def test_whoever_asks_for_the_response_alone_is_told_of_crashes_and_of_max_steps(self):
        model = scripted_model(reply(tool_call("fail")))
        agent = (SimpleAgent, {**REFS, "max_steps": 1})
        async with running(world=World, policy_model=model, agent=agent) as client:
            response = await (await client.post("agent", "/v1/responses", json={"input": "Add."})).json()
        assert response["_ng_cut_off"] == "max_steps"
        assert [crash["tool"] for crash in response["_ng_tool_errors"]] == ["fail"]

    async def test_an_incomplete_reply_ends_the_loop_without_running_its_calls(self):
        cut = reply(tool_call("add", {"amount": 1}), incomplete_details={"reason": "max_output_tokens"})
        result, _ = await run_task(task(), cut)
        assert outputs(result) == []
        assert result["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


class TestTools:
    async def test_calls_of_one_turn_run_in_order(self):
        result, _ = await run_task(
            task(), reply(tool_call("add", {"amount": 1}), tool_call("add", {"amount": 10})), "Done."
        )
        assert outputs(result) == ['{"total":1}', '{"total":11}']

    async def test_calls_may_run_at_once_and_their_outputs_keep_the_order(self):
        result, _ = await run_task(
            task(),
            reply(tool_call("wait_for_other"), tool_call("let_other_go")),
            "Done.",
            tool_calls_in_parallel=True,
        )
        assert outputs(result) == ['"waited"', '"went"']

    @pytest.mark.parametrize("arguments", ["{nope", "[1]", '"text"', "12", "null"])
    async def test_arguments_that_are_no_json_object_reach_the_model_as_an_error(self, arguments):
        world = new_world()
        result, _ = await run_task(task(), reply(tool_call("add", arguments)), "Sorry.", world=world)
        assert json.loads(outputs(result)[0])["error"].startswith("Invalid tool call arguments: ")
        assert "/add" not in world.paths()

    async def test_empty_arguments_are_an_empty_object(self):
        result, _ = await run_task(task(), reply(tool_call("flavour", "")), "Done.")
        assert outputs(result) == ['{"ok":true}']

    async def test_a_tool_that_breaks_or_refuses_tells_the_model_in_its_own_words(self):
        calls = reply(tool_call("fail"), tool_call("refuse"), tool_call("add", {"amount": "many"}))
        result, _ = await run_task(task(), calls, "Sorry.")
        broken, refused, invalid = outputs(result)
        assert "the tool broke" in broken
        assert json.loads(refused) == {"detail": "not today"}
        assert json.loads(invalid)["detail"][0]["loc"] == ["body", "amount"]

    async def test_a_crash_is_in_the_result_with_its_line_of_code_and_a_refusal_is_not(self):
        calls = reply(tool_call("fail"), tool_call("refuse"), tool_call("add", {"amount": "many"}), tool_call("nope"))
        result, _ = await run_task(task(), calls, "Sorry.")
        assert result["reward"] == 1.0
        [crash] = result["_ng_tool_errors"]
        assert (crash["tool"], crash["status"]) == ("fail", 500)
        assert crash["message"].startswith("ZeroDivisionError: the tool broke (in fail, ")

    async def test_a_verifier_that_returns_a_response_of_its_own_does_not_hide_a_crash(self):
        class Forgetful(World):
            async def verify(self, body: WorldVerifyRequest, request: Request) -> WorldVerifyResponse:
                bare = NeMoGymResponse(**{name: getattr(body.response, name) for name in NeMoGymResponse.model_fields})
                return WorldVerifyResponse(**{**dict(body), "response": bare}, total=0, reward=1.0)

        world = Forgetful(**dict(new_world()))
        result, _ = await run_task(task(), reply(tool_call("fail")), "Sorry.", world=world)
        assert len(result["_ng_tool_errors"]) == 1

    async def test_a_rollout_without_a_crash_says_nothing_of_it(self):
        result, _ = await run_task(task(), reply(tool_call("add", {"amount": 1})), "1")
        assert not {"_ng_tool_errors", "_ng_cut_off"} & {*result, *result["response"]}

    @pytest.mark.parametrize("in_parallel", [False, True])
    async def test_a_crash_may_fail_the_rollout_before_the_model_goes_on(self, in_parallel):
        model = scripted_model(reply(tool_call("add", {"amount": 1}), tool_call("fail")), "Never said.")
        config = {**REFS, "tool_errors": "fail", "tool_calls_in_parallel": in_parallel}
        async with running(world=World, policy_model=model, agent=(SimpleAgent, config)) as client:
            response = await client.post("agent", "/run", json=task())
        failure = json.loads(response.headers["x-nemo-gym-failure"])
        assert (failure["kind"], failure["boundary"], failure["retryable"]) == ("tool_crashed", "/fail", False)
        assert "'fail' answered 500: ZeroDivisionError: the tool broke" in failure["message"]
        assert len(model.requests) == 1

    async def test_a_tool_that_is_not_offered_is_not_called_and_the_model_learns_which_are(self):
        world = new_world()
        row = task(params={"tools": [ADD]})
        result, _ = await run_task(row, reply(tool_call("flavour")), "Sorry.", world=world)
        assert json.loads(outputs(result)[0]) == {"error": "Unknown tool 'flavour'. Available tools: add"}
        assert world.paths() == ["/seed_session", "/verify"]

    @pytest.mark.parametrize(
        "name",
        sorted(RESERVED_TOOL_NAMES | {"", ".", "..", "../verify", "x/../verify", "/verify", "verify?x=1"} | ODD_NAMES),
    )
    async def test_a_tool_name_reaches_no_other_endpoint(self, name):
        world = new_world()
        result, _ = await run_task(task(), reply(tool_call(name, {"start": 99})), "Sorry.", world=world)
        assert json.loads(outputs(result)[0])["error"].startswith("Unknown tool ")
        assert world.paths() == ["/seed_session", "/verify"]

    async def test_a_reserved_name_that_the_task_offers_is_a_tool(self):
        class Notary(World):
            def setup_webserver(self) -> FastAPI:
                app = super().setup_webserver()
                app.post("/mcp")(self.let_other_go)
                return app

        row = task(params={"tools": [{**ADD, "name": "mcp"}]})
        model = scripted_model(reply(tool_call("mcp")), "Done.")
        async with running(world=Notary, policy_model=model, agent=(SimpleAgent, REFS)) as client:
            response = await client.post("agent", "/run", json=row)
            assert outputs(await response.json()) == ['"went"']

    async def test_an_unknown_tool_of_a_task_without_tools_is_answered_by_the_server(self):
        result, _ = await run_task(task(), reply(tool_call("subtract")), "Sorry.")
        assert json.loads(outputs(result)[0]) == {"detail": "Not Found"}


class TestCookies:
    async def test_cookies_of_tools_are_merged_and_the_models_never_reach_them(self):
        world = new_world()
        calls = reply(tool_call("add", {"amount": 1}), tool_call("flavour"), tool_call("add", {"amount": 1}))
        await run_task(task(), calls, "Done.", world=world)
        seen = dict(world._seen[1:])
        assert set(world._seen[1][1]) == {"World___world"}
        assert set(world._seen[3][1]) == set(seen["/verify"]) == {"World___world", "flavour"}
        assert seen["/verify"]["flavour"] == "vanilla"

    async def test_a_caller_of_responses_gets_both_sets_and_each_server_only_its_own_back(self):
        model_cookies: list[dict[str, str]] = []

        class WatchedModel(ScriptedModel):
            async def responses(  # type: ignore[override]
                self, body: NeMoGymResponseCreateParamsNonStreaming, request: Request
            ) -> NeMoGymResponse:
                model_cookies.append(dict(request.cookies))
                return await ScriptedModel.responses(self, body)

        script = scripted_model(
            reply(tool_call("add", {"amount": 1})), "1", reply(tool_call("add", {"amount": 2})), "3"
        )
        model = WatchedModel(config=script.config, server_client=script.server_client)
        model._replies.extend(script._replies)
        world = new_world()
        body = {"input": "Add."}
        async with running(world=world, policy_model=model, agent=(SimpleAgent, REFS)) as client:
            first = await client.post("agent", "/v1/responses", json=body)
            jar = {name: morsel.value for name, morsel in first.cookies.items()}
            second = await client.post("agent", "/v1/responses", json=body, cookies=jar)
            answer = await second.json()
        assert set(jar) == {"World___world", "WatchedModel___policy_model", "SimpleAgent___agent"}
        assert json.loads(answer["output"][1]["output"]) == {"total": 3}
        assert [set(cookies) for _, cookies in world._seen] == [set(), {"World___world"}]
        assert [set(cookies) for cookies in model_cookies] == [set()] + [{"WatchedModel___policy_model"}] * 3


class TestFailures:
    @pytest.mark.parametrize(
        ("body", "hint"),
        [("<html>502 Bad Gateway</html>", "<html>502"), ("[]", "[]"), ('{"id": "resp_1"}', "created_at"), ("", "JSON")],
    )
    async def test_a_model_reply_that_is_none_names_the_server_and_shows_its_beginning(self, body, hint):
        agent = mocked_agent(answer(body.encode()))
        with pytest.raises(RuntimeError) as caught:
            await agent.responses(MagicMock(cookies={}), Response(), asked())
        assert isinstance(caught.value, InvalidReply)
        assert "'policy_model'" in str(caught.value)
        assert hint in str(caught.value)

    async def test_only_the_beginning_of_a_bad_reply_is_shown(self):
        agent = mocked_agent(answer(b"x" * 10_000))
        with pytest.raises(InvalidReply) as caught:
            await agent.responses(MagicMock(cookies={}), Response(), asked())
        assert caught.value.start == "x" * 200

    async def test_a_reply_in_which_the_model_reports_an_error_is_a_failure(self):
        failed = reply(status="failed", error={"code": "server_error", "message": "overloaded"})
        agent = mocked_agent(answer(failed.model_dump_json().encode()))
        with pytest.raises(InvalidReply, match="overloaded"):
            await agent.responses(MagicMock(cookies={}), Response(), asked())

    @pytest.mark.parametrize("in_parallel", [False, True])
    async def test_a_tool_server_that_is_gone_fails_the_rollout_instead_of_answering_the_model(self, in_parallel):
        calls = reply(tool_call("add", {"amount": 1}), tool_call("add", {"amount": 1}))
        agent = mocked_agent(answer(calls.model_dump_json().encode()), tool_calls_in_parallel=in_parallel)
        model_post = agent.server_client.post

        async def post(server_name: str, **kwargs: Any) -> Any:
            if server_name == "world":
                raise aiohttp.ServerDisconnectedError
            return await model_post(server_name=server_name, **kwargs)

        agent.server_client.post = post
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await agent.responses(MagicMock(cookies={}), Response(), asked())

    async def test_a_verifier_without_a_reward_is_named(self):
        class Careless(World):
            def setup_webserver(self) -> FastAPI:
                app = super().setup_webserver()
                app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") != "/verify"]
                app.post("/verify")(self.let_other_go)
                return app

        async with running(world=Careless, policy_model=scripted_model("Hi."), agent=(SimpleAgent, REFS)) as client:
            response = await client.post("agent", "/run", json=task())
            assert response.status == 500
            assert "'world'" in await response.text()
            assert "/verify" in await response.text()


def answer(body: bytes | str, cookies: Any = None) -> MagicMock:
    """A reply as suites of servers fake it."""
    fake = MagicMock(ok=True, status=200, cookies={} if cookies is None else cookies)
    fake.read = AsyncMock(return_value=body)
    fake.content.read = AsyncMock(return_value=body)
    return fake


def asked(**params: Any) -> NeMoGymResponseCreateParamsNonStreaming:
    return NeMoGymResponseCreateParamsNonStreaming(input=[NeMoGymEasyInputMessage(role="user", content="Hi")], **params)


def mocked_agent(*answers: Any, cls: type[SimpleAgent] = SimpleAgent, **config: Any) -> SimpleAgent:
    agent = cls(
        config=SimpleAgentConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            name="agent",
            resources_server=ResourcesServerRef(type="resources_servers", name="world"),
            model_server=ModelServerRef(type="responses_api_models", name="policy_model"),
            **config,
        ),
        server_client=MagicMock(spec=ServerClient),
    )
    agent.server_client.post = AsyncMock(side_effect=answers)
    return agent


class TestWithMocks:
    def test_the_model_is_asked_with_the_request_as_it_came(self):
        agent = mocked_agent(answer(reply("Hi.").model_dump_json(), cookies=MagicMock()))
        response = TestClient(agent.setup_webserver()).post(
            "/v1/responses", json={"input": [{"role": "user", "content": "Hi"}]}
        )
        assert response.status_code == 200
        agent.server_client.post.assert_called_once_with(
            server_name="policy_model", url_path="/v1/responses", json=asked(), cookies=None
        )

    async def test_requests_of_earlier_turns_stay_as_they_were(self):
        agent = mocked_agent(
            answer(reply(tool_call("add")).model_dump_json()), answer(b"{}"), answer(reply("Hi.").model_dump_json())
        )
        await agent.responses(request=MagicMock(cookies={}), response=Response(), body=asked())
        sizes = [len(call.kwargs["json"].input) for call in agent.server_client.post.call_args_list[::2]]
        assert sizes == [1, 3]

    async def test_run_posts_to_the_resources_server_only_when_responses_is_overridden(self):
        class Parrot(SimpleAgent):
            async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:  # type: ignore[override]
                return reply("Polly.")

        verified = {"responses_create_params": {"input": "Hi"}, "response": reply("Polly.").model_dump(), "reward": 1.0}
        agent = mocked_agent(answer(b"{}", {"sid": "1"}), answer(json.dumps(verified)), cls=Parrot)
        body = SimpleAgentRunRequest(responses_create_params=asked(), colour="green")
        result = await agent.run(MagicMock(cookies={}), body)
        assert result.reward == 1.0
        seed, verify = agent.server_client.post.call_args_list
        assert (seed.kwargs["url_path"], verify.kwargs["url_path"]) == ("/seed_session", "/verify")
        assert seed.kwargs["json"]["colour"] == "green"
        assert verify.kwargs["json"]["response"]["output"][0]["type"] == "message"
        assert verify.kwargs["cookies"] == {"sid": "1"}

    async def test_an_overriding_agent_gets_the_session_cookies_and_may_set_more(self):
        class Baker(SimpleAgent):
            async def responses(  # type: ignore[override]
                self, response: Response, request: Request, body: NeMoGymResponseCreateParamsNonStreaming
            ) -> NeMoGymResponse:
                assert request.cookies == {"sid": "1"}
                assert self.url_path_for_request("/v1/responses", request) == "/v1/responses"
                response.set_cookie("cake", "yes")
                response.set_cookie("ScriptedModel___policy_model", "secret")
                return reply("Cake.")

        seeded = answer(b"{}", SimpleCookie({"sid": "1"}))
        verified = {"responses_create_params": {"input": "Hi"}, "response": reply("Cake.").model_dump(), "reward": 0}
        agent = mocked_agent(seeded, answer(json.dumps(verified)), cls=Baker)
        await agent.run(MagicMock(cookies={}), SimpleAgentRunRequest(responses_create_params=asked()))
        cookies = agent.server_client.post.call_args.kwargs["cookies"]
        assert set(cookies) == {"sid", "cake"}

    async def test_the_rollout_of_a_captured_run_reaches_the_model_server_in_its_path(self):
        verified = {"responses_create_params": {"input": "Hi"}, "response": reply("Hi.").model_dump(), "reward": 0}
        agent = mocked_agent(answer(b"{}"), answer(reply("Hi.").model_dump_json()), answer(json.dumps(verified)))
        agent.server_client.global_config_dict = {"observability_enabled": True}
        row = {**task(), "_ng_task_index": 3, "_ng_rollout_index": 1}
        await agent.run(MagicMock(cookies={}), SimpleAgentRunRequest.model_validate(row))
        assert agent.server_client.post.call_args_list[1].kwargs["url_path"] == "/ng-rollout/3-1/v1/responses"

    async def test_an_observed_rollout_tells_its_calls_its_tools_and_its_turn(self, tmp_path):
        settings = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
        first = reply(tool_call("add", {"amount": 2}), tool_call("refuse"), tool_call("no/such"))
        model = scripted_model(first, "Two.", "Hi.")
        row = {**task(), "_ng_task_index": 3, "_ng_rollout_index": 1}
        async with running(
            global_config=settings, world=World, policy_model=model, agent=(SimpleAgent, REFS)
        ) as client:
            observed = await (await client.post("agent", "/run", json=row)).json()
            asked_directly = await (
                await client.post("agent", "/ng-rollout/3-2/v1/responses", json={"input": "?"})
            ).json()
        assert "ng_agent_observations" not in observed["response"]
        assert "ng_agent_observations" not in asked_directly
        bundle = AgentObservationBundle.model_validate(observed["ng_agent_observations"])
        invocation, *tools = bundle.records
        assert [ref.response_id for ref in invocation.model_calls] == [first.id, observed["response"]["id"]]
        assert len(invocation.conversation) == 1 + len(observed["response"]["output"])
        assert [(tool.tool_name, tool.status, tool.error_type) for tool in tools] == [
            ("add", "completed", None),
            ("refuse", "failed", "http_403"),
            ("no/such", "failed", "unknown_tool"),
        ]
        assert all(tool.started_at <= tool.completed_at for tool in tools)
        (turn,) = TrajectoryRecord.model_validate(observed["ng_trajectory"]).turns
        assert (turn.task_id, turn.answer, turn.step_count) == ("3", "Two.", 2)


class TestClientScript:
    async def test_it_prints_the_items_of_a_weather_question(self):
        class Weather(World):
            def setup_webserver(self) -> FastAPI:
                app = super().setup_webserver()
                app.post("/get_weather")(self.let_other_go)
                return app

        model = scripted_model(reply(tool_call("get_weather", {"city": "San Francisco"})), "Take a coat.")
        async with running(world=Weather, policy_model=model, agent=(SimpleAgent, REFS)) as client:
            agent = client_script.find_only_agent(client)
            items = await client_script.ask(client, agent, client_script.DEFAULT_QUESTION)
        assert [item["type"] for item in items] == ["function_call", "function_call_output", "message"]
        assert model.requests[0].tools[0]["name"] == "get_weather"

    async def test_it_does_not_choose_among_several_agents_but_lists_them(self, monkeypatch, capsys):
        agents = dict.fromkeys(("one", "two"), (SimpleAgent, REFS))
        async with running(world=World, policy_model=scripted_model("Hi."), **agents) as client:
            monkeypatch.setattr(ServerClient, "load_from_global_config", lambda: client)
            monkeypatch.setattr(sys, "argv", ["client.py"])
            assert client_script.main() == 1
            said = capsys.readouterr().err
            assert "2 agents run:\n  one\n  two\n" in said
            assert "`--agent one`" in said
            monkeypatch.setattr(sys, "argv", ["client.py", "--agent", "tow"])
            assert await asyncio.to_thread(client_script.main) == 1
            assert "there is no server 'tow' in the config. Did you mean 'two'?" in capsys.readouterr().err

    async def test_among_several_it_takes_the_one_called_simple_agent(self):
        agents = dict.fromkeys(("simple_weather_simple_agent", "simple_agent"), (SimpleAgent, REFS))
        async with running(world=World, policy_model=scripted_model("Hi."), **agents) as client:
            assert client_script.find_only_agent(client) == "simple_agent"

    async def test_without_an_agent_it_says_so(self):
        async with running(world=World) as client:
            with pytest.raises(UnknownServerError, match="none of the servers that run is an agent"):
                client_script.find_only_agent(client)
