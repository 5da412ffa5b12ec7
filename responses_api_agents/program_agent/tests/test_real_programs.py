# SPDX-License-Identifier: Apache-2.0
"""The programs of the presets, as their registries have them, with a model that is a script."""

import base64
import json
from typing import Any

import pytest

from resources_servers.example_mcp_weather.app import ExampleMCPWeatherResourcesServer, describe_weather
from resources_servers.workspace_tasks.app import WorkspaceTasksResourcesServer
from resources_servers.workspace_tasks.generate_data import rows as workspace_rows
from resources_servers.workspace_tasks.tampering import is_test
from resources_servers.workspace_tasks.tasks import load_tasks
from responses_api_agents.program_agent.tests.played_programs import make_row, play, read_preset
from responses_api_models.vllm_model.app import VLLMModel
from tests.support.fake_openai import FakeOpenAI, chat

FIX = "sed -i 's/a - b/a + b/' calc.py"
EDIT = {"old_string": "a - b", "new_string": "a + b"}
FILE = {"file_path": "/workspace/calc.py"}
DONE = "I have repaired it."
ACTS: dict[str, list[Any]] = {
    "codex": [("exec_command", {"cmd": FIX}), DONE],
    "claude_code": [("Read", FILE), ("Edit", {**FILE, **EDIT}), DONE],
    "opencode": [("bash", {"command": FIX, "description": "repair it"}), DONE],
    "qwen_code": [("read_file", FILE), ("edit", {**FILE, **EDIT}), DONE],
    "pi": [("bash", {"command": FIX}), DONE],
    "mini_swe_agent": [
        ("bash", {"command": FIX}),
        ("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),
    ],
}
WITH_MCP = {
    "codex": "mcp__gym__get_weather",
    "claude_code": "mcp__gym__get_weather",
    "opencode": "gym_get_weather",
    "qwen_code": "mcp__gym__get_weather",
}
QUICK = ("codex", "claude_code")
VLLM = {"return_token_id_information": False, "uses_reasoning_parser": False}

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(900)]


def presets(names: Any) -> list[Any]:
    """Return the presets, those in front that take a few seconds once they are installed."""
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.exhaustive]) for name in names]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ACTS)
async def test_a_program_repairs_a_file_with_its_own_tools(name):
    # A prompt may look like an option.
    task = make_row("--help" if name != "pi" else "help")
    row = await play(task, model_config={"acts": ACTS[name]}, **read_preset(name))
    assert row["reward"] == 1.0, row
    assert row["program"]["exit_code"] == 0
    called = [item["name"] for item in row["response"]["output"] if item["type"] == "function_call"]
    assert called == [act[0] for act in ACTS[name] if not isinstance(act, str)]
    in_branches = sum(len(branch["calls"]) for branch in row["branches"])
    assert row["model_calls"] == len(ACTS[name]) + in_branches
    assert row["response"]["usage"]["total_tokens"] == 15 * row["model_calls"]


@pytest.mark.parametrize("name", presets(ACTS))
async def test_a_model_that_does_nothing_gets_no_reward(name):
    acts = ACTS[name][-1:]
    row = await play(model_config={"acts": acts}, **read_preset(name))
    assert "_ng_failure_class" not in row, row
    assert row["reward"] == 0.0
    assert row["model_calls"] >= 1
    assert row["workspace_diff"] == ""


@pytest.mark.parametrize("name", presets(ACTS))
async def test_a_model_that_is_out_of_order_is_not_the_programs_fault(name):
    preset = {**read_preset(name), "time_limit_s": 60}
    row = await play(model_config={"acts": ACTS[name], "fails_after": 1}, **preset)
    assert row["_ng_failure_class"] == "model_endpoint", row
    assert row["model_calls"] >= 1


@pytest.mark.parametrize("name", presets(WITH_MCP))
async def test_tools_of_the_resources_server_reach_the_program_over_mcp(name):
    city = "Lima"
    row = {
        "responses_create_params": {"input": f"How is the weather in {city}?"},
        "verifier_metadata": {"expected_city": city},
    }
    acts = [(WITH_MCP[name], {"city": city}), describe_weather(city)]
    played = await play(row, world=ExampleMCPWeatherResourcesServer, model_config={"acts": acts}, **read_preset(name))
    assert played["reward"] == 1.0, played
    answers = [item["output"] for item in played["response"]["output"] if item["type"] == "function_call_output"]
    assert "sunny" in json.dumps(answers)


@pytest.mark.exhaustive
async def test_codex_ends_its_turn_in_front_of_an_endpoint_that_reports_no_details_of_usage():
    # Codex asks again if it does not understand a reply, and gives up in the end.
    async with FakeOpenAI(default=chat(DONE)) as fake:
        served = {"base_url": fake.base_url, "api_key": "k", "model": "m"}
        row = await play(model=VLLMModel, model_config={**served, **VLLM}, **read_preset("codex"))
    assert "_ng_failure_class" not in row, row
    assert row["model_calls"] == 1
    assert DONE in json.dumps(row["response"]["output"])


# --- the tasks of fix_the_code ----------------------------------------------------------------------------------------

TASK = workspace_rows()[0]
SHELLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "codex": ("exec_command", "cmd", {}),
    "claude_code": ("Bash", "command", {}),
    "opencode": ("bash", "command", {"description": "write files"}),
    "qwen_code": ("run_shell_command", "command", {"is_background": False}),
    "pi": ("bash", "command", {}),
    "mini_swe_agent": ("bash", "command", {}),
}
"""The tool of each program that runs commands, and what it takes."""


def write_by_shell(name: str, files: dict[str, str]) -> list[Any]:
    """Return what a model does that writes files with the shell of a program, and is done."""
    tool, key, further = SHELLS[name]
    coded = {path: base64.b64encode(text.encode()).decode() for path, text in files.items()}
    commands = [f"echo {text} | base64 -d > {path}" for path, text in coded.items()]
    return [(tool, {key: " && ".join(commands), **further}), *ACTS[name][1 if name == "mini_swe_agent" else -1 :]]


async def play_task(name: str, acts: list[Any]) -> dict[str, Any]:
    return await play(
        TASK, world=WorkspaceTasksResourcesServer, model_config={"acts": acts}, **read_preset(name), time_limit_s=120
    )


@pytest.mark.parametrize("name", presets(SHELLS))
async def test_a_task_is_solved_with_the_programs_shell_and_hidden_tests_decide(name):
    gold = load_tasks()[TASK["task_id"]].gold
    row = await play_task(name, write_by_shell(name, gold))
    assert (row["reward"], row["tampering"], row["failed_tests"]) == (1.0, [], {}), row
    assert row["changed_files"] == sorted(gold)


@pytest.mark.parametrize("name", presets(SHELLS))
async def test_a_program_that_edits_the_tests_is_reported_and_the_hidden_tests_decide(name):
    task = load_tasks()[TASK["task_id"]]
    visible = next(path for path in task.files if is_test(path))
    row = await play_task(name, write_by_shell(name, {**task.gold, visible: "import unittest\n"}))
    assert (row["reward"], row["tampering"]) == (1.0, [f"edited_test: {visible}"]), row
