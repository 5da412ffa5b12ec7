# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of the model in this process: through our server, beside llama.cpp's own call in the same wheel.

Both generate with the same loaded model, slots and prompts, in turns, so that whatever else the machine does falls on
both. Ours is all of it: the request as a rollout sends it, template, queue, generation, and the reply in its types.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvloop

from nemo_gym._bench.report import Row
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from nemo_gym.testing import build_server, running
from responses_api_models.local_model.app import LocalModel
from responses_api_models.local_model.engine import Engine

_SLOTS = (1, 4, 8)
_TOKENS = 32
_REQUESTS = 8
_ROUNDS = 4

_EXTRA = {"temperature": 0.7, "top_p": 0.95, "top_k": 40, "min_p": 0.0, "seed": 1, "ignore_eos": True}
_BOUND = 1 / 0.9


def run() -> list[Row]:
    """The load of the model, and tokens per second with 1, 4 and 8 slots."""
    return [row for slots in _SLOTS for row in uvloop.run(_run(slots))]


async def _run(slots: int) -> list[Row]:
    server = build_server(LocalModel, slots=slots, context_length=512)
    begin = time.perf_counter()
    async with running(policy_model=server) as client:
        engine = await server._wait_for_engine()
        loaded_s = time.perf_counter() - begin
        with ThreadPoolExecutor(slots) as threads:
            rates: dict[str, list[float]] = {"ours": [], "own": []}
            for number in range(_ROUNDS + 1):
                own = await asyncio.to_thread(_own, engine, threads, _prompts(2 * number))
                ours = await _ours(client, _prompts(2 * number + 1))
                if number:  # the first round warms up
                    rates["own"].append(own)
                    rates["ours"].append(ours)
        await close_global_aiohttp_client()
    ratio = statistics.median(own / ours for own, ours in zip(rates["own"], rates["ours"], strict=True))
    name = f"{slots} slot{'s' if slots > 1 else ''}"
    return [
        Row(f"local model, {name}: llama.cpp's own call", statistics.median(rates["own"]), "tokens/s"),
        Row(f"local model, {name}: through the server", statistics.median(rates["ours"]), "tokens/s"),
        Row(f"local model, {name}: llama.cpp's own call", ratio, "x the server", _BOUND),
        Row(f"local model, {name}: start of the server to a loaded model", 1000 * loaded_s, "ms"),
    ]


def _prompts(number: int) -> list[str]:
    """Prompts of equal length that were not asked before: what the engine remembers of one must help neither side."""
    return [f"Tell a story about the number {100 * (number + 1) + n}." for n in range(_REQUESTS)]


def _body(prompt: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": _TOKENS}


def _own(engine: Engine, threads: ThreadPoolExecutor, prompts: list[str]) -> float:
    """As many threads as slots, each in llama.cpp's blocking call."""
    call: Callable[[dict[str, Any]], dict[str, Any]] = engine._server.handle_chat_completions
    begin = time.perf_counter()
    replies = list(threads.map(lambda prompt: call({**_body(prompt), **_EXTRA}), prompts))
    tokens: int = sum(reply["usage"]["completion_tokens"] for reply in replies)
    return tokens / (time.perf_counter() - begin)


async def _ours(client: ServerClient, prompts: list[str]) -> float:
    begin = time.perf_counter()
    counts = await asyncio.gather(*(_ask(client, prompt) for prompt in prompts))
    return sum(counts) / (time.perf_counter() - begin)


async def _ask(client: ServerClient, prompt: str) -> int:
    body = {**_body(prompt), "metadata": {"extra_body": json.dumps(_EXTRA)}}
    reply = await client.post("policy_model", "/v1/chat/completions", json=body)
    await raise_for_status(reply)
    tokens: int = (await get_response_json(reply))["usage"]["completion_tokens"]
    return tokens
