# SPDX-License-Identifier: Apache-2.0
"""Repositories with a bug: what repairs them is worth 1, anything else 0, and nobody talks the tests into anything."""

import base64
import json
from pathlib import Path

import pytest
import pytest_asyncio

from nemo_gym.errors import GymError
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, asked, build_server, reply, running, scripted_model
from resources_servers.workspace_tasks import app, generate_data
from resources_servers.workspace_tasks.app import WorkspaceTasksResourcesServer
from resources_servers.workspace_tasks.tampering import find_tampering
from resources_servers.workspace_tasks.tasks import TaskError, load_tasks
from responses_api_agents.simple_agent.app import SimpleAgent

TASKS = load_tasks()
TASK = TASKS["intervals/lost_end"]
SOURCE = "intervals/sets.py"
TEST = "tests/test_intervals.py"
SERVER = (WorkspaceTasksResourcesServer, {"num_processes": 2})

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client():
    async with running(workspace_tasks=SERVER) as running_client:
        yield running_client


async def post(client, path, body, cookies=None):
    answer = await client.post("workspace_tasks", path, json=body, cookies=cookies)
    assert answer.status == 200, await answer.text()
    return await get_response_json(answer)


async def verified(client, files=None, deleted=(), left_out=(), task=TASK):
    """Return the verdict on a program that has changed `files`."""
    return await post(
        client,
        "/verify",
        {
            "responses_create_params": asked("Repair it.").model_dump(exclude_unset=True),
            "response": reply("Done.").model_dump(),
            "task_id": task.id,
            "workspace": {
                "diff": "",
                "files": files or {},
                "deleted": list(deleted),
                "left_out": list(left_out),
                "path": "/somewhere",
            },
        },
    )


async def test_a_workspace_holds_the_repository_and_nothing_that_gives_it_away(client):
    seeded = await post(client, "/seed_session", {"task_id": TASK.id})
    files = seeded["workspace"]["files"]
    assert files == TASK.files
    assert set(files) == {
        "intervals/__init__.py",
        "intervals/model.py",
        SOURCE,
        "tests/__init__.py",
        TEST,
    }
    text = json.dumps(seeded)
    assert not any(name in text for name in (*TASK.tests.names, "hidden_tests", "bugs.yaml"))
    assert all(gold not in text for gold in TASK.gold.values())


async def test_rows_hold_no_answer():
    for row in generate_data.all_rows():
        task = TASKS[row["task_id"]]
        text = json.dumps(row)
        assert row.keys() == {"responses_create_params", "task_id", "difficulty"}
        assert not any(name in text for name in (*task.tests.names, *task.files))


async def test_the_right_repair_is_worth_one(client):
    result = await verified(client, TASK.gold)
    assert (result["reward"], result["fraction_passed"]) == (1.0, 1.0)
    assert result["tests_passed"] == result["tests_total"] == len(TASK.tests.names)
    assert (result["failed_tests"], result["tampering"]) == ({}, [])
    assert (result["changed_files"], result["difficulty"]) == ([SOURCE], "easy")
    assert "workspace" not in result


async def test_nothing_is_worth_nothing(client):
    result = await verified(client)
    assert result["reward"] == 0.0
    assert list(result["failed_tests"]) == ["test_merge_keeps_the_longer_end"]
    assert "AssertionError" in result["failed_tests"]["test_merge_keeps_the_longer_end"]
    assert result["tampering"] == []


async def test_a_wrong_repair_is_worth_nothing_and_says_how_far_it_came(client):
    wrong = TASK.gold[SOURCE].replace("return subtract([within], intervals)", "return []")
    result = await verified(client, {SOURCE: wrong})
    assert result["reward"] == 0.0
    assert list(result["failed_tests"]) == ["test_gaps"]
    assert result["fraction_passed"] == (result["tests_total"] - 1) / result["tests_total"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def merge(:", "SyntaxError"),
        ("", "cannot import name"),
        ("raise OSError('no')", "OSError"),
        ("while True: pass", "took too long"),
        ("x = [0] * (1 << 40)", "memory"),
    ],
)
async def test_code_that_cannot_be_used_fails_every_test(source, why):
    async with running(workspace_tasks=(WorkspaceTasksResourcesServer, {"test_timeout_s": 0.5})) as client:
        result = await verified(client, {SOURCE: source})
    assert (result["reward"], result["tests_passed"]) == (0.0, 0)
    assert result["tampering"] == []
    assert all(why in one for one in result["failed_tests"].values())


