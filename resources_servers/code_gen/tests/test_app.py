# SPDX-License-Identifier: Apache-2.0
"""Programs against unit tests: all of them passed is worth 1, anything else 0, and no program does harm."""

import asyncio
import base64
import json
import os
import shutil
import zlib
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings, strategies as st
from pydantic import ValidationError

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, asked, build_server, reasoning, reply, running, scripted_model, tool_call
from resources_servers.code_gen import generate_data
from resources_servers.code_gen.app import CodeGenResourcesServer, CodeGenVerifyRequest
from resources_servers.code_gen.checking import UnitTests, extract_code, is_same_output, is_same_value
from responses_api_agents.simple_agent.app import SimpleAgent

DATA = Path(generate_data.__file__).parent / "data"
SERVER = (CodeGenResourcesServer, {"num_processes": 2, "unit_test_timeout_secs": 5})
REFS = agent_config("code_gen")
DOUBLE = {"inputs": ["1", "2", "3"], "outputs": ["2", "4", "6"]}
ADD = {"inputs": ["1\n2", "[1]\n[2]"], "outputs": ["3", "[1, 2]"], "fn_name": "add"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client():
    async with running(code_gen=SERVER) as running_client:
        yield running_client


def block(code):
    return f"Here it is:\n```python\n{code}\n```\nDone."


async def verified(client, response, tests=None, **row):
    body = {
        "responses_create_params": asked("Double it.").model_dump(exclude_unset=True),
        "response": response.model_dump(),
        "verifier_metadata": {"unit_tests": tests or DOUBLE, **row},
        "undeclared": 1,
    }
    answer = await client.post("code_gen", "/verify", json=body)
    assert answer.status == 200, await answer.text()
    return await get_response_json(answer)


async def scored(client, code, tests=None):
    return await verified(client, reply(block(code)), tests)


async def test_a_program_that_passes_all_tests_is_worth_one(client):
    result = await verified(client, reply(block("print(2 * int(input()))")), difficulty="easy")
    assert (result["reward"], result["result"], result["difficulty"]) == (1.0, [True, True, True], "easy")
    assert result["extracted_model_code"] == "print(2 * int(input()))"
    assert result["extracted_model_output"].startswith("Here it is:")
    assert result["unit_tests_time_taken"] > 0
    assert result["reasoning_format_violation_rate"] == 0.0
    assert result["metadata"] == {}
    assert "undeclared" not in result


@pytest.mark.parametrize("name", ["add", "Solution"])
async def test_a_function_that_passes_all_tests_is_worth_one(name, client):
    code = "def add(a, b): return a + b"
    if name == "Solution":
        code = "class Solution:\n    def add(self, a: int, b: List[int]) -> int: return a + b"
    assert (await scored(client, code, ADD))["reward"] == 1.0


@pytest.mark.parametrize(
    ("code", "result", "message"),
    [
        ("print(2)", [True, False], "Wrong Answer"),
        ("print(0)", [False], "Wrong Answer"),
        ("# nothing", [False], "Wrong Answer"),
        ("n = int(input())\nprint(2 * n if n < 3 else 1 / 0)", [True, True, -4], "Runtime Error: ZeroDivisionError"),
        ("def broken(:", [-4], "Runtime Error: SyntaxError"),
        ("import os\nos._exit(1)", [-4], "Runtime Error: ended with exit code 1"),
        ("bytearray(1 << 45)", [-4], "Runtime Error: used too much memory"),
        ("while True: print('x' * 1000)", [-4], "Runtime Error: wrote too much output"),
    ],
)
async def test_testing_stops_at_the_first_failure_and_says_what_it_was(code, result, message, client):
    scored_result = await scored(client, code)
    assert (scored_result["reward"], scored_result["result"]) == (0.0, result)
    metadata = scored_result["metadata"]
    assert metadata["error_code"] == (result[-1] or -2)
    assert metadata["error_message"].startswith(message)
    failed = len(result) - 1
    assert (metadata["inputs"], metadata["expected"]) == (DOUBLE["inputs"][failed], DOUBLE["outputs"][failed])


async def test_a_wrong_answer_is_shown_beside_the_right_one(client):
    assert (await scored(client, "print(7)"))["metadata"]["output"] == "7\n"
    assert (await scored(client, "def add(a, b): return (a, 7)", ADD))["metadata"]["output"] == "[1, 7]"


async def test_what_is_shown_is_cut_short(client):
    tests = {"inputs": ["x" * 1000], "outputs": ["y" * 1000]}
    metadata = (await scored(client, "print('z' * 1000)", tests))["metadata"]
    assert all(len(metadata[name]) < 400 for name in ("inputs", "expected", "output"))


@pytest.mark.parametrize("last", [99_999, 0])
async def test_long_results_are_compared_to_their_end(last, client):
    numbers = [*range(99_999), last]
    called = {"inputs": ["100000"], "outputs": [json.dumps(numbers)], "fn_name": "count"}
    printed = {"inputs": ["100000"], "outputs": ["\n".join(map(str, numbers))]}
    expected = [bool(last)]
    assert (await scored(client, "def count(n): return list(range(n))", called))["result"] == expected
    assert (await scored(client, "for n in range(int(input())): print(n)", printed))["result"] == expected


async def test_a_program_that_takes_too_long_is_stopped():
    server = (CodeGenResourcesServer, {"num_processes": 1, "unit_test_timeout_secs": 0.3})
    async with running(code_gen=server) as client:
        result = await scored(client, "while True: pass")
        assert (result["reward"], result["result"]) == (0.0, [-3])
        assert result["metadata"]["error_message"].startswith("Time Limit Exceeded")
        assert (await scored(client, "print(2 * int(input()))"))["reward"] == 1.0


@pytest.mark.parametrize(
    "response",
    [
        reply(),
        reply(""),
        reply(reasoning("```\nprint(1)\n```")),
        reply(tool_call("run", "{not json")),
        reply("print(2 * int(input()))"),
        reply("```python\nprint(2 * int(input()))"),
        reply("```print(2 * int(input()))```"),
    ],
)
async def test_no_program_is_worth_nothing(response, client):
    result = await verified(client, response)
    assert (result["reward"], result["extracted_model_code"], result["result"]) == (0.0, None, None)
    assert result["metadata"] is None
    assert result["unit_tests_time_taken"] is None


async def test_the_last_program_counts(client):
    text = f"{block('print(1)')}\nNo, better:\n{block('print(2 * int(input()))')}"
    assert (await verified(client, reply(text)))["reward"] == 1.0


async def test_what_contest_solutions_take_for_granted_is_there(client):
    code = "from __future__ import annotations\nprint(floor(sqrt(pow(2 * int(input()), 2, 10**9))), end='\\n\\n')"
    assert (await scored(client, code))["reward"] == 1.0


async def test_a_function_must_be_there(client):
    metadata = (await scored(client, "print('hello')", ADD))["metadata"]
    assert metadata["error_message"] == "Runtime Error: NameError: the code defines no function 'add'"


@pytest.mark.parametrize("penalty", [0.0, -0.5])
async def test_a_program_beside_misplaced_reasoning_is_worth_what_the_config_says(penalty):
    config = {"num_processes": 1, "reasoning_format_penalty": penalty}
    double = block("print(2 * int(input()))")
    async with running(code_gen=(CodeGenResourcesServer, config)) as client:
        for text in (f"<think>Hm.</think>{double}", f"Hm.</think>{double}", f"<think>{double}", f"{double}<think>"):
            result = await verified(client, reply(text))
            assert (result["reward"], result["reasoning_format_violation_rate"]) == (penalty, 1.0), text
        result = await verified(client, reply("<think>I give up."))
        assert (result["reward"], result["reasoning_format_violation_rate"]) == (0.0, 1.0)


@pytest.mark.parametrize(("thought", "reward"), [("<think>Hm.</think>", 1.0), ("<think>Hm.<think>Aha.</think>", 0.0)])
async def test_a_tag_may_be_in_the_reasoning_once(thought, reward, client):
    said = reply(block("print(2 * int(input()))")).model_dump()
    reasoning = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": thought}]}
    said["output"].insert(0, reasoning)
    assert (await verified(client, NeMoGymResponse.model_validate(said)))["reward"] == reward


@pytest.mark.parametrize("code", ["raise SystemExit(1)", "import sys\nsys.exit('bye')", "exit(3)"])
async def test_a_program_may_end_itself_with_any_code(code, client):
    assert (await scored(client, f"print(2 * int(input()))\n{code}"))["reward"] == 1.0
    assert (await scored(client, code))["reward"] == 0.0


async def test_a_program_that_crashes_after_the_right_output_fails(client):
    assert (await scored(client, "print(2 * int(input()))\nraise ValueError"))["result"] == [-4]


async def test_a_program_may_import_numpy_and_no_other_package(client):
    double = "import numpy\nprint(int(numpy.array([int(input())]).sum() * 2))"
    assert (await scored(client, double))["reward"] == 1.0
    if shutil.which("bwrap"):
        result = await scored(client, "import pydantic")
        assert "ModuleNotFoundError" in result["metadata"]["error_message"]


async def test_packed_tests_are_those_that_were_packed(client):
    packed = base64.b64encode(zlib.compress(json.dumps(DOUBLE).encode())).decode()
    result = await scored(client, "print(2 * int(input()))", {"packed": packed, "fn_name": None})
    assert (result["reward"], result["result"]) == (1.0, [True] * len(DOUBLE["inputs"]))
    for broken in ("%", base64.b64encode(b"no zlib").decode(), base64.b64encode(zlib.compress(b"[]")).decode()):
        with pytest.raises(ValidationError, match="packed unit tests cannot be read"):
            UnitTests.model_validate({"packed": broken})


async def test_a_program_sees_neither_the_answers_nor_the_server(client, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_TEST", "hunter2")
    spy = """
        import gc, os, sys
        seen = [str(o) for o in gc.get_objects() if isinstance(o, dict) and "outputs" in o]
        print(seen, "SECRET_OF_THE_TEST" in os.environ, os.path.exists(%r))
    """ % os.fspath(DATA)  # noqa: UP031  the program has braces of its own
    code = "\n".join(line.strip() for line in spy.strip().splitlines())
    result = await scored(client, code, {"inputs": [""], "outputs": ["[] False False"]})
    assert result["reward"] == 1.0, result["metadata"]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True: os.fork()",
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(-1, signal.SIGKILL)",
        "import socket\nsocket.create_connection(('127.0.0.1', 80))",
        "open('/etc/hostile', 'w')",
        "import os\nos.closerange(0, 100)",
        "import builtins, sys\nbuiltins.print = sys.exit = None\nraise KeyboardInterrupt",
    ],
)
async def test_a_hostile_program_fails_and_the_server_goes_on(code, client):
    hostile = await scored(client, code)
    assert hostile["reward"] == 0.0
    assert hostile["result"][-1] in (False, -3, -4)
    assert (await scored(client, "print(2 * int(input()))"))["reward"] == 1.0


