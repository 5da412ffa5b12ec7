# SPDX-License-Identifier: Apache-2.0
"""Runs in which an agent looks synonyms up in `example_multi_step`, with an endpoint of our own that knows the way.

What a task asks of the endpoint is said in its prompt: to solve it, to look up the same word for ever, or to be down.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from nemo_gym import PARENT_DIR
from tests.support.fake_openai import chat, of_json, tool_call

CASES = ("solve", "repeat", "down")
_ROWS = PARENT_DIR / "resources_servers" / "example_multi_step" / "data" / "example.jsonl"
_SERVER = "example_multi_step_resources_server"
# Settings of somebody who has tracing on, and a proxy through which it would have to go.
_TRACING = {"OPENAI_API_KEY": "sk-none", "LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "none"}


@dataclass(frozen=True)
class SynonymRun:
    """What came of the run."""

    rows: Mapping[str, dict[str, Any]]
    """The result of each case, of a failure too."""
    strays: list[bytes]
    """Requests that were meant for somebody outside."""
    output: str


async def play_synonyms(agent: str, folder: Path, *overrides: str) -> SynonymRun:
    """Play every case with the agent of that name, as `gym eval run` does."""
    task = json.loads(_ROWS.read_text().splitlines()[0])
    (folder / "rows.jsonl").write_text("".join(json.dumps(_mark(task, case)) + "\n" for case in CASES))
    strays: list[bytes] = []

    async def note_stray(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        strays.append(await reader.readline())
        writer.close()

    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return await _answer(request, task)

    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    proxy = await asyncio.start_server(note_stray, "127.0.0.1", 0)
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        proxy_url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        through_proxy = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy_url)
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        block = f"{agent}.responses_api_agents.{agent}"
        servers = [
            *("--config", f"responses_api_agents/{agent}/configs/{agent}.yaml"),
            *("--resources-server", "example_multi_step", f"++{block}.resources_server.name={_SERVER}"),
            *("--model-type", "vllm_model", "--model-url", url, "--model-api-key", "none", "--model", "m"),
        ]
        files = ["--input", str(folder / "rows.jsonl"), "--output", str(folder / "out.jsonl")]
        # What installs the packages must reach their registry.
        output = await _run_gym("env", "prefetch", *servers)
        output += await _run_gym(
            *("eval", "run", "--agent", agent, *servers, *files, *overrides),
            **{**_TRACING, **through_proxy, **local},
        )
    finally:
        proxy.close()
        await runner.cleanup()
    told = [folder / "out.jsonl", folder / "out_failures.jsonl"]
    lines = [line for file in told if file.exists() for line in file.read_text().splitlines()]
    return SynonymRun({CASES[row["_ng_task_index"]]: row for row in map(json.loads, lines)}, strays, output)


async def _run_gym(*words: str, **environment: str) -> str:
    """Run a command of the CLI; return all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nemo_gym.cli.main", *words),
        cwd=PARENT_DIR,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    return (await process.communicate())[0].decode()


async def _answer(request: web.Request, task: dict[str, Any]) -> web.Response:
    body = await request.json()
    text = json.dumps(body["messages"])
    case = next(case for case in CASES if f"[{case}]" in text)
    said = sum(message["role"] == "assistant" for message in body["messages"])
    offered = [tool["function"]["name"] for tool in body.get("tools") or []]
    reply = of_json({"error": {"message": "overloaded"}}, 400) if case == "down" else _choose(task, case, said, offered)
    return web.Response(body=reply.body, status=reply.status, content_type=reply.content_type)


def _choose(task: dict[str, Any], case: str, said: int, offered: list[str]) -> Any:
    words, values = task["expected_synonyms"], task["expected_synonym_values"]
    if not offered:
        return chat("I give up.")
    if case == "repeat" or said < len(words):
        return _call("get_synonym_value", {"synonym": words[0 if case == "repeat" else said]}, said)
    if said == len(words):
        return _call("extract_synonym_values", {"synonym_values": values}, said)
    return _call("final_answer", {"answer": "Done."}, said) if "final_answer" in offered else chat("Done.")


def _call(name: str, arguments: dict[str, Any], number: int) -> Any:
    return chat(tool_calls=[tool_call(name, json.dumps(arguments), f"call_{number}")], finish_reason="tool_calls")


def _mark(task: dict[str, Any], case: str) -> dict[str, Any]:
    params = task["responses_create_params"]
    *before, last = params["input"]
    asked = [*before, {**last, "content": f"{last['content']} [{case}]"}]
    return {**task, "responses_create_params": {**params, "input": asked}}