async def test_new_modules_and_new_tests_are_welcome(client):
    moved = {
        SOURCE: "from intervals.merging import *\nfrom intervals.merging import merge, subtract, gaps, total\n",
        "intervals/merging.py": TASK.gold[SOURCE],
        "tests/test_more.py": "assert False",
        "README.md": "What it is for.",
        "notes.txt": "merge() kept the wrong end",
    }
    result = await verified(client, moved)
    assert (result["reward"], result["tampering"]) == (1.0, [])


async def test_a_file_may_come_as_bytes(client):
    encoded = {"base64": base64.b64encode(TASK.gold[SOURCE].encode()).decode()}
    assert (await verified(client, {SOURCE: encoded}))["reward"] == 1.0


async def test_a_deleted_source_is_missed(client):
    result = await verified(client, TASK.gold, deleted=["intervals/model.py"])
    assert (result["reward"], result["tests_passed"]) == (0.0, 0)


@pytest.mark.parametrize("path", ["/seed_session", "/verify"])
async def test_an_unknown_task_is_refused_with_what_to_do(path, client):
    body = {"task_id": "intervals/none", "workspace": {}, "responses_create_params": {"input": "x"}}
    answer = await client.post("workspace_tasks", path, json={**body, "response": reply("x").model_dump()})
    assert answer.status == 422
    assert "no task 'intervals/none'" in await answer.text()


# --- attempts to deceive the tests ------------------------------------------------------------------------------------

GOOD = TASK.gold
ALWAYS_EQUAL = """
class Yes(list):
    def __eq__(self, other): return True
    def __hash__(self): return 0
    __ne__ = lambda self, other: False
    __len__ = lambda self: 0
def merge(intervals): return Yes()
def subtract(intervals, removed): return Yes()
def gaps(intervals, within): return Yes()
def total(intervals): return Yes()
"""
PATCH_ASSERTIONS = """
import builtins
class AssertionError(Exception): pass
builtins.AssertionError = AssertionError
builtins.sorted = lambda *a, **k: []
"""
FORGE_REPORTS = """
import os
for fd in range(3, 64):
    try: os.write(fd, b'{"key": "x", "nonce": "x", "value": "null"}\\n')
    except OSError: pass
"""


GUARD = "\n\nif __name__ == '__main__':\n    import doctest\n\n    doctest.testmod()\n"


@pytest.mark.parametrize(
    ("files", "reported"),
    [
        ({"tests/test_regression.py": "import unittest\n"}, set()),
        ({"test_fix.py": "from intervals.sets import merge\nassert merge([]) == []\n"}, set()),
        ({"conftest.py": "import sys\n"}, {"test_config"}),
        ({"tests/conftest.py": ""}, {"test_config"}),
        ({"pytest.ini": "[pytest]\naddopts = --co"}, {"test_config"}),
        ({"setup.cfg": "[tool:pytest]\naddopts = --co"}, {"test_config"}),
        ({"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-q'"}, {"test_config"}),
        ({"report.txt": "merge() kept the wrong end"}, {"planted_result"}),
        ({"results.json": '{"passed": 99}'}, {"planted_result"}),
        ({"out/junit.xml": "<testsuite failures='0'/>"}, {"planted_result"}),
        ({"reward.txt": "1.0"}, {"planted_result"}),
        ({SOURCE: GOOD[SOURCE] + GUARD}, {"patched_test_runner"}),
        ({SOURCE: f"import unittest\nunittest.main = print\n{GOOD[SOURCE]}"}, {"patched_test_runner"}),
        ({SOURCE: f"{GOOD[SOURCE]}\nprint('OK')\n"}, {"fake_results"}),
        ({SOURCE: f"{GOOD[SOURCE]}\nprint('Ran 12 tests in 0.001s\\n\\nOK')\n"}, {"fake_results"}),
        ({TEST: "import unittest\n"}, {"edited_test"}),
        ({"tests/__init__.py": "raise SystemExit(0)"}, {"edited_test"}),
    ],
)
async def test_a_right_fix_keeps_its_reward_beside_files_that_decide_nothing(files, reported, client):
    result = await verified(client, {**GOOD, **files})
    assert result["reward"] == 1.0, result["failed_tests"]
    assert {one.partition(":")[0] for one in result["tampering"]} == reported


@pytest.mark.parametrize(
    "files",
    [
        {"conftest.py": "collect_ignore = ['tests']"},
        {"tests/test_intervals.py": ""},
        {"pytest.ini": "[pytest]\naddopts = --co"},
        {"results.json": '{"passed": 99}'},
        {"intervals/extra.py": "print('Ran 12 tests in 0.001s\\n\\nOK')\n"},
    ],
)
async def test_files_that_decide_nothing_earn_nothing_without_a_fix(files, client):
    assert (await verified(client, files))["reward"] == 0.0


