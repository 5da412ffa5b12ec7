# SPDX-License-Identifier: Apache-2.0
"""The legacy commands `ng_*` and `nemo_gym_*`: one line that names the replacement, then the same work."""

import sys
from pathlib import Path

from nemo_gym.cli import render
from nemo_gym.cli.commands import GROUPS, LEGACY
from nemo_gym.cli.main import main as gym


def main() -> int:
    """Run the replacement of the legacy command that this process was started as."""
    alias = Path(sys.argv[0]).name
    tokens = LEGACY.get(alias.removeprefix("nemo_gym_").removeprefix("ng_"))
    if tokens is None:
        render.note(f"`{alias}` is not a NeMo Gym command.\nhint: gym --help")
        return 1
    replacement = f"gym {' '.join(tokens)}"
    if not tokens[0].startswith("-") and tokens[1:2] and tokens[1] not in GROUPS.get(tokens[0], {}):
        render.error(f"`{alias}` stands for `{replacement}`, which this version does not have yet.")
        return 1
    render.note(f"⚠ `{alias}` is deprecated and will be removed in a future release; use `{replacement}` instead.")
    return gym([*tokens, *sys.argv[1:]])
