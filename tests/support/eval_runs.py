# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` in a process of its own, against the project's fake endpoint in another."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nemo_gym import PARENT_DIR
from nemo_gym.config_types import BaseServerConfig
from tests.support import warm_start
from tests.support.warm_start import WarmProcess

AGENT = "example_single_tool_call_simple_agent"
CALLS_PER_ROLLOUT = 2
"""The fake endpoint calls the tool, then answers."""
_EXAMPLES = PARENT_DIR / "resources_servers" / "example_single_tool_call" / "data" / "example.jsonl"

Key = tuple[int, int]


class Endpoint:
    """A model endpoint that does as it is told."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def set(self, **settings: object) -> None:
        self._call("POST", "/config", json.dumps(settings).encode())

    def calls(self, *, then_forget: bool = False) -> int:
        """How many model calls it got."""
        counted = self._call("GET", "/stats").get("responses", 0)
        if then_forget:
            self._call("DELETE", "/stats")
        return counted

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"{self.url}{path}", data=body, method=method)
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.loads(response.read())


@contextmanager
def fake_endpoint() -> Iterator[Endpoint]:
    """An endpoint, while the context lasts."""
    command = [sys.executable, "-m", "nemo_gym._bench.fake_endpoint", "--until-stdin-closes"]
    with subprocess.Popen(command, cwd=PARENT_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Endpoint(json.loads(process.stdout.readline())["port"])
        finally:
            process.stdin.close()


def write_tasks(path: Path, number: int, text_of: dict[int, str] | None = None) -> Path:
    """So many tasks that differ; `text_of` adds words to what the user asks, by task."""
    rows = [json.loads(line) for line in _EXAMPLES.read_text().splitlines()]
    with path.open("w") as file:
        for index in range(number):
            row = {**rows[index % len(rows)], "number": index}
            if text_of and index in text_of:
                params = row["responses_create_params"]
                question = {"role": "user", "content": text_of[index]}
                row["responses_create_params"] = {**params, "input": [*params["input"], question]}
            file.write(json.dumps(row) + "\n")
    return path


def planned(tasks: int, repeats: int = 1) -> list[Key]:
    return [(task, rollout) for task in range(tasks) for rollout in range(repeats)]


class Runner:
    """Runs that write to one output."""

    def __init__(self, folder: Path, endpoint: Endpoint, head_port: int, output: Path | None = None) -> None:
        self.folder, self.output = folder, output or folder / "r.jsonl"
        self.agent, self.head = AGENT, BaseServerConfig(host="127.0.0.1", port=head_port)
        self.flags = [
            *("--resources-server", "example_single_tool_call", "--model-type", "openai_model"),
            *("--model", "m", "--model-url", f"{endpoint.url}/v1", "--model-api-key", "sk-secret"),
            f"++head_server.port={head_port}",
        ]

    def command(self, *arguments: str) -> list[str]:
        return ["eval", "run", *self.flags, "-o", str(self.output), "-a", self.agent, *arguments]

    def start(self, *arguments: str, **streams: Any) -> WarmProcess:
        return WarmProcess(self.command(*arguments), cwd=self.folder, **streams)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return warm_start.run(self.command(*arguments), cwd=self.folder, timeout=300)

    def rows(self, sidecar: str | None = None) -> list[dict[str, Any]]:
        """What the output holds, or a file beside it."""
        path = self.output.with_name(f"{self.output.stem}_{sidecar}.jsonl") if sidecar else self.output
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def keys(self, sidecar: str | None = None) -> list[Key]:
        return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in self.rows(sidecar)]
