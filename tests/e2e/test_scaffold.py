# SPDX-License-Identifier: Apache-2.0
"""From nothing to scored rollouts: in an empty folder, with only the wheel installed, a scaffold is made and used."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.fake_openai import FakeOpenAI, response


async def gym(folder: Path, installed: Path, *words: str) -> str:
    """What a command prints; it has to succeed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nemo_gym.cli.main", *words),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = (text.decode() for text in await process.communicate())
    assert process.returncode == 0, f"gym {' '.join(words)}\n{out}\n{err}"
    return out


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def call(name: str, arguments: dict) -> dict:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": name,
        "arguments": json.dumps(arguments),
        "status": "completed",
    }


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_scaffold_is_made_tested_checked_and_evaluated(installed, tmp_path, unused_tcp_port):
    folder = tmp_path / "empty"
    folder.mkdir()
    made = await gym(folder, installed, "env", "init", "--environment", "my_shop")
    assert "environments/my_shop: 16 files" in made
    assert "19 passed" in await gym(folder, installed, "env", "test", "--resources-server", "my_shop")
    (checked,) = json.loads(await gym(folder, installed, "env", "check", "my_shop", "--json"))
    assert checked["passed"]

    rows = lines_of(folder / "resources_servers/my_shop/data/example.jsonl")
    (item,) = rows[0]["basket"]
    right = [response(call("get_price", {"item": item})), response(f"It is \\boxed{{{rows[0]['expected_total']}}}.")]
    async with FakeOpenAI(*right, default=response("Too much.")) as fake:
        await gym(
            folder,
            installed,
            "eval",
            "run",
            "--environment",
            "my_shop",
            "--model-type",
            "openai_model",
            "--model",
            "fake",
            "--model-url",
            fake.base_url,
            "--model-api-key",
            "sk-none",
            "--concurrency",
            "1",
            "--output",
            "results/my_shop.jsonl",
            f"++head_server.port={unused_tcp_port}",
        )
        assert [tool["name"] for tool in fake.bodies[0]["tools"]] == ["get_price"]
    rollouts = lines_of(folder / "results/my_shop.jsonl")
    assert {rollout["_ng_task_index"]: rollout["reward"] for rollout in rollouts} == {
        0: 1.0,
        1: 0.0,
        2: 0.0,
        3: 0.0,
        4: 0.0,
    }
    (first,) = [rollout for rollout in rollouts if rollout["_ng_task_index"] == 0]
    assert first["answer"] == str(rows[0]["expected_total"])
    assert json.loads(first["response"]["output"][1]["output"])["item"] == item