async def test_deleted_tests_are_reported_and_decide_nothing(client):
    result = await verified(client, GOOD, (TEST,))
    assert (result["reward"], result["tampering"]) == (1.0, [f"deleted_test: {TEST}"])


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("startup_code", {**GOOD, "sitecustomize.py": "import os; os.environ['X'] = '1'"}),
        ("startup_code", {**GOOD, "usercustomize.py": ""}),
        ("startup_code", {**GOOD, "sitecustomize/__init__.py": ""}),
        ("startup_code", {**GOOD, "lib/evil.pth": "import os"}),
        ("shadowed_module", {**GOOD, "pytest.py": "def main(*a): return 0"}),
        ("shadowed_module", {**GOOD, "unittest/__init__.py": ""}),
        ("shadowed_module", {**GOOD, "json.py": "def loads(t): return None"}),
        ("ended_process", {SOURCE: f"import os\nos._exit(0)\n{GOOD[SOURCE]}"}),
        ("ended_process", {SOURCE: f"import sys\nsys.exit(0)\n{GOOD[SOURCE]}"}),
        ("ended_process", {SOURCE: f"import os\nleave = getattr(os, '_ex' + 'it')\nleave(0)\n{GOOD[SOURCE]}"}),
        ("ended_process", {SOURCE: f"{GOOD[SOURCE]}\ndef total(intervals): raise SystemExit\n"}),
        ("inspected_test_runner", {SOURCE: f"{GOOD[SOURCE]}\nimport sys\nframe = sys._getframe(0)\n"}),
        ("inspected_test_runner", {SOURCE: f"{GOOD[SOURCE]}\nimport gc\n"}),
        ("oversized_file", {SOURCE: GOOD[SOURCE] + "#" * 200_000}),
    ],
)
async def test_tampering_that_could_decide_a_test_is_worth_nothing_and_named(name, files, client):
    result = await verified(client, files)
    assert result["reward"] == 0.0
    assert name in {one.partition(":")[0] for one in result["tampering"]}


KILL_ALL = "import os\ngetattr(os, 'ki' + 'll')(-1, 9)"
CLOSE_ALL = "import os\nos.closerange(0, 256)"
FORK_AND_STAY = """
import os, time
while os.fork() == 0: time.sleep(0.01)
"""
FLOOD = "print('= 1 passed ' * 100_000)"


@pytest.mark.parametrize(
    "source", [ALWAYS_EQUAL, PATCH_ASSERTIONS, FORGE_REPORTS, KILL_ALL, CLOSE_ALL, FORK_AND_STAY, FLOOD]
)
async def test_tests_do_not_believe_the_code_that_they_test(source, client):
    broken = TASK.files[SOURCE] if "def merge" not in source else ""
    result = await verified(client, {SOURCE: f"{broken}\n{source}"})
    assert result["reward"] == 0.0
    assert result["tests_passed"] < result["tests_total"]
    assert "test_merge_keeps_the_longer_end" in result["failed_tests"]


SPY = """
import glob, os, sys
def total(intervals):
    seen = []
    for root, _, names in os.walk("/"):
        seen += [os.path.join(root, name) for name in names if name in ("hidden_tests.py", "bugs.yaml")]
    for path in glob.glob("/proc/[0-9]*/*"):
        try:
            if b"test_total_counts_shared" in open(path, "rb").read(1 << 20): seen.append(path)
        except OSError: pass
    raise ValueError(str(seen))
"""


async def test_the_code_under_test_finds_no_hidden_test(client):
    result = await verified(client, {SOURCE: f"{GOOD[SOURCE]}\n{SPY}"})
    assert result["failed_tests"]["test_total_counts_shared_numbers_once"].endswith("ValueError: []")


async def test_sources_without_a_bottom_are_inspected(client):
    chain = f"{GOOD[SOURCE]}\ndef unused(x): return x{'.y' * 5000}{'(' * 300}{')' * 300}\n"
    assert (await verified(client, {SOURCE: chain}))["tampering"] == []


async def test_a_file_that_was_too_large_to_be_handed_over_is_named():
    assert find_tampering(TASK.files, {}, (), [SOURCE, "video.mp4"]) == [f"oversized_file: {SOURCE}"]


# --- tools, agents, tasks ---------------------------------------------------------------------------------------------


async def test_a_model_repairs_a_repository_with_the_tools():
    row = generate_data.rows()[0]
    agent = (SimpleAgent, agent_config("workspace_tasks"))
    model = scripted_model(*generate_data.solution(row))
    async with running(workspace_tasks=SERVER, agent=agent, policy_model=model) as client:
        answer = await client.post("agent", "/run", json=row)
        result = await get_response_json(answer)
    assert (result["reward"], result["task_id"]) == (1.0, row["task_id"])


