# SPDX-License-Identifier: Apache-2.0
"""Programs as rollouts: what is kept of their calls and their work, and how they fail. All are real processes."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_resources_server import BaseVerifyResponse, SimpleResourcesServer
from responses_api_agents.program_agent.run import PROGRAM_FAULTS
from responses_api_agents.program_agent.tests.played_programs import (
    BROKEN,
    BenchRequest,
    make_row,
    play,
    python_program,
)

REPAIR = "open('calc.py', 'w').write('def add(a, b):\\n    return a + b\\n')"
DIALECTS = {
    "responses": ["ask('/v1/responses', input='Hello', stream={stream})"],
    "chat": [
        "chat('Hello', stream={stream})",
        "chat('Hello', 'A title', 'And now?', stream={stream})",
    ],
    "messages": [
        "ask('/v1/messages', max_tokens=9, stream={stream}, messages=[dict(role='user', content='Hello')])",
        "ask('/v1/messages', max_tokens=9, stream={stream}, messages=[dict(role='user', content='Hello'),"
        " dict(role='assistant', content='A title'), dict(role='user', content='And now?')])",
    ],
}
TOOLS = [{"type": "function", "function": {"name": "sh", "parameters": {"type": "object", "properties": {}}}}]


def texts(items: list) -> list[str]:
    return [item["content"] if isinstance(item["content"], str) else item["content"][0]["text"] for item in items]


# --- what is captured -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_calls_in_any_dialect_become_the_turns_of_the_rollout(dialect, stream):
    calls = [f"print({call.format(stream=stream)})" for call in DIALECTS[dialect]]
    row = await play(**python_program("\n".join([REPAIR, *calls])))
    assert row["reward"] == 1.0
    assert row["model_calls"] == len(calls)
    assert row["branches"] == []
    assert texts(row["response"]["output"]) == ["A title", "And now?", "A title"][: 2 * len(calls) - 1]
    assert row["response"]["usage"]["total_tokens"] == 15 * len(calls)
    assert ("data: " in row["program"]["stdout"]) == stream


async def test_side_calls_are_branches_and_none_is_lost():
    program = f"""
tools = {TOOLS!r}
system = dict(role="system", content="You are the main one.")
chat("Give a title")
first = chat("Work", tools=tools)
for texts in (["Help"], ["Help", "I have nothing to say.", "More"], ["Help", "x", "More", "y", "Even more"]):
    chat(*texts, tools=tools[:0])
chat("Work", "I have nothing to say.", "Go on", tools=tools)
chat("Summary of what was said. Go on", tools=tools)
chat("Summary of what was said. Go on", "I have nothing to say.", "Finish", tools=tools)
"""
    row = await play(**python_program(program))
    # The main line is what the program ended with: after the compaction.
    assert texts(row["responses_create_params"]["input"]) == ["Summary of what was said. Go on"]
    assert len(row["response"]["output"]) == 3
    begun = {texts(branch["responses_create_params"]["input"])[0]: branch["calls"] for branch in row["branches"]}
    assert begun["Give a title"] == [0]
    assert begun["Work"] == [1, 5]
    in_branches = [place for branch in row["branches"] for place in branch["calls"]]
    assert sorted([*in_branches, 6, 7]) == list(range(row["model_calls"])) == list(range(8))
    assert row["response"]["usage"]["total_tokens"] == 8 * 15


async def test_programs_see_the_name_of_the_model_and_count_tokens_without_a_call():
    program = (
        "print(urllib.request.urlopen(os.environ['ROOT'] + '/v1/models').read().decode())\n"
        "print(ask('/v1/messages/count_tokens', messages=[]))\nchat('Hello')"
    )
    row = await play(**python_program(program))
    assert '"id": "policy_model"' in row["program"]["stdout"]
    assert "input_tokens" in row["program"]["stdout"]
    assert row["model_calls"] == 1


async def test_the_log_of_the_program_is_kept_but_no_file_that_it_links_to(tmp_path):
    (tmp_path / "log.jsonl").write_text("secret")
    program = f"""
