# SPDX-License-Identifier: Apache-2.0
"""Hostile code sent over HTTP to the environments that run it: a failure like any other, after which they go on."""

import json
from concurrent.futures import ThreadPoolExecutor
from http.cookies import SimpleCookie
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from nemo_gym.testing import asked, reply
from tests.isolation.hostile import EVERYWHERE, Attack
from tests.support.small_servers import free_port, start, until

pytestmark = pytest.mark.slow

SENT = (
    "fork bomb that does not give up",
    "memory bomb",
    "one huge allocation",
    "endless output",
    "endless loop",
    "signals ignored",
    "opening a socket",
    "killing whoever can be reached",
    "reading the environment, its own and others'",
    "reading the home folder",
    "writing outside",
)
ATTACKS = [attack for attack in EVERYWHERE if attack.name in SENT]
PATIENCE_S = 300
# Four gigabytes of real memory are what code_gen's programs may use, and more than a test should.
TOO_LARGE_FOR_CODE_GEN = "memory bomb"


@pytest.fixture(scope="module")
def gym(tmp_path_factory):
    """Both environments, as a user starts them."""
    folder, ports = tmp_path_factory.mktemp("gym"), {name: free_port() for name in ("code_gen", "math_with_code")}
    (folder / "replies.yaml").write_text('["unused"]')
    overrides = ["--model-type", "replay_model"]
    overrides += [f"++policy_model.responses_api_models.replay_model.script={folder / 'replies.yaml'}"]
    for name, port in ports.items():
        overrides += [f"++{name}.resources_servers.{name}.port={port}"]
    overrides += ["++code_gen.resources_servers.code_gen.unit_test_timeout_secs=1.5"]
    overrides += ["++math_with_code.resources_servers.math_with_code.max_execution_time=1.5"]
    overrides += ["++math_with_code.resources_servers.math_with_code.max_memory_mib=256"]
    with start(folder, *ports, overrides=overrides, env={"SECRET_OF_THE_TEST": "hunter2"}) as run:
        run.wait_until_ready()
        run.ports = ports
        yield run


def post(port: int, path: str, body: Any, cookie: str = "") -> tuple[Any, str]:
    """The reply, and the cookie that keeps the session."""
    headers = {"Content-Type": "application/json", "Cookie": cookie}
    request = Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=PATIENCE_S) as answer:
        given = SimpleCookie(answer.headers["Set-Cookie"] or cookie)
        return json.loads(answer.read()), "; ".join(f"{name}={morsel.value}" for name, morsel in given.items())


def verified(port: int, program: str, expected: str) -> dict[str, Any]:
    """What `code_gen` says of a program that should print `expected`."""
    body = {
        "responses_create_params": asked("?").model_dump(exclude_unset=True),
        "response": reply(f"```python\n{program}\n```").model_dump(),
        "verifier_metadata": {"unit_tests": {"inputs": [""], "outputs": [expected]}},
    }
    return post(port, "/verify", body)[0]


def all_at_once(action: Any, attacks: list[Attack]) -> dict[str, Any]:
    with ThreadPoolExecutor(len(attacks)) as threads:
        return dict(zip([attack.name for attack in attacks], threads.map(action, attacks), strict=True))


def test_code_gen_scores_hostile_programs_and_goes_on(gym):
    port = gym.ports["code_gen"]
    attacks = [attack for attack in ATTACKS if attack.name != TOO_LARGE_FOR_CODE_GEN]
    scored = all_at_once(lambda attack: verified(port, attack.source, attack.says or "escaped"), attacks)
    # A program with something to say says that it was kept from what it tried.
    contained = {attack.name: float(attack.says is not None) for attack in attacks}
    assert {name: result["reward"] for name, result in scored.items()} == contained, scored
    assert {scored[attack.name]["result"][-1] for attack in attacks if attack.says is None} == {-3, -4}
    assert verified(port, "print(6 * 7)", "42")["reward"] == 1.0


@pytest.mark.thorough
def test_math_with_code_answers_hostile_code_and_goes_on(gym):
    port = gym.ports["math_with_code"]

    def play(attack: Attack) -> tuple[Any, Any]:
        _, cookie = post(port, "/seed_session", {})
        answer, cookie = post(port, "/execute_python", {"code": attack.source}, cookie)
        return answer, post(port, "/execute_python", {"code": "6 * 7"}, cookie)[0]["result"]

    played = all_at_once(play, ATTACKS)
    said = {name: answer["stdout"].strip() if answer["success"] else None for name, (answer, _) in played.items()}
    assert said == {attack.name: attack.says for attack in ATTACKS}, played
    assert {after for _, after in played.values()} == {"42"}


def test_nothing_outlives_the_servers_when_they_are_killed(gym):
    port = gym.ports["math_with_code"]
    post(port, "/execute_python", {"code": "import os\nos.fork()"})
    below = psutil.Process(gym.process.pid).children(recursive=True)
    assert len(below) > 3, "a sandbox, its worker and what the code has forked"
    gym.process.kill()
    until(lambda: not any(is_alive(process) for process in below), "all processes of the servers are gone")


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
