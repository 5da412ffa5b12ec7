# SPDX-License-Identifier: Apache-2.0
"""Calculations with an interpreter: the boxed answer is worth 1, and every rollout has its own variables."""

import asyncio
import json

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings, strategies as st

from nemo_gym.openai_utils import NeMoGymFunctionCallOutput, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, asked, build_server, reasoning, reply, running, scripted_model, tool_call
from resources_servers.math_with_code import generate_data
from resources_servers.math_with_code.answers import find_answer, is_same_answer, is_same_value
from resources_servers.math_with_code.app import MathWithCodeResourcesServer
from responses_api_agents.simple_agent.app import SimpleAgent

REFS = agent_config("math_with_code")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client():
    # To use all of the memory that is allowed by default takes seconds.
    config = {"max_memory_mib": 256}
    async with running(math_with_code=(MathWithCodeResourcesServer, config)) as running_client:
        yield running_client


class Rollout:
    """A session with the server, as an agent has it."""

    def __init__(self, client):
        self._client, self._cookies = client, {}

    async def _post(self, path, body):
        answer = await self._client.post("math_with_code", path, json=body, cookies=self._cookies)
        self._cookies.update({name: morsel.value for name, morsel in answer.cookies.items()})
        assert answer.status == 200, await answer.text()
        return await get_response_json(answer)

    async def seeded(self):
        await self._post("/seed_session", {})
        return self

    async def run(self, code):
        return await self._post("/execute_python", {"code": code})

    async def verify(self, response, expected="42"):
        params = asked("?").model_dump(exclude_unset=True)
        body = {
            "responses_create_params": params,
            "response": response.model_dump(),
            "expected_result": expected,
            "x": 1,
        }
        return await self._post("/verify", body)


async def test_the_tool_says_what_code_printed_and_gave(client):
    rollout = await Rollout(client).seeded()
    assert await rollout.run("print('hi')\n6 * 7") == {
        "success": True, "stdout": "hi\n", "stderr": "", "error_message": None, "result": "42",
    }  # fmt: skip


async def test_variables_are_kept_from_call_to_call(client):
    rollout = await Rollout(client).seeded()
    await rollout.run("def double(x): return 2 * x")
    await rollout.run("y = double(4)")
    assert (await rollout.run("y"))["result"] == "8"


async def test_an_error_is_an_answer_and_keeps_the_variables(client):
    rollout = await Rollout(client).seeded()
    await rollout.run("x = 5")
    failed = await rollout.run("x / 0")
    assert (failed["success"], failed["error_message"]) == (False, "ZeroDivisionError: division by zero")
    assert "line 1" in failed["stderr"]
    assert (await rollout.run("x"))["result"] == "5"


async def test_code_that_ends_the_interpreter_is_told_so(client):
    rollout = await Rollout(client).seeded()
    await rollout.run("x = 5")
    ended = await rollout.run("import os; os._exit(3)")
    assert ended["error_message"] == "ended with exit code 3; all variables are gone"
    assert (await rollout.run("x"))["error_message"] == "NameError: name 'x' is not defined"


async def test_code_that_takes_too_long_is_interrupted():
    async with running(math_with_code=(MathWithCodeResourcesServer, {"max_execution_time": 0.3})) as client:
        rollout = await Rollout(client).seeded()
        await rollout.run("x = 5")
        assert (await rollout.run("while True: pass"))["error_message"] == "took too long"
        assert (await rollout.run("x"))["result"] == "5"


async def test_long_output_is_cut(client):
    rollout = await Rollout(client).seeded()
    assert len((await rollout.run("print('x' * 100_000)"))["stdout"]) < 11_000


async def test_rollouts_at_the_same_time_have_their_own_variables(client):
    async def play(number):
        rollout = await Rollout(client).seeded()
        await rollout.run(f"x = {number}")
        await asyncio.sleep(0)
        return (await rollout.run("x"))["result"]

    assert await asyncio.gather(*map(play, range(8))) == [str(number) for number in range(8)]


async def test_calls_of_one_rollout_at_the_same_time_share_its_interpreter(client):
    rollout = await Rollout(client).seeded()
    await asyncio.gather(*(rollout.run(f"x{number} = {number}") for number in range(4)))
    assert (await rollout.run("[x0, x1, x2, x3]"))["result"] == "[0, 1, 2, 3]"


