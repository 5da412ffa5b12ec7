# SPDX-License-Identifier: Apache-2.0
"""The legacy commands `ng_*` and `nemo_gym_*`: name the replacement, then do the same work."""

import sys
from collections.abc import Callable
from pathlib import Path

from nemo_gym._util.nearest import suggest
from nemo_gym._util.process_list import hide_secret_arguments
from nemo_gym.cli import render
from nemo_gym.cli.main import main as gym, own_process, run_command

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
    "test_all": ("env", "test", "--all"),
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


def entry_point(name: str) -> Callable[[], None]:
    """Return the function of the legacy command `name`, which reads this process's arguments."""

    def run() -> None:
        hide_secret_arguments()
        gym([*LEGACY[name], *sys.argv[1:]])

    run.__doc__ = f"Do what `gym {' '.join(LEGACY[name])}` does with the arguments of this process."
    return run


def main() -> None:
    """Run the legacy command that this process was started as; raise SystemExit unless it succeeds."""
    if code := run_alias():
        sys.exit(code)


def run_alias() -> int:
    """Run the replacement of the legacy command that this process was started as, and return its exit code."""
    alias = Path(sys.argv[0]).name.removesuffix(".exe").removesuffix("-script.py")
    name = alias.removeprefix("nemo_gym_").removeprefix("ng_")
    tokens = LEGACY.get(name)
    if tokens is None:
        known = [f"ng_{one}" for one in LEGACY]
        render.note(f"`{alias}` is not a NeMo Gym command.{suggest(f'ng_{name}', known)}\nhint: gym --help")
        return 1
    replacement = f"gym {' '.join(tokens)}"
    render.note(f"⚠ `{alias}` is deprecated and will be removed in a future release; use `{replacement}` instead.")
    with own_process():
        code = run_command([*tokens, *sys.argv[1:]])
    if name == "help":
        render.data(_list_aliases())
    return code


def _list_aliases() -> str:
    """Return every legacy command with its replacement."""
    width = max(map(len, LEGACY)) + len("ng_")
    lines = (f"  {f'ng_{name}':{width}}  gym {' '.join(tokens)}" for name, tokens in sorted(LEGACY.items()))
    return "\n".join(["", "legacy commands, each also as nemo_gym_*:", *lines])
