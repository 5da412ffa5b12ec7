# SPDX-License-Identifier: Apache-2.0
"""Real clients, in their newest versions, in front of both kinds of backend: a table of what each of them can do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.served import BACKENDS, serve_model
from tests.clients.venvs import install, run

DRIVERS = Path(__file__).parent / "drivers"
CLIENTS = {
    "openai": ["openai"],
    "anthropic": ["anthropic"],
    "litellm": ["litellm", "mcp"],  # imported as soon as tools come in
    "langchain_openai": ["langchain-openai"],
    "langchain_anthropic": ["langchain-anthropic"],
    "llama_index": ["llama-index-llms-openai", "llama-index-llms-openai-like"],
    "pydantic_ai": ["pydantic-ai-slim[openai,anthropic]"],
    "openai_agents": ["openai-agents"],
}


@pytest.mark.exhaustive
@pytest.mark.network
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("client", CLIENTS)
async def test_all_capabilities_of(client: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    python = await install(tmp_path / "venv", *CLIENTS[client])
    failed: dict[str, str] = {}
    for backend in BACKENDS:
        async with serve_model(backend) as served:
            said = await run(python, DRIVERS / f"drive_{client}.py", served.url)
        results: dict[str, str] = json.loads(said.splitlines()[-1])
        marks = [f"{name} {'FAILED' if error else 'ok'}" for name, error in results.items()]
        record_property("client", f"{client:20} {backend:10} {len(results):3}  {', '.join(marks)}")
        failed |= {f"{backend}: {name}": error for name, error in results.items() if error}
    assert not failed, "\n".join(f"{name}\n{error}" for name, error in failed.items())
