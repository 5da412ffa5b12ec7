# SPDX-License-Identifier: Apache-2.0
"""Writes the data files of the templates of resources servers anew: `python -m tests.support.scaffold_data`.

The rows of the worked example are those of its own generator; its rollouts are played by the simple agent with its own
`solution` for a model. The rows of the other template are written by hand, and its model only greets. A test compares
the templates with what this module computes.
"""

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nemo_gym import ROOT_DIR
from nemo_gym._authoring.scaffold_plans import make_class_prefix, render_template, write_missing
from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.dataset_metrics import encode_metrics, measure
from nemo_gym._util.jsonl_files import dumps_line, read_rows
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, message, reply, running, scripted_model, tool_call

NAME = "scaffolded_by_a_test"
TEMPLATES = ROOT_DIR / "_authoring" / "templates"
SERVER, AGENT = f"{NAME}_resources_server", f"{NAME}_simple_agent"


def computed_data(template: str, root: Path) -> dict[str, str]:
    """The data files of a scaffold that was written into `root`, by their path in the template."""
    folder = root / "resources_servers" / NAME
    (folder / "data").mkdir(exist_ok=True)
    app = _import_module("app", root)
    server = getattr(app, f"{make_class_prefix(NAME)}ResourcesServer")
    if template == "resources_server":
        rows = list(read_rows(folder / "data" / "example.jsonl"))
        return {
            "data/example_metrics.json": _metrics(root, folder),
            "data/example_rollouts.jsonl": _lines(asyncio.run(_play(server, rows, lambda row: ["Hello!"]))),
        }
    generator = _import_module("generate_data", root)
    generator.write(folder / "data" / "example.jsonl", generator.rows())
    return {
        "data/example.jsonl": (folder / "data" / "example.jsonl").read_text(),
        "data/example_metrics.json": _metrics(root, folder),
        "data/example_rollouts.jsonl": _lines(asyncio.run(_play(server, generator.rows(), generator.solution))),
        "tests/verifier_cases.jsonl": _lines(_cases()),
    }


def _import_module(name: str, root: Path) -> Any:
    """Import a module of the scaffold in `root`, whatever scaffold was imported before."""
    for known in [module for module in sys.modules if module.startswith(f"resources_servers.{NAME}")]:
        if not str(sys.modules[known].__file__).startswith(str(root)):
            del sys.modules[known]
    importlib.invalidate_caches()
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module(f"resources_servers.{NAME}.{name}")
    finally:
        sys.path.remove(str(root))


def _metrics(root: Path, folder: Path) -> str:
    config: Any = OmegaConf.to_container(OmegaConf.load(folder / "configs" / f"{NAME}.yaml"))
    datasets = config[AGENT]["responses_api_agents"]["simple_agent"]["datasets"]
    example = DatasetConfig.model_validate(datasets[-1])
    return encode_metrics(example, measure(read_rows(root / example.jsonl_fpath)))


async def _play(server: Any, rows: list[dict[str, Any]], solution: Any) -> list[dict[str, Any]]:
    from responses_api_agents.simple_agent.app import SimpleAgent

    refs = {
        "resources_server": {"type": "resources_servers", "name": SERVER},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    replies = [answer for task, row in enumerate(rows) for answer in _replies(task, solution(row))]
    servers: dict[str, Any] = {SERVER: server, AGENT: (SimpleAgent, refs), "policy_model": scripted_model(*replies)}
    rollouts = []
    async with running(**servers) as client:
        for task, row in enumerate(rows):
            place = {"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": AGENT}}
            played = await client.post(AGENT, "/run", json={**row, **place})
            rollouts.append({**await get_response_json(played), **place})
    return rollouts


def _replies(task: int, turns: list[Any]) -> list[Any]:
    replies = []
    for number, turn in enumerate(turns):
        key = f"{task}_{number}"
        if isinstance(turn, str):
            item: Any = message(turn).model_copy(update={"id": f"msg_{key}"})
        else:
            item = tool_call(turn[0], json.dumps(turn[1]), call_id=f"call_{key}")
        replies.append(reply(item, id=f"resp_{key}"))
    return replies


def _cases() -> list[dict[str, Any]]:
    params = asked("My basket: 2 x apple, 1 x bread. What does it cost?").model_dump(mode="json", exclude_unset=True)

    def request(said: str) -> dict[str, Any]:
        item = message(said).model_copy(update={"id": "msg_1"})
        response = reply(item, id="resp_1").model_dump(mode="json", exclude_unset=True)
        return {"responses_create_params": params, "response": response, "expected_total": 13}

    return [
        {"name": "right", "kind": "full_reward", "request": request("It is \\boxed{13}."), "expected_reward": 1.0},
        {"name": "wrong", "kind": "zero_reward", "request": request("It is \\boxed{12}."), "expected_reward": 0.0},
        {"name": "no-box", "kind": "zero_reward", "request": request("It is 13."), "expected_reward": 0.0},
        {"name": "same-again", "kind": "determinism", "request": request("\\boxed{13.0}"), "expected_reward": 1.0},
        {
            "name": "no-response",
            "kind": "malformed",
            "request": {"responses_create_params": params, "expected_total": 13},
            "expected_error": 422,
        },
    ]


def _lines(rows: list[Any]) -> str:
    return b"".join(map(dumps_line, rows)).decode()


def main() -> None:
    for template in ("resources_server", "worked_example"):
        with tempfile.TemporaryDirectory() as folder:
            files = render_template(
                template, f"resources_servers/{NAME}", {"NAME": NAME, "CLASS": make_class_prefix(NAME)}
            )
            computed = ("example_metrics.json", "example_rollouts.jsonl")
            write_missing(Path(folder), [file for file in files if file.path.name not in computed])
            for path, text in computed_data(template, Path(folder)).items():
                (TEMPLATES / template / f"{path}.tmpl").write_text(text.replace(NAME, "@@NAME@@"))
                print(f"wrote {template}/{path}")


if __name__ == "__main__":
    main()