home = os.environ["HOME"]
os.makedirs(home + "/logs/deep")
open(home + "/logs/deep/session.jsonl", "w").write("what I did")
open(home + "/logs/other.txt", "w").write("not asked for")
os.symlink({str(tmp_path / "log.jsonl")!r}, home + "/logs/linked.jsonl")
os.symlink({str(tmp_path)!r}, home + "/logs/folder")
chat("Hello")
"""
    row = await play(**python_program(program, artifacts=["logs/**/*.jsonl"]))
    assert row["artifacts"] == {"logs/deep/session.jsonl": "what I did"}


# --- the workspace ----------------------------------------------------------------------------------------------------


@pytest.mark.thorough
async def test_a_workspace_comes_as_files_as_a_folder_or_as_a_git_bundle(tmp_path):
    (tmp_path / "calc.py").write_text(BROKEN)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["bundle", "create", "-q", "all", "HEAD"]):
        subprocess.run([*git, *words], check=True)  # noqa: ASYNC221  nothing else runs
    forms = [
        {"files": {"calc.py": BROKEN}},
        {"folder": str(tmp_path)},
        {"git_bundle": str(tmp_path / "all")},
    ]
    for form in forms:
        row = await play(make_row(workspace=form), **python_program(f"print(os.listdir()); {REPAIR}; chat('Hello')"))
        assert row["reward"] == 1.0, form
        assert "+    return a + b" in row["workspace_diff"]
        assert (".git" in row["program"]["stdout"]) == ("files" not in form)


@pytest.mark.parametrize(
    ("workspace", "says"),
    [
        ({"files": {"../up.py": "x"}}, "outside"),
        ({"folder": "/does/not/exist"}, "does not exist"),
        ({"git_bundle": "/does/not/exist"}, "cannot be cloned"),
        ({"files": {"a": {"base64": "!"}}}, "neither text nor base64"),
        ({"file": {}}, "cannot be read"),
    ],
)
async def test_a_workspace_that_cannot_be_made_is_a_failure_with_a_name(workspace, says):
    row = await play(make_row(workspace=workspace), **python_program("chat('Hello')"))
    assert row["_ng_failure_class"] == "workspace_failed"
    assert says in row["_ng_failure_message"]


class KeeperResponse(BaseVerifyResponse):
    """What the verifier was given, and what it has seen."""

    given: dict[str, Any]
    seen: list[str]


class Keeper(SimpleResourcesServer):
    """Says what it was given to verify."""

    async def verify(self, body: BenchRequest) -> KeeperResponse:  # type: ignore[override]
        given = body.model_dump()
        path = Path(given["workspace"]["path"])
        given["seen"] = sorted(str(one.relative_to(path)) for one in path.rglob("*"))  # noqa: ASYNC240
        return KeeperResponse(**given, given=given["workspace"], reward=0.5)


async def test_what_is_handed_to_the_verifier_is_bounded_and_holds_files_only():
    program = """
os.remove("gone.py")
open("new.bin", "wb").write(bytes(range(256)))
open("big.txt", "w").write("x" * 5000)
open("notes.md", "w").write("not asked for")
with open("holes", "wb") as file: file.truncate(900 * 2**20)
os.symlink("/etc/passwd", "out"), os.symlink("new.bin", "within"), os.mkfifo("pipe")
os.makedirs("node_modules/x"); open("node_modules/x/y.js", "w").write("x")
open("__init__.pyc", "w").write("x")
chat("Hello")
"""
    workspace = {"files": {"gone.py": "x = 1\n", "same.py": "y = 2\n"}}
    config = {"max_collected_bytes": 4000, "collect": ["*.py", "*.bin", "*.txt", "holes"], "max_disk_mib": 64}
    row = await play(make_row(workspace=workspace), world=Keeper, **python_program(program, **config))
    assert row["reward"] == 0.5
    given = row["given"]
    assert sorted(given["files"]) == ["new.bin"]
    assert given["deleted"] == ["gone.py"]
    assert given["left_out"] == ["big.txt", "holes", "out", "pipe"]
    assert "-x = 1" in given["diff"]
    assert {"new.bin", "within", "node_modules/x/y.js"} <= set(row["seen"])
    assert not {"out", "pipe", "holes"} & set(row["seen"])


# --- limits and failures ----------------------------------------------------------------------------------------------

FAILURES = {
    "program_missing": ({"command": ["no-such-program"]}, "cannot be run in the sandbox"),
    "program_failed": (
        python_program("chat('Hello'); print('oh no', file=sys.stderr); sys.exit(3)"),
        "exit code 3: oh no",
    ),
    "no_model_call": (python_program("print('I know it already')"), "it printed: I know it already"),
    "time_limit": (python_program("chat('Hello'); time.sleep(600)", time_limit_s=3), "still running after 3 s"),
    "memory_limit": (
        python_program(
            "chat('Hello')\nfor _ in range(6):\n    subprocess.Popen([sys.executable, '-c', 'import time\\n"
            "x = bytearray(60 * 2**20)\\ntime.sleep(600)'])\ntime.sleep(600)",
            memory_mib=200,
        ),
        "200 MiB",
    ),
    "disk_limit": (
        python_program(
            "chat('Hello')\nfor n in range(100): open(str(n), 'wb').write(bytes(2**20)); time.sleep(0.05)\n"
            "time.sleep(600)",
            max_disk_mib=8,
        ),
        "8 MiB",
    ),
    "output_limit": (
        python_program("chat('Hello')\nwhile True: print('x' * 1000)", max_output_bytes=1000),
        "1000 bytes",
    ),
    "out_of_budget": (
        python_program("chat('Hello')\ntry: chat('Again')\nexcept Exception as e: print(e)", max_model_calls=1),
        "1 calls were made, 15 tokens",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_every_failure_has_a_name_and_keeps_what_is_known(name):
    program, says = FAILURES[name]
    row = await play(**{"isolation": "auto", **program})
    if name in PROGRAM_FAULTS:
        assert row["program"]["fault"]["kind"] == name, row
        assert says in row["program"]["fault"]["message"]
        assert row["reward"] == 0.0, "the verifier finds nothing repaired"
    else:
        assert row["_ng_failure_class"] == name, row
        assert says in row["_ng_failure_message"]
    assert row["model_calls"] == (0 if name in ("program_missing", "no_model_call") else 1)
    assert len(row["response"]["output"]) == row["model_calls"]


async def test_a_program_gets_no_more_processes_than_it_may_have():
    program = "chat('Hello')\nfor _ in range(40): subprocess.Popen(['sleep', '600'])\ntime.sleep(600)"
    row = await play(**python_program(program, max_processes=20))
    assert row["program"]["fault"]["kind"] == "process_limit"
    assert "it had more than 20 processes" in row["program"]["fault"]["message"]


@pytest.mark.thorough
async def test_a_budget_of_tokens_ends_a_program_that_does_not_stop_asking():
    program = "while True:\n    try: chat('Hello')\n    except urllib.error.HTTPError as error: print(error.code)"
    row = await play(**python_program(program, max_tokens=30, max_output_bytes=2**20))
    assert row["program"]["fault"]["kind"] == "out_of_budget"
    assert row["model_calls"] == 2
    assert "30 tokens used" in row["program"]["fault"]["message"]


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["", "sys.exit(1)"])
async def test_a_model_that_is_out_of_order_is_not_the_programs_fault(ending):
    program = f"""
