# SPDX-License-Identifier: Apache-2.0
"""The table of commands: what each is called, what it is for, which flags it takes, and where it is implemented.

Flags become override tokens (`--model x` is `++policy_model_name=x`), so that a command sees one language only.
Commands are imported when they run, which keeps `gym --help` instant.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Flag:
    """A command-line flag and the config key that it sets."""

    name: str
    key: str
    help: str
    kind: Literal["value", "switch", "config", "component", "search_dir"] = "value"
    short: str | None = None


@dataclass(frozen=True)
class Command:
    """One command of a group."""

    implementation: str
    help: str
    flags: tuple[Flag, ...] = field(default=())


CONFIG = Flag("--config", "config_paths", "a YAML config file; may be repeated, later ones win", "config")
RESOURCES_SERVER = Flag("--resources-server", "resources_servers", "a resources server by its name", "component")
MODEL_TYPE = Flag("--model-type", "responses_api_models", "a model server by its name", "component")
SEARCH_DIR = Flag("--search-dir", "", "look for servers and configs here first; may be repeated", "search_dir")
SELECTORS = (CONFIG, RESOURCES_SERVER, MODEL_TYPE, SEARCH_DIR)
MODEL = (
    Flag("--model", "policy_model_name", "the name of the model", short="-m"),
    Flag("--model-url", "policy_base_url", "the base URL of the model's endpoint"),
    Flag("--model-api-key", "policy_api_key", "the API key of the model's endpoint"),
)
JSON = Flag("--json", "json", "print JSON", "switch")

GROUPS: dict[str, dict[str, Command]] = {
    "env": {
        "start": Command("nemo_gym.cli.env:start", "start the servers of a config", (*SELECTORS, *MODEL)),
        "validate": Command(
            "nemo_gym.cli.env:validate", "check a config without starting anything", (*SELECTORS, *MODEL)
        ),
        "prefetch": Command(
            "nemo_gym.cli.env:prefetch", "build the environments of servers without starting them", (*SELECTORS, *MODEL)
        ),
        "status": Command("nemo_gym.cli.env:status", "show the servers that run and their health", (JSON,)),
        "resolve": Command("nemo_gym.cli.env:resolve", "print the merged config, secrets hidden", SELECTORS),
    },
}

GROUP_HELP = {"env": "run and inspect servers"}

LEGACY: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "version": ("--version",),
    "run": ("env", "start"),
    "validate": ("env", "validate"),
    "dump_config": ("env", "resolve"),
    "status": ("env", "status"),
    "pip_list": ("env", "packages"),
    "init_resources_server": ("env", "init"),
    "test": ("env", "test"),
    "test_all": ("env", "test"),
    "dev_test": ("dev", "test"),
    "collect_rollouts": ("eval", "run", "--no-serve"),
    "e2e_collect_rollouts": ("eval", "run"),
    "aggregate_rollouts": ("eval", "aggregate"),
    "reward_profile": ("eval", "profile"),
    "profile": ("eval", "profile"),
    "prepare_benchmark": ("eval", "prepare"),
    "list_benchmarks": ("list", "benchmarks"),
    "materialize_prompts": ("dataset", "render"),
    "prepare_data": ("dataset", "collate"),
    "viewer": ("view",),
    "upload_dataset_to_gitlab": ("dataset", "upload", "--storage", "gitlab"),
    "download_dataset_from_gitlab": ("dataset", "download", "--storage", "gitlab"),
    "delete_dataset_from_gitlab": ("dataset", "rm"),
    "upload_dataset_to_hf": ("dataset", "upload"),
    "download_dataset_from_hf": ("dataset", "download"),
    "gitlab_to_hf_dataset": ("dataset", "migrate"),
    "reinstall": ("dev", "reinstall"),
}
