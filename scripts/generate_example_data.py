# SPDX-License-Identifier: Apache-2.0
"""Write the data of the example environments anew: rows, metrics and rollouts, always the same bytes.

The rollouts are real ones: the simple agent plays every row in the environment, wired as its config says. Only the
model is a script, the `solution` of the environment's own `generate_data`.
"""

import asyncio
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.dataset_metrics import encode_metrics, measure
from nemo_gym._servers.processes.entrypoint import load_server_class
from nemo_gym._util.atomic_files import write_atomically
from nemo_gym._util.jsonl_files import dumps_line, read_rows
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import SimpleServer, get_response_json, raise_for_status
from nemo_gym.testing import message, reply, running, scripted_model, tool_call

ROOT = Path(__file__).parents[1]
EXAMPLES = (
    "example_single_tool_call",
    "example_multi_step",
    "example_session_state_mgmt",
    "example_mcp_weather",
    "example_tool_call_multireward",
    "structured_outputs",
    "first_steps",
    "workspace_tasks",
)

Turn = tuple[str, dict[str, Any]] | str


class Instance(NamedTuple):
    """A server instance of a config."""

    name: str
    server_type: str
    impl: str
    fields: dict[str, Any]

    def server_class(self) -> type[SimpleServer]:
        return load_server_class(ROOT / self.server_type / self.impl, self.fields["entrypoint"], SimpleServer)


def main() -> None:
    for name in EXAMPLES:
        folder = ROOT / "resources_servers" / name
        generator = importlib.import_module(f"resources_servers.{name}.generate_data")
        generator.write()
        instances = read_instances(folder / "configs" / f"{name}.yaml")
        write_atomically(folder / "data" / "example_metrics.json", example_metrics(instances))
        rollouts = asyncio.run(play(instances, generator.rows(), generator.solution))
        lines = b"".join(map(dumps_line, rollouts))
        for data in (folder / "data", *find_older_data(folder / "data")):
            write_atomically(data / "example_rollouts.jsonl", lines)
        print(f"{folder.relative_to(ROOT)}: rewards {[rollout['reward'] for rollout in rollouts]}")


def find_older_data(data: Path) -> list[Path]:
    """The data folders of older names of an environment, whose rows are a link to those in `data`."""
    rows = (data / "example.jsonl").resolve()
    links = [path for path in (ROOT / "resources_servers").glob("*/data/example.jsonl") if path.is_symlink()]
    return [path.parent for path in links if path.resolve() == rows]


def read_instances(config: Path) -> list[Instance]:
    """The environment and the agent that a config defines, in this order."""
    blocks: Any = OmegaConf.to_container(OmegaConf.load(config))
    return [
        Instance(name, server_type, impl, fields)
        for name, block in blocks.items()
        if isinstance(block, dict)  # other configs are named in a list
        for server_type, impls in block.items()
        if isinstance(impls, dict)  # what a block builds on is a name
        for impl, fields in impls.items()
    ]


def example_metrics(instances: Sequence[Instance]) -> str:
    """The metrics file of the example dataset that the agent names."""
    _, agent = instances
    example = next(dataset for dataset in agent.fields["datasets"] if dataset["type"] == "example")
    dataset = DatasetConfig.model_validate(example)
    return encode_metrics(dataset, measure(read_rows(ROOT / dataset.jsonl_fpath), repeats=dataset.num_repeats))


async def play(instances: Sequence[Instance], rows: Sequence[dict[str, Any]], solution: Any) -> list[dict[str, Any]]:
    """One rollout of every row."""
    replies = [answer for task, row in enumerate(rows) for answer in scripted_replies(task, solution(row))]
    servers: dict[str, Any] = {
        one.name: (one.server_class(), {k: v for k, v in one.fields.items() if k != "datasets"}) for one in instances
    }
    agent = instances[-1].name
    rollouts = []
    async with running(**servers, policy_model=scripted_model(*replies)) as client:
        for task, row in enumerate(rows):
            place = {"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": agent}}
            answer = await client.post(agent, "/run", json={**row, **place})
            await raise_for_status(answer)
            rollouts.append({**await get_response_json(answer), **place})
    return rollouts


def scripted_replies(task: int, turns: Sequence[Turn]) -> list[NeMoGymResponse]:
    """What the model says turn by turn, with ids that are the same in every run."""
    replies = []
    for number, turn in enumerate(turns):
        key = f"{task}_{number}"
        if isinstance(turn, str):
            item: Any = message(turn).model_copy(update={"id": f"msg_{key}"})
        else:
            name, arguments = turn
            item = tool_call(name, json.dumps(arguments), call_id=f"call_{key}")
        replies.append(reply(item, id=f"resp_{key}"))
    return replies


if __name__ == "__main__":
    main()