try: chat("Hello", tools={TOOLS!r})
except urllib.error.HTTPError as error: print(error.read().decode())
{ending}
"""
    row = await play(model_config={"fails_after": 0}, **python_program(program))
    assert row["_ng_failure_class"] == "model_endpoint"
    assert "400" in row["_ng_failure_message"]
    assert "out of order" in row["program"]["stdout"]


async def test_a_program_that_never_gives_up_on_a_model_that_is_down_is_ended():
    program = f"""
while True:
    try: chat("Hello", tools={TOOLS!r})
    except urllib.error.HTTPError as error: print(error.code, flush=True)
"""
    row = await play(model_config={"fails_after": 0}, **python_program(program))
    assert row["_ng_failure_class"] == "model_endpoint"
    assert row["program"]["seconds"] < 60


async def test_a_call_that_failed_on_the_way_and_was_repeated_does_not_count():
    program = f"""
try: ask("/v1/chat/completions", messages="nonsense")
except urllib.error.HTTPError: pass
{REPAIR}
chat("Hello")
"""
    row = await play(**python_program(program))
    assert row["reward"] == 1.0


async def test_a_package_that_does_not_exist_is_install_failed(tmp_path):
    install = {"npm": [str(tmp_path / "no-such-package")]}
    row = await play(cache_dir=str(tmp_path / "cache"), install=install, **python_program("chat('Hello')"))
    assert row["_ng_failure_class"] == "install_failed"
    assert "hint: check the names and versions" in row["_ng_failure_message"]
    assert not [path for path in (tmp_path / "cache" / "programs").iterdir() if path.is_dir()]


async def test_a_sandbox_that_cannot_be_made_is_sandbox_failed():
    row = await play(read_only_paths=["/no/such/folder"], **python_program("chat('Hello')"))
    assert row["_ng_failure_class"] == "sandbox_failed"


@pytest.mark.thorough
async def test_a_long_prompt_is_read_from_its_file():
    row = make_row("word " * 40_000)
    program = python_program("")
    long = await play(row, **{**program, "command": [*program["command"], "$task"]})
    assert long["_ng_failure_class"] == "prompt_too_long"
    assert "$task_file" in long["_ng_failure_message"]
    read = python_program("print(len(open(sys.argv[1]).read())); chat('Hello')")
    row = await play(row, **{**read, "command": [*read["command"], "$task_file"]})
    assert row["program"]["stdout"] == "200000\n"


async def test_a_program_without_a_sandbox_reaches_its_model_and_its_files():
    row = await play(isolation="none", **python_program(f"{REPAIR}; chat('Hello')"))
    assert row["reward"] == 1.0


async def test_a_deep_folder_for_temporary_files_is_no_obstacle(tmp_path, monkeypatch):
    deep = tmp_path.joinpath(*["a-rather-long-name-of-a-folder"] * 5)
    deep.mkdir(parents=True)
    tmp_path.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    row = await play(**python_program(f"{REPAIR}; chat('Hello')"))
    assert row["reward"] == 1.0, row.get("_ng_failure_message")
    assert list(deep.iterdir()) == []


async def test_the_agent_plays_whole_rollouts_only():
    from nemo_gym.testing import agent_config, running
    from responses_api_agents.program_agent.app import ProgramAgent

    async with running(agent=(ProgramAgent, agent_config("world", command=["true"]))) as client:
        answer = await client.post("agent", "/v1/responses", json={"input": "Hello"})
        assert answer.status == 501
        assert "post a row" in json.dumps(await answer.json())
