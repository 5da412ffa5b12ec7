# SPDX-License-Identifier: Apache-2.0
"""`gym env check` lets a good environment pass and finds what is wrong with a bad one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemo_gym import global_config
from nemo_gym._authoring import contract_checks as contract
from nemo_gym.cli.main import run_command

APP = """
import asyncio, random, time

from fastapi import FastAPI, Request
from pydantic import BaseModel

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
)


class Config(BaseResourcesServerConfig):
    pass


class Task(BaseVerifyRequest):
    expected_answer: str


class Number(BaseModel):
    number: int


class Server(SimpleResourcesServer):
    config: Config
    last: int = 0

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/put")(self.put)
        app.post("/take")(self.take)
        return app

    async def put(self, body: Number) -> Number:
        self.last = body.number
        return body

    async def take(self) -> Number:
        return Number(number=self.last)

    async def verify(self, body: Task) -> BaseVerifyResponse:
        said = grading.assistant_text(body.response)
        right = said == body.expected_answer
        {verify}
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


if __name__ == "__main__":
    Server.run_webserver()
"""
STEPS = """
from nemo_gym import grading
from resources_servers.gymnasium import GymnasiumServer


class Stairs(GymnasiumServer):
    async def reset(self, metadata, session_id):
        self.session_state[session_id] = 0
        return "You stand before the stairs.", {}

    async def step(self, action, metadata, session_id):
        went_up = grading.assistant_text(action) == "up"
        self.session_state[session_id] += went_up
        top = self.session_state[session_id] == 2
        return "Go on.", float(top), top or not went_up, False, {}


if __name__ == "__main__":
    Stairs.run_webserver()