async def test_an_interpreter_ends_with_its_rollout_and_makes_room_for_the_next():
    async with running(math_with_code=(MathWithCodeResourcesServer, {"max_sessions": 1})) as client:
        for _ in range(3):
            rollout = await Rollout(client).seeded()
            assert (await rollout.run("'x' in globals()"))["result"] == "False"
            await rollout.run("x = 1")
            await rollout.verify(reply("\\boxed{42}"))


async def test_an_interpreter_that_is_not_used_makes_room_for_another():
    config = {"max_sessions": 1, "session_idle_secs": 0.2}
    async with running(math_with_code=(MathWithCodeResourcesServer, config)) as client:
        abandoned, waiting = await Rollout(client).seeded(), await Rollout(client).seeded()
        await abandoned.run("x = 1")
        assert (await waiting.run("1 + 1"))["result"] == "2"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True: os.fork()",
        "held = []\nwhile True: held.append(bytearray(10**8))",
        "while True: print('x' * 1000)",
    ],
)
async def test_hostile_code_fails_and_the_server_goes_on(code, client):
    rollout = await Rollout(client).seeded()
    assert (await rollout.run(code))["success"] is False
    assert (await rollout.run("1 + 1"))["result"] == "2"
    assert (await (await Rollout(client).seeded()).run("2 + 2"))["result"] == "4"


@pytest.mark.parametrize(
    "said", ["\\boxed{42}", "It is $\\boxed{42}$.", "\\boxed{1} or \\boxed{42.0}", "\\boxed{ 42 }"]
)
async def test_the_right_box_is_worth_one(said, client):
    result = await (await Rollout(client).seeded()).verify(reply(said))
    assert (result["reward"], result["accuracy"], result["expected_result"]) == (1.0, True, "42")
    assert "x" not in result


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (reply("\\boxed{41}"), "41"),
        (reply("42"), None),
        (reply("\\boxed{42} no, \\boxed{43}"), "43"),
        (reply("\\boxed{}"), None),
        (reply("\\boxed{42} or \\boxed{"), None),
        (reply("\\boxed{42}", "or \\boxed{43}"), "43"),
        (reply("<think>\\boxed{42}</think>"), None),
        (reply("\\boxed{42"), None),
        (reply("<think>\\boxed{42}"), None),
        (reply(), None),
        (reply(""), None),
        (reply(reasoning("\\boxed{42}")), None),
        (reply(tool_call("execute_python", "{not json")), None),
    ],
)
async def test_anything_else_is_worth_nothing(response, answer, client):
    result = await (await Rollout(client).seeded()).verify(response)
    assert (result["reward"], result["extracted_answer"]) == (0.0, answer)


def printed(output: str) -> NeMoGymFunctionCallOutput:
    return NeMoGymFunctionCallOutput(call_id="c", output=output)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (reply("\\boxed{42}", "Done."), "42"),
        (reply("\\boxed{42}", "Or \\boxed{"), "42"),
        (reply("\\boxed{42}", printed('{"stdout": "\\\\boxed{43}"}')), "42"),
        (reply(printed('{"stdout": "\\\\boxed{42}"}'), "Done."), "42"),
        (reply(printed("\\boxed{41}"), printed("\\boxed{42}"), printed("no box")), "42"),
        (reply(printed('{"result": "\\\\boxed{42}"}')), None),
        (reply(printed('["\\\\boxed{42}"]')), "42"),
        (reply("<think>\\boxed{41}</think>", printed("\\boxed{42}")), "42"),
    ],
)
async def test_the_newest_box_of_a_message_counts_and_else_that_of_a_tool_output(response, answer):
    assert find_answer(response) == answer


@pytest.mark.parametrize(
    ("expected", "answer", "is_same"),
    [
        ("32", "32.0", True),
        ("32", "32.", True),
        ("1e3", "1000", True),
        ("100", "100.0000001", True),
        ("1000000", "1000000.5", True),
        ("1000000", "1000001", False),
        ("0.5", "0.500001", False),
        ("3.14159", "3.141592653", True),
        ("0", "0.0000001", True),
        ("\\frac{1}{2}", "0.5", False),
        ("1/2", "0.5", False),
        ("50%", "50\\%", False),
        ("1,000", "1000", False),
        ("(1,2)", "(1, 2)", False),
        ("x + 1", "x+1", False),
        ("True", "true", False),
        ("2", "2\\,", False),
        ("\\(\\frac{333}{1997}\\)", "\\frac{333}{1997}", True),
        ("$7$", "7", True),
        ("$$7$$", "7", False),
        ("\\[x^2\\]", "x^2", False),
        ("\\text{Yes}", "Yes", True),
        ("B", "\\text{B}", True),
        ("a  b", " a b", True),
        ("inf", "inf", True),
        ("nan", "nan", True),
        ("inf", "1e999", False),
    ],
)
async def test_answers_are_the_same_text_or_the_same_number(expected, answer, is_same):
    assert is_same_answer(answer, expected) is is_same


