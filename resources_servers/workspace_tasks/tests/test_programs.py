# SPDX-License-Identifier: Apache-2.0
"""A program in a workspace of its own repairs a repository, does nothing, cheats, or looks for the hidden tests."""

import json
import os
import sys

import pytest

from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, running, scripted_model
from resources_servers.workspace_tasks import generate_data
from resources_servers.workspace_tasks.app import WorkspaceTasksResourcesServer
from resources_servers.workspace_tasks.tasks import load_tasks
from responses_api_agents.program_agent.app import ProgramAgent

# What its sandbox shows is the interpreter itself, not a virtual environment around it.
PYTHON = os.path.realpath(sys.executable)
# It asks its model what to do, and does it: the answer is a program for the workspace.
PROGRAM = """
import json, sys, urllib.request
url, prompt = sys.argv[1:]
body = json.dumps({"model": "any", "input": prompt}).encode()
request = urllib.request.Request(url + "/responses", body, {"Content-Type": "application/json"})
answer = json.load(urllib.request.urlopen(request))
exec(answer["output"][0]["content"][0]["text"])
"""
SEARCH = """
import os
def read(path):
    try:
        with open(path, "rb") as file: return file.read(1 << 20)
    except OSError: return b""
found = []
for root, folders, names in os.walk("/"):
    if root == "/": folders[:] = [name for name in folders if name not in ("proc", "sys")]
    found += [os.path.join(root, name) for name in names if name in ("hidden_tests.py", "bugs.yaml")]
for pid in filter(str.isdigit, os.listdir("/proc")):
    found += [pid for name in ("cmdline", "environ") if b"workspace_tasks" in read(f"/proc/{pid}/{name}")]
open("found.py", "w").write(f"found = {found}")
"""


async def play(row, told):
    """Return the rollout of a program whose model tells it to run `told`."""
    program = {
        "command": [PYTHON, "-I", "-c", PROGRAM, "$base_url", "$task"],
        "time_limit_s": 60,
    }
    async with running(
        workspace_tasks=(WorkspaceTasksResourcesServer, {"num_processes": 2}),
        agent=(ProgramAgent, agent_config("workspace_tasks", **program)),
        policy_model=scripted_model(told),
    ) as client:
        answer = await client.post("agent", "/run", json=row)
        assert answer.status == 200, await answer.text()
        rollout = await get_response_json(answer)
        assert "_ng_failure_class" not in rollout, rollout["_ng_failure_message"]
        return rollout


@pytest.fixture
def row():
    return generate_data.rows()[0]


def write(files):
    return f"for name, text in {dict(files)!r}.items(): open(name, 'w').write(text)"


async def test_a_program_that_repairs_the_repository_is_worth_one(row):
    rollout = await play(row, write(load_tasks()[row["task_id"]].gold))
    assert (rollout["reward"], rollout["tampering"]) == (1.0, [])
    assert rollout["workspace_diff"].startswith("--- a/")


async def test_a_program_that_does_nothing_is_worth_nothing(row):
    rollout = await play(row, "pass")
    assert (rollout["reward"], rollout["workspace_diff"]) == (0.0, "")
    assert 0 < rollout["fraction_passed"] < 1


async def test_a_program_that_edits_the_tests_is_reported_and_the_hidden_tests_decide(row):
    task = load_tasks()[row["task_id"]]
    test = next(name for name in task.files if name.startswith("tests/test_"))
    rollout = await play(row, write({**task.gold, test: "import unittest\n"}))
    assert (rollout["reward"], rollout["tampering"]) == (1.0, [f"edited_test: {test}"])
    rollout = await play(row, write({test: "import unittest\n"}))
    assert (rollout["reward"], rollout["tampering"]) == (0.0, [f"edited_test: {test}"])


async def test_a_program_finds_neither_the_hidden_tests_nor_the_server(row):
    rollout = await play(row, SEARCH)
    assert "+found = []\n" in rollout["workspace_diff"]
    task = load_tasks()[row["task_id"]]
    kept = json.dumps({name: value for name, value in rollout.items() if name != "failed_tests"})
    assert not any(name in kept for name in task.tests.names)