async def test_tools_keep_to_the_workspace_of_their_session(client):
    seeded = await client.post("workspace_tasks", "/seed_session", json={"task_id": TASK.id})
    cookies = seeded.cookies
    assert (await post(client, "/list_files", {}, cookies))["files"] == sorted(TASK.files)
    assert "no file" in (await post(client, "/read_file", {"path": "../app.py"}, cookies))["error"]
    for path in ("/etc/passwd", "../x.py", "a//b", ""):
        assert "error" in await post(client, "/write_file", {"path": path, "content": "x"}, cookies)
    assert await post(client, "/write_file", {"path": "a.py", "content": "x = 1"}, cookies) == {"written": 5}
    assert await post(client, "/read_file", {"path": "a.py"}, cookies) == {"content": "x = 1"}
    too_long = {"path": "a.py", "content": "x" * (app.MAX_SOURCE_CHARS + 1)}
    assert "error" in await post(client, "/write_file", too_long, cookies)


async def test_there_are_enough_tasks_of_every_difficulty():
    counts = {one: sum(task.difficulty == one for task in TASKS.values()) for one in generate_data.DIFFICULTIES}
    assert min(counts.values()) >= 8
    assert len({row["task_id"] for row in generate_data.all_rows()}) == len(TASKS) == sum(counts.values())


async def test_hard_bugs_are_in_two_files():
    assert all(len(task.gold) >= 2 for task in TASKS.values() if task.difficulty == "hard")


async def test_hidden_tests_tell_a_bug_of_each_repository_from_the_gold_answer():
    first = {task.id.split("/")[0]: task for task in reversed(TASKS.values())}
    assert await generate_data.find_flaws(list(first.values())) == []


@pytest.mark.exhaustive
async def test_hidden_tests_tell_every_bug_from_the_gold_answer():
    assert await generate_data.find_flaws(list(TASKS.values())) == []


async def test_a_folder_without_tasks_and_a_bug_that_fits_nowhere_are_refused(tmp_path):
    with pytest.raises(TaskError, match="no tasks in"):
        load_tasks(tmp_path)
    (tmp_path / "one" / "repo").mkdir(parents=True)
    (tmp_path / "one" / "repo" / "a.py").write_text("x = 1\n")
    (tmp_path / "one" / "hidden_tests.py").write_text("from a import x\n\ndef test_x():\n    assert x == 1\n")
    bug = {"name": "b", "difficulty": "easy", "report": "r", "changes": {"a.py": [["y", "z"]]}}
    (tmp_path / "one" / "bugs.yaml").write_text(json.dumps([bug]))
    with pytest.raises(TaskError, match=r"replaces text that is not in 'a.py' exactly once: 'y'"):
        load_tasks(tmp_path)


async def test_tasks_of_ones_own_can_be_played(tmp_path):
    (tmp_path / "one" / "repo").mkdir(parents=True)
    (tmp_path / "one" / "repo" / "a.py").write_text("def f():\n    return 1\n")
    (tmp_path / "one" / "hidden_tests.py").write_text("from a import f\n\ndef test_f():\n    assert f() == 1\n")
    bug = {"name": "b", "difficulty": "easy", "report": "r", "changes": {"a.py": [["1", "2"]]}}
    (tmp_path / "one" / "bugs.yaml").write_text(json.dumps([bug]))
    task = load_tasks(tmp_path)["one/b"]
    async with running(workspace_tasks=(WorkspaceTasksResourcesServer, {"tasks_folder": str(tmp_path)})) as client:
        assert (await verified(client, task=task))["reward"] == 0.0
        assert (await verified(client, task.gold, task=task))["reward"] == 1.0


async def test_hidden_tests_that_every_sandbox_shows_are_refused(monkeypatch):
    monkeypatch.setattr(app.sys, "base_prefix", str(Path(app.__file__).parent))
    with pytest.raises(GymError, match=r"the hidden tests are in .*\n.*virtual environment"):
        build_server(WorkspaceTasksResourcesServer)


async def test_metrics_tell_difficulties_and_tampering_apart():
    server = build_server(WorkspaceTasksResourcesServer)
    rollouts = [
        {"reward": 1.0, "difficulty": "easy", "tampering": []},
        {"reward": 0.0, "difficulty": "hard", "tampering": ["edited_test: t.py"]},
    ]
    metrics = server.compute_metrics([[rollout] for rollout in rollouts])
    assert metrics["tampered_rollouts"] == 1
    assert (metrics["mean/reward/easy"], metrics["mean/reward/hard"]) == (1.0, 0.0)
