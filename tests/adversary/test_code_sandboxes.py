# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a sandbox or the machine around it is never held against the program in it."""

import asyncio
import os
import shutil

import pytest

from nemo_gym._isolation import sandbox_workers
from nemo_gym._isolation.inside import watching
from nemo_gym._isolation.inside.zygote import Zygote
from nemo_gym._isolation.sandbox_workers import SandboxWorker
from nemo_gym._transport.failures import HEADER, decode_failure
from nemo_gym.code_execution import CodePool, SandboxLost, SandboxUnavailable
from nemo_gym.testing import asked, reply, running
from resources_servers.code_gen.app import CodeGenResourcesServer
from tests.support.sandbox_processes import SLEEP, kill_the_sandbox

ISOLATIONS = ["bubblewrap", "rlimits"] if shutil.which("bwrap") else ["rlimits"]
ADD = {"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "add"}


def verify_request(program, tests):
    return {
        "responses_create_params": asked("Add.").model_dump(exclude_unset=True),
        "response": reply(f"```python\n{program}\n```").model_dump(),
        "verifier_metadata": {"unit_tests": tests},
    }


@pytest.mark.fault(
    place="Programming task",
    fault="A right function stands above a main guard that reads input.",
    outcome="The function is called, the guard is not entered, and the reward is 1.",
)
@pytest.mark.parametrize("tests", [ADD, {"inputs": ["1\n2"], "outputs": ["3"]}], ids=["call", "stdin"])
async def test_a_main_guard_is_entered_only_where_a_program_reads_its_input(tests):
    program = (
        "def add(a, b):\n    return a + b\n\nif __name__ == '__main__':\n    print(add(int(input()), int(input())))"
    )
    async with running(code_gen=(CodeGenResourcesServer, {"num_processes": 1})) as client:
        answer = await client.post("code_gen", "/verify", json=verify_request(program, tests))
        assert (await answer.json())["reward"] == 1.0


@pytest.mark.fault(
    place="Code sandbox",
    fault="The interpreter lies below a folder that only root can pass.",
    outcome="Modules that nothing has imported yet can be imported all the same.",
)
@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_modules_below_a_closed_folder_can_be_imported(isolation, tmp_path):
    package = tmp_path / "closed" / "packages" / "helpers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from helpers.inner import answer")
    (package / "inner.py").write_text("answer = 42")
    (tmp_path / "closed" / "secret.py").write_text("word = 'hunter2'")
    (tmp_path / "closed").chmod(0o700)
    source = "import difflib, helpers, _lsprof, encodings.cp1251\nprint(helpers.answer)"
    async with CodePool(workers=1, isolation=isolation, import_paths=[str(package.parent)]) as pool:
        result = await pool.run(source)
        assert (result.stdout, result.error) == ("42\n", "")
        if os.geteuid() == 0:
            spy = "import helpers\nprint(open(f'{helpers.__path__[0]}/../../secret.py').read())"
            assert (await pool.run(spy)).error.startswith(("PermissionError", "FileNotFoundError"))


@pytest.mark.fault(
    place="Code sandbox",
    fault="The standard library cannot be imported from inside.",
    outcome="No program runs; `SandboxUnavailable` says which module is missing and what to do.",
)
async def test_a_sandbox_that_cannot_import_is_refused_at_its_start(monkeypatch):
    monkeypatch.setattr(sandbox_workers, "FIRST_PROGRAM", "import no_such_module; print('works')")
    async with CodePool(workers=1) as pool:
        with pytest.raises(SandboxUnavailable, match=r"No module named 'no_such_module'\nhint: install"):
            await pool.run("print(1)")


@pytest.mark.fault(
    place="Code sandbox",
    fault="The sandbox of a program is killed from outside, twice.",
    outcome="`/verify` fails with the cause, so that the rollout is a failure that can be retried, not a reward of 0.",
)
async def test_a_program_that_loses_two_sandboxes_is_a_failure_and_no_zero():
    server = (CodeGenResourcesServer, {"num_processes": 1, "unit_test_timeout_secs": 60})
    async with running(code_gen=server) as client:
        body = verify_request(f"{SLEEP}(60)", {"inputs": [""], "outputs": [""]})
        scoring = asyncio.ensure_future(client.post("code_gen", "/verify", json=body))
        for _ in range(2):
            await kill_the_sandbox()
        answer = await scoring
        failure = decode_failure(answer.headers[HEADER])
        assert (answer.status, failure.kind, failure.retryable) == (500, "verifier", True)
        assert "could not be run to its end" in failure.message
        assert "hint:" in failure.message
        again = await client.post("code_gen", "/verify", json=verify_request("def add(a, b): return a + b", ADD))
        assert (await again.json())["reward"] == 1.0


@pytest.mark.fault(
    place="Code sandbox",
    fault="A sandbox never answers.",
    outcome="The program is run in another one; if that hangs as well it is `SandboxLost`, never a time limit.",
)
async def test_a_sandbox_that_does_not_answer_is_lost(monkeypatch):
    async def hang(*_):
        raise TimeoutError

    async with CodePool(workers=1) as pool:
        await pool.run("")
        monkeypatch.setattr(SandboxWorker, "ask", hang)
        with pytest.raises(SandboxLost, match="did not answer in time"):
            await pool.run("print(1)")


@pytest.mark.fault(
    place="Code sandbox",
    fault="The kernel kills a program because the machine has run out of memory.",
    outcome="The program counts as lost, not as wrong.",
)
async def test_a_program_that_the_kernel_killed_for_memory_is_lost(monkeypatch):
    kills = iter([7, 8, 8, 8])
    monkeypatch.setattr(watching, "count_oom_kills", lambda: next(kills))
    zygote = Zygote(None, None, None, 0)
    monkeypatch.setattr(zygote, "_run", lambda request: {"status": "killed"})
    monkeypatch.setattr(zygote, "_clean", lambda: True)
    assert [zygote.answer({"op": "run"})["is_lost"] for _ in range(2)] == [True, False]

    async def answer_lost(*_):
        return {"is_lost": True}

    async with CodePool(workers=1) as pool:
        await pool.run("")
        monkeypatch.setattr(SandboxWorker, "ask", answer_lost)
        with pytest.raises(SandboxLost, match="out of memory"):
            await pool.run("print(1)")