"""
TOOL = {"type": "function", "parameters": {"type": "object", "properties": {}}, "strict": False}
_numbers = iter(range(1000))


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(*tools: str) -> list[dict[str, Any]]:
    offered = {"tools": [{**TOOL, "name": name} for name in tools]} if tools else {}
    return [
        {"responses_create_params": {"input": f"{n} + {n}?", **offered}, "expected_answer": str(2 * n)}
        for n in (1, 2, 3)
    ]


def write_server(
    root: Path,
    verify: str = "reward = float(right)",
    *,
    data: list | str | None = None,
    solution: str = "",
    **config: Any,
) -> str:
    """A server of a name that no other test has used: modules are imported once."""
    name = f"checked_{next(_numbers)}"
    folder = root / "resources_servers" / name
    for part in ("configs", "data"):
        (folder / part).mkdir(parents=True)
    (folder / "app.py").write_text(APP.replace("{verify}", verify))
    (folder / "requirements.txt").write_text("-e nemo-gym[dev] @ ../../\n")
    block = {"entrypoint": "app.py", "domain": "math", **config}
    (folder / "configs" / f"{name}.yaml").write_text(yaml.safe_dump({name: {"resources_servers": {name: block}}}))
    content = data if isinstance(data, str) else "".join(f"{json.dumps(row)}\n" for row in data or rows())
    (folder / "data" / "example.jsonl").write_text(content)
    if solution:
        (folder / "generate_data.py").write_text(f"def solution(row):\n    return {solution}\n")
    return name


def checked(here: Path, name: str, capsys, *words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    code = run_command(["env", "check", name, "--search-dir", str(here), "--json", *words])
    (server,) = json.loads(capsys.readouterr().out)
    assert code == (0 if server["passed"] else 1)
    return code, {one["name"]: (one["status"], one["about"]) for one in server["checks"]}


def failed(here: Path, name: str, capsys, *words: str) -> dict[str, str]:
    _, found = checked(here, name, capsys, *words)
    return {check: about for check, (status, about) in found.items() if status == "failed"}


def test_a_good_server_passes_and_its_answers_are_guessed_from_the_rows(here, capsys):
    code, found = checked(here, write_server(here), capsys)
    assert code == 0
    assert {name for name, (status, _) in found.items() if status in ("passed", "warned")} == {
        "starts",
        "example rows",
        "empty reply",
        "gold answers",
        "deterministic",
        "sessions",
        "odd replies",
        "malformed bodies",
        "event loop",
    }
    assert "'expected_answer'" in found["gold answers"][1]
    assert found["tools"] == ("skipped", "the rows offer no tools")
    assert found["recorded rollouts"][0] == "skipped"


def test_it_is_shown_as_a_list_with_marks(here, capsys):
    assert run_command(["env", "check", write_server(here), "--search-dir", str(here)]) == 0
    out, err = capsys.readouterr()
    assert "✓ gold answers" in out
    assert "– tools" in out
    assert "invalid body" not in err, "what the server says about bad bodies is of no interest"


@pytest.mark.parametrize(
    ("verify", "check", "said"),
    [
        ("reward = 1.0", "empty reply", "rows 1, 2, 3"),
        ("reward = random.random()", "deterministic", "differs the second time"),
        ("reward = 1 / (len(said) if said.strip() else 0)", "empty reply", "status 500"),
        ("reward = float(right) / float('boxed' not in said)", "odd replies", "unclosed brackets"),
        ("self.last += 1; await asyncio.sleep(0.01); self.last -= 1; reward = float(right and not self.last)",
         "sessions", "went differently"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_verifier_is_found(here, capsys, verify, check, said):
    found = failed(here, write_server(here, verify), capsys)
    assert check in found
    assert said in found[check]


@pytest.mark.parametrize("placement", ["inline", "process"])
def test_a_verifier_that_blocks_the_event_loop_is_found_in_either_place(here, capsys, monkeypatch, placement):
    monkeypatch.setattr(contract, "STALL_FAILS_S", 0.15)
    verify = "time.sleep(0.2 * right); reward = float(right)"
    found = failed(here, write_server(here, verify, data=rows()[:1], placement=placement), capsys)
    assert list(found) == ["event loop"]
    assert "blocks the event loop" in found["event loop"]


@pytest.mark.slow
def test_a_crash_is_shown_with_its_traceback(here):
    name = write_server(here, "raise RuntimeError('ouch')")
    command = [sys.executable, "-m", "nemo_gym.cli.main", "env", "check", name]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("RuntimeError: ouch") == 1
    assert "✗ empty reply" in done.stdout


def test_a_body_that_is_not_checked_is_found(here, capsys):
    name = write_server(here)
    app = here / "resources_servers" / name / "app.py"
    app.write_text(
        app.read_text().replace("async def verify(self, body: Task)", "async def verify(self, request: Request)")
        .replace("said = ", "body = Task.model_validate(await request.json()); said = ")
    )  # fmt: skip
    assert "status 500" in failed(here, name, capsys)["malformed bodies"]


def test_a_tool_that_the_server_lacks_is_found(here, capsys):
    assert failed(here, write_server(here, data=rows("put", "push")), capsys)["tools"].startswith(
        "the rows offer push,"
    )


def test_a_server_that_takes_calls_of_any_name_lacks_none(here, capsys):
    name = write_server(here, data=rows("put", "push"))
    app = here / "resources_servers" / name / "app.py"
    app.write_text(app.read_text().replace('app.post("/put")', 'app.post("/{tool}")'))
    assert checked(here, name, capsys)[1]["tools"] == ("skipped", "the server takes calls of any name")


def test_a_server_that_answers_every_question_about_its_routes_itself_is_read_by_its_document(here, capsys):
    name = write_server(here, data=rows("put", "push"))
    app = here / "resources_servers" / name / "app.py"
    own = '@app.options("/{any_path:path}")\n        async def own(any_path: str) -> dict[str, str]: return {}\n'
    app.write_text(app.read_text().replace('app.post("/put")', f'{own}        app.post("/put")'))
    assert failed(here, name, capsys)["tools"] == "the rows offer push, but the server has no such route"


def test_state_that_sessions_share_is_found(here, capsys):
    solution = "[('put', {'number': int(row['expected_answer'])}), ('take', {}), row['expected_answer']]"
    name = write_server(here, data=rows("put", "take"), solution=solution)
    assert list(failed(here, name, capsys)) == ["sessions"]


def test_a_solution_that_is_not_worth_the_full_reward_is_found(here, capsys):
    name = write_server(here, solution="['I do not know']")
    assert "row 1: 0.0" in failed(here, name, capsys)["gold answers"]


def test_a_solution_that_cannot_be_had_is_a_failure_that_says_why(here, capsys):
    name = write_server(here, solution="row['no_such_field']")
    assert "KeyError: 'no_such_field'" in failed(here, name, capsys)["runs"]


def test_cases_of_the_verifier_are_gold_answers_too(here, capsys):
    name = write_server(here, "reward = float(said == 'open sesame')")
    assert "solution(row)" in checked(here, name, capsys)[1]["gold answers"][1]
    request = {**rows()[0], "response": {"output": []}}
    tests = here / "resources_servers" / name / "tests"
    tests.mkdir()
    case = {"name": "silence", "kind": "full_reward", "request": request, "expected_reward": 1.0}
    (tests / "verifier_cases.jsonl").write_text(json.dumps(case))
    assert "case 'silence'" in failed(here, name, capsys)["gold answers"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('{"responses_create_params": {"input": "x"}\n', "example.jsonl:1: not valid JSON"),
        ('{"expected_answer": "x"}\n', "row 1: missing (responses_create_params)"),
        ('{"responses_create_params": {"input": "x", "sed": 1}, "expected_answer": "x"}\n', "sed"),
        ('{"responses_create_params": {"input": "x"}}\n', "expected_answer"),
    ],
)
def test_rows_that_the_server_cannot_use_are_found(here, capsys, data, said):
    assert said in failed(here, write_server(here, data=data), capsys)["example rows"]


def test_rollouts_that_score_otherwise_than_recorded_are_found(here, capsys):
    name = write_server(here)
    folder = here / "resources_servers" / name
    app = (folder / "app.py").read_text()
    stateless = "class Config(BaseResourcesServerConfig):\n    REVERIFY_MODE = ReverifyMode.STATELESS"
    app = app.replace("class Config(BaseResourcesServerConfig):", stateless).replace(
        "SimpleResourcesServer\n)", "ReverifyMode, SimpleResourcesServer\n)"
    )
    (folder / "app.py").write_text(app)
    response = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": []}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    (folder / "data" / "example_rollouts.jsonl").write_text(
        json.dumps({"response": {**response, **more}, "reward": 1.0})
    )
    assert "recorded 1.0, now 0.0" in failed(here, name, capsys)["recorded rollouts"]


def test_an_author_can_waive_a_check_with_a_reason(here, capsys):
    name = write_server(here, "reward = 1.0", checks_waived={"empty_reply": "showing up is what counts"})
    code, found = checked(here, name, capsys)
    assert code == 0
    assert found["empty reply"] == ("skipped", "waived by its config: showing up is what counts")


def test_a_server_that_does_not_start_fails_the_first_check(here, capsys):
    name = write_server(here)
    (here / "resources_servers" / name / "app.py").write_text("raise RuntimeError('no way')\n")
    assert "no way" in failed(here, name, capsys)["starts"]


def test_a_verifier_that_asks_a_model_is_not_judged_without_one(here, capsys):
    name = write_server(here, judge={"type": "responses_api_models", "name": "policy_model"})
    _, found = checked(here, name, capsys)
    assert found["gold answers"][0] == "skipped"
    assert "'policy_model'" in found["gold answers"][1]
    assert found["malformed bodies"][0] == "passed"


@pytest.mark.parametrize(("turns", "wrong"), [("['up', 'up']", []), ("['up', 'down']", ["gold answers"])])
def test_an_environment_that_is_played_step_by_step_is_checked_too(here, capsys, turns, wrong):
    name = write_server(here, solution=turns)
    (here / "resources_servers" / name / "app.py").write_text(STEPS)
    assert list(failed(here, name, capsys)) == wrong


def test_a_name_that_is_not_there_is_a_usage_error(here, capsys):
    assert run_command(["env", "check", "example_multi_stp"]) == 2
    assert "Did you mean 'example_multi_step'?" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        ("resources-server", {"tools", "empty reply", "gold answers", "recorded rollouts"}),
        ("environment", set()),
    ],
)
def test_a_scaffold_keeps_to_the_contract(here, capsys, kind, left_out):
    name = f"checked_{kind.replace('-', '_')}"
    assert run_command(["env", "init", f"--{kind}", name]) == 0
    capsys.readouterr()
    code, found = checked(here, name, capsys)
    assert code == 0
    assert {check for check, (status, _) in found.items() if status not in ("passed", "warned")} == left_out