async def test_many_at_a_time_get_their_own_results(client):
    programs = ["print(2 * int(input()))", "print(int(input()) + 1)", "1 / 0"] * 12
    results = await asyncio.gather(*(scored(client, program) for program in programs))
    assert [result["result"] for result in results] == [[True, True, True], [True, False], [-4]] * 12


@pytest.mark.parametrize(
    ("tests", "where"),
    [
        ({"inputs": [], "outputs": []}, "inputs"),
        ({"inputs": ["1"], "outputs": []}, "unit_tests"),
        ({"inputs": ["not json"], "outputs": ["1"], "fn_name": "f"}, "unit_tests"),
        ({"inputs": ["1"], "outputs": ["not json"], "fn_name": "f"}, "unit_tests"),
    ],
)
async def test_a_task_whose_tests_make_no_sense_is_refused(tests, where, client):
    body = {"responses_create_params": {"input": "?"}, "response": reply("x").model_dump()}
    refused = await client.post("code_gen", "/verify", json={**body, "verifier_metadata": {"unit_tests": tests}})
    assert refused.status == 422
    assert where in (await get_response_json(refused))["detail"][0]["loc"]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(st.sampled_from("`\n abc(){}\\boxed<think>/0123456789é\u2028\0")) | st.text())
@example(text="```\n" * 1000)
@example(text="```\n" + "(" * 100_000 + "\n```")
@example(text="```\n" + "x" * 1_000_000 + "\n```")
@example(text="\\boxed{" * 10_000 + "```\nprint(1)\n```")
async def test_whatever_a_model_writes_is_scored(text, client):
    assert (await verified(client, reply(text), {"inputs": ["1"], "outputs": ["2"]}))["reward"] == 0.0


