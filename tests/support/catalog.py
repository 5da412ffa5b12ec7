# SPDX-License-Identifier: Apache-2.0
"""Benchmarks and environments written into a folder, as their authors would lay them out."""

from pathlib import Path
from textwrap import dedent, indent

PREPARE = """
import json
from pathlib import Path

OUTPUT = Path(__file__).parent / "data" / "{name}_benchmark.jsonl"


def prepare() -> Path:
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text("".join(json.dumps({{"question": f"What is {{n}}?"}}) + "\\n" for n in range(3)))
    print("downloading ...")
    return OUTPUT
"""

CONFIG = """\
config_paths: [resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml]
{name}_resources_server:
  _inherit_from: example_single_tool_call
{name}_simple_agent:
  _inherit_from: example_single_tool_call_simple_agent
  responses_api_agents:
    simple_agent:
      resources_server: {{name: {name}_resources_server}}
      datasets:
      - name: {name}
        type: benchmark
        jsonl_fpath: benchmarks/{folder}/data/{name}_benchmark.jsonl
        prepare_script: benchmarks/{folder}/prepare.py
        prompt_config: benchmarks/{folder}/prompts/default.yaml
        num_repeats: {repeats}
"""

ENVIRONMENT = """\
{name}:
  resources_servers:
    {name}: {{entrypoint: app.py, domain: {domain}, description: {description}}}
{name}_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {name}}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets:
      - {{name: example, type: example, jsonl_fpath: environments/{name}/data/example.jsonl}}
"""


def write_benchmark(root: Path, folder: str, *, repeats: int = 2, prepare: str = PREPARE, file: str = "config") -> Path:
    """A benchmark on `example_single_tool_call`; the folder that it is in."""
    name = folder.replace("/", "_")
    here = root / "benchmarks" / folder
    (here / "prompts").mkdir(parents=True, exist_ok=True)
    (here / f"{file}.yaml").write_text(CONFIG.format(name=name, folder=folder, repeats=repeats))
    (here / "prompts" / "default.yaml").write_text('user: "{question}"\n')
    (here / "prepare.py").write_text(dedent(prepare).replace("{name}", name).replace("{{", "{").replace("}}", "}"))
    return here


def write_environment(
    root: Path, name: str, *, domain: str = "math", description: str = "Add", manifest: str = ""
) -> Path:
    """An environment with a server of its own; the folder that it is in."""
    here = root / "environments" / name
    here.mkdir(parents=True)
    (here / "config.yaml").write_text(ENVIRONMENT.format(name=name, domain=domain, description=description))
    if manifest:
        (here / "manifest.yaml").write_text(dedent(manifest))
    return here


def write_config(root: Path, relative: str, text: str) -> Path:
    """A config file of one's own."""
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def server_block(instance: str, kind: str, implementation: str, settings: str) -> str:
    """A server of a config."""
    return f"{instance}:\n  {kind}:\n    {implementation}:\n{indent(dedent(settings).strip(), ' ' * 6)}\n"