@pytest.mark.parametrize(("expected", "answer"), [("1e-30", "2e-30"), ("1.6e-19", "9.1e-31"), ("1e-7", "0")])
async def test_small_numbers_must_agree_in_their_leading_digits_unless_the_config_says_otherwise(expected, answer):
    assert not is_same_answer(answer, expected)
    assert is_same_answer(expected, expected.replace("e-", "0e-") if "." in expected else expected.replace("e", ".0e"))
    assert is_same_answer(answer, expected, absolute_tolerance=True)


@pytest.mark.parametrize("answer", ["1_0", "\u0661\u0660", "\uff11\uff10"])
async def test_only_plain_digits_are_a_number(answer):
    assert not is_same_answer(answer, "10")


async def test_other_forms_of_a_value_are_accepted_if_the_config_says_so(client):
    said = reply("\\boxed{0.75}")
    assert (await (await Rollout(client).seeded()).verify(said, "\\frac{3}{4}"))["reward"] == 0.0
    async with running(math_with_code=(MathWithCodeResourcesServer, {"symbolic_comparison": True})) as lenient:
        assert (await (await Rollout(lenient).seeded()).verify(said, "\\frac{3}{4}"))["reward"] == 1.0


@pytest.mark.parametrize(
    ("answer", "expected", "is_same"),
    [
        ("1,234,567", "1234567", True),
        ("1{,}234", "1234", True),
        ("$3/4$", "\\frac{3}{4}", True),
        ("\\dfrac{6}{8}", "3/4", True),
        ("0.75", "3/4", True),
        ("0.3333333", "1/3", True),
        ("0.33", "1/3", False),
        ("4.2e1", "42", True),
        ("42.0000001", "42", False),
        ("\u22125", "-5", True),
        ("Yes.", "yes", True),
        ("x = 42", "42", False),
        ("1/0", "1", False),
        ("", "", False),
        ("1e999", "42", False),
        ("9" * 5000, "42", False),
    ],
)
async def test_values_are_compared_in_any_form(answer, expected, is_same):
    assert is_same_value(answer, expected) is is_same


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(st.sampled_from("\\boxed{}/.,0123456789e-+$ frac²٣")) | st.text())
@example(text="\\boxed{" * 20_000)
@example(text="\\boxed{" + "9" * 1_000_000 + "}")
@example(text="\\boxed{1e999999999}")
@example(text="\\boxed{1/0}")
async def test_whatever_a_model_writes_is_scored(text, client):
    assert (await (await Rollout(client).seeded()).verify(reply(text), "1e3/7"))["reward"] in (0.0, 1.0)


async def test_the_agent_plays_every_example_and_its_gold_answer_passes():
    rows = generate_data.rows()
    replies = [turn for row in rows for turn in generate_data.solution(row)]
    servers = {"math_with_code": MathWithCodeResourcesServer, "agent": (SimpleAgent, REFS)}
    async with running(**servers, policy_model=scripted_model(*replies)) as client:
        rollouts = [await get_response_json(await client.post("agent", "/run", json=row)) for row in rows]
    assert [rollout["reward"] for rollout in rollouts] == [1.0] * 5
    for row, rollout in zip(rows, rollouts, strict=True):
        last = [item for item in rollout["response"]["output"] if item["type"] == "function_call_output"][-1]
        assert json.loads(last["output"])["result"].strip("'") == row["expected_result"]


async def test_a_call_without_code_is_refused(client):
    refused = await client.post("math_with_code", "/execute_python", json={"nonsense": 1})
    assert refused.status == 422


async def test_responses_can_be_scored_again_later(client):
    assert await get_response_json(await client.get("math_with_code", "/reverify_mode")) == "stateless"
    build_server(MathWithCodeResourcesServer)


async def test_rows_are_valid_and_different():
    rows = generate_data.all_rows()
    assert len({row["responses_create_params"]["input"][-1]["content"] for row in rows}) == len(rows) == 50
    for row in rows:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])
