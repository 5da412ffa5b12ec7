# SPDX-License-Identifier: Apache-2.0
"""Let a module offer names that live elsewhere: they are imported when someone asks for them.

The table `MOVED` lists names by their older paths. Homes are given as text because most are in `nemo_gym.cli`, which
only the command line may import, and callers who use an old path to it.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

MOVED: dict[str, dict[str, str]] = {
    "nemo_gym.benchmarks": {"nemo_gym.cli.eval": "list_benchmarks PrepareBenchmarkConfig prepare_benchmark"},
    "nemo_gym.cli": {
        "nemo_gym.cli.dev": "dev_test",
        "nemo_gym.cli.env": "RunHelper RunConfig TestConfig TestAllConfig PipListConfig run test test_all "
        "init_resources_server dump_config status pip_list",
        "nemo_gym.cli.eval": "e2e_rollout_collection",
        "nemo_gym.cli.general": "VersionConfig version",
        "nemo_gym.global_config": "GlobalConfigDictParserConfig",
    },
    "nemo_gym.cli_setup_command": {"nemo_gym.cli.setup_command": "run_command setup_env_command"},
    "nemo_gym.dataset_orchestrator": {
        "nemo_gym.cli.dataset": "upload_jsonl_dataset_to_hf_cli upload_jsonl_dataset_to_hf_and_delete_gitlab_cli "
        "download_jsonl_dataset_from_hf_cli delete_jsonl_dataset_from_gitlab_cli"
    },
    "nemo_gym.gitlab_utils": {"nemo_gym.cli.dataset": "upload_jsonl_dataset_cli download_jsonl_dataset_cli"},
    "nemo_gym.prompt": {"nemo_gym.cli.dataset": "materialize_prompts_cli"},
    "nemo_gym.reward_profile": {"nemo_gym.cli.eval": "reward_profile"},
    "nemo_gym.rollout_collection": {"nemo_gym.cli.eval": "collect_rollouts aggregate_rollouts"},
    "nemo_gym.train_data_utils": {"nemo_gym.cli.dataset": "prepare_data"},
}
"""Where names of a module are now: module, home, names."""


def find_names(module: str, homes: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return a `__getattr__` for `module`, which imports names when they are asked for.

    Names that `MOVED` lists for the module come with a DeprecationWarning. `homes` gives further ones, as `MOVED` does,
    that are at home in `module` and would make it slow to load.
    """
    moved = _index_by_name(MOVED.get(module, {}))
    known = {**moved, **_index_by_name(homes or {})}

    def find_name(name: str) -> Any:
        home = known.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if name in moved:
            warnings.warn(f"`{module}.{name}` has moved: import it from `{home}`", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(home), name)

    return find_name


def _index_by_name(homes: Mapping[str, str]) -> dict[str, str]:
    return {name: home for home, names in homes.items() for name in names.split()}