async def test_the_server_can_be_used_without_an_app():
    server = build_server(CodeGenResourcesServer, num_processes=1)
    body = CodeGenVerifyRequest(
        responses_create_params=asked("Double it."),
        response=reply(block("print(2 * int(input()))")),
        verifier_metadata={"unit_tests": DOUBLE},
    )
    assert (await server.verify(body)).reward == 1.0
    await server._pool.aclose()


async def test_the_agent_plays_the_rows_and_their_gold_answers_pass():
    rows = generate_data.rows()
    model = scripted_model(*(generate_data.solution(row)[0] for row in rows))
    async with running(code_gen=SERVER, agent=(SimpleAgent, REFS), policy_model=model) as client:
        rollouts = [await get_response_json(await client.post("agent", "/run", json=row)) for row in rows]
    assert [rollout["reward"] for rollout in rollouts] == [1.0] * 5


async def test_the_gold_answer_of_every_row_passes(client):
    rows = generate_data.all_rows()
    said = [reply(generate_data.solution(row)[0]) for row in rows]
    results = await asyncio.gather(
        *(verified(client, one, row["verifier_metadata"]["unit_tests"]) for one, row in zip(said, rows, strict=True))
    )
    assert not [result["metadata"] for result in results if result["reward"] != 1.0]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```\na\n```", "a"),
        ("```python\na\nb\n```", "a\nb"),
        ("```\na\n```\n```\nb\n```", "b"),
        ("```\na\n```\n```\nb", ""),
        ("  ```py\na\n  ``` \n", "a"),
        ("```\na", None),
        ("", None),
    ],
)
async def test_the_code_is_what_stands_between_the_last_two_fences(text, code):
    assert extract_code(text) == code


