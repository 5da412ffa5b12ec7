# SPDX-License-Identifier: Apache-2.0
"""Every kind of reply of a model server fits the types of the SDKs, strictly: in the oldest supported version, the
installed one and the newest.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.clients.check_types import find_misfits
from tests.clients.served import BACKENDS, serve_model
from tests.clients.venvs import install
from tests.wire.sse_server import parse_events

OLDEST = ("openai==2.7.0", "anthropic==0.60.0")
NEWEST = ("openai", "anthropic")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TEXTS = {"text": "hi", "reasoning": "think", "one call": "weather", "two calls": "both", "refused": "fail 429"}


def build_requests(text: str, *, with_tools: bool) -> dict[str, dict[str, Any]]:
    turns = {"model": "any", "messages": [{"role": "user", "content": text}], "max_tokens": 50}
    responses: dict[str, Any] = {"model": "any", "input": text}
    chat, messages = dict(turns), dict(turns)
    if with_tools:
        responses["tools"] = [{"type": "function", "name": "look", "parameters": CITY, "strict": None}]
        chat["tools"] = [{"type": "function", "function": {"name": "look", "parameters": CITY}}]
        messages["tools"] = [{"name": "look", "input_schema": CITY}]
    return {"responses": responses, "chat/completions": chat, "messages": messages}


async def collect_replies(backend: str) -> list[dict[str, Any]]:
    """Return replies of every kind: what it is, and its JSON."""
    replies: list[dict[str, Any]] = []
    async with serve_model(backend) as served, aiohttp.ClientSession(f"{served.url}/v1/") as session:
        for name, text in TEXTS.items():
            for path, body in build_requests(text, with_tools="call" in name).items():
                dialect = path.partition("/")[0]
                async with session.post(path, json=body) as reply:
                    kind = f"{dialect} error" if reply.status >= 400 else dialect
                    replies.append({"kind": kind, "of": name, "json": await reply.text()})
                options = {"stream_options": {"include_usage": True}} if dialect == "chat" else {}
                async with session.post(path, json={**body, **options, "stream": True}) as reply:
                    if reply.status >= 400:
                        replies.append({"kind": f"{dialect} error", "of": name, "json": await reply.text()})
                        continue
                    events = [event.data for event in parse_events(await reply.read()) if event.data != "[DONE]"]
                    replies += [{"kind": f"{dialect} event", "of": name, "json": event} for event in events]
        async with session.get("models") as reply:
            listed = await reply.json()
        replies += [{"kind": kind, "of": "models", "json": json.dumps(listed["data"][0])} for kind in ("model", "info")]
        async with session.post(
            "messages/count_tokens", json=build_requests("hi", with_tools=False)["messages"]
        ) as reply:
            replies.append({"kind": "count", "of": "count_tokens", "json": await reply.text()})
    return replies


@pytest.fixture(params=BACKENDS)
async def replies(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    collected = await collect_replies(request.param)
    assert len(collected) > 100
    return collected


async def test_every_reply_fits_the_types_of_the_installed_sdks(replies: list[dict[str, Any]]) -> None:
    assert find_misfits(replies) == []


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(600)
@pytest.mark.parametrize("versions", [OLDEST, NEWEST], ids=["oldest", "newest"])
async def test_every_reply_fits_the_types_of(
    versions: tuple[str, ...], replies: list[dict[str, Any]], tmp_path: Path
) -> None:
    python = await install(tmp_path / "venv", *versions)
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    script = Path(sys.modules[find_misfits.__module__].__file__ or "")
    checking = await asyncio.create_subprocess_exec(
        python, script, tmp_path / "replies.json", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await checking.communicate()
    assert json.loads(said) == []