@pytest.mark.parametrize(
    ("printed", "expected", "is_same"),
    [
        ("1\n2\n", "1\n2", True),
        (" 1 \n 2 ", "1\n2", True),
        ("1.0 2.50", "1 2.5", True),
        ("1e3", "1000", True),
        ("a  b", "a b", False),
        ("1\n\n2", "1\n2", False),
        ("1 2", "1\n2", False),
        ("0.30000000000000004", "0.3", True),
        ("0.300002", "0.3", False),
        ("1000000.5", "1000000.0", True),
        ("1000000", "1000001", False),
        ("1e-30", "2e-30", False),
        ("9.1e-31", "1.6e-19", False),
        ("0.0000001234", "0.00000012", True),
        ("0.00000012", "0.0000001234", False),
        ("0", "1e-7", False),
        ("1e-7", "0", True),
        ("1_0", "10", False),
        ("\u0661\u0660", "10", False),
        ("-0.0", "0", True),
        ("NaN", "nan", False),
        ("sNaN", "1", False),
        ("1e999999999999999999", "1", False),
        ("", "", True),
        ("YES", "yes", True),
        ("Yes", "NO", False),
        ("YES 1", "yes 1", False),
    ],
)
async def test_outputs_are_compared_line_by_line_and_numbers_as_numbers(printed, expected, is_same):
    assert is_same_output(printed, expected) is is_same


@pytest.mark.parametrize(
    ("value", "expected", "is_same"),
    [
        (3, 3, True),
        (3.0000000001, 3, True),
        ([0.1 + 0.2], [0.3], True),
        ([1, [2, {"a": 1.0}]], [1, [2, {"a": 1}]], True),
        (3.1, 3, False),
        ("2.5", 2.5, True),
        (True, 1.0, True),
        ([1, [2.0000000001]], [1, [2]], False),
        (1e-30, 2e-30, False),
        (9.1e-31, 1.6e-19, False),
        (1e-9, 1.0000001e-9, True),
        (0.0, 1e-9, True),
        ("1_0", 10.0, False),
        ("\u0661\u0660", 10.0, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ("3", 3, False),
        (None, 0.0, False),
        ({"a": 1}, {"b": 1}, False),
        (float("inf"), 10**400, False),
        (True, True, True),
    ],
)
async def test_values_are_compared_with_a_tolerance_for_floats(value, expected, is_same):
    assert is_same_value(value, expected) is is_same


async def test_every_difficulty_has_its_own_mean():
    server = build_server(CodeGenResourcesServer)
    easy, hard = ([{"reward": reward, "difficulty": level}] for level, reward in (("easy", 1.0), ("hard", 0.0)))
    metrics = server.compute_metrics([easy, hard, hard, [{"reward": 1.0, "difficulty": None}], []])
    assert (metrics["mean/reward/easy"], metrics["mean/reward/hard"]) == (1.0, 0.0)
    assert (metrics["easy/pass@1/accuracy"], metrics["hard/pass@1/accuracy"]) == (100.0, 0.0)
    key_metrics = server.get_key_metrics({**metrics, "std/reward": 1})
    assert {"mean/reward/easy", "mean/reward/hard", "pass@1/accuracy"} <= set(key_metrics)
    assert "std/reward" not in key_metrics


async def test_rows_are_valid_and_different():
    rows = generate_data.all_rows()
    assert len({row["hash_id"] for row in rows}) == len(rows) >= 30
    assert {row["verifier_metadata"]["difficulty"] for row in rows[:5]} == {"easy", "medium", "hard"}
    for row in rows:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])
        outputs = row["verifier_metadata"]["unit_tests"]["outputs"]
        assert len(set(outputs)) > 1, "a constant would pass"
