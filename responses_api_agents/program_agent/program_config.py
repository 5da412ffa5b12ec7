# SPDX-License-Identifier: Apache-2.0
"""What the config of a program says: how it is called and installed, what it may use, and what is kept of its work."""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from nemo_gym.programs import ProgramInstall
from responses_api_agents.simple_agent.app import ModelAgentConfig


class ProgramAgentConfig(ModelAgentConfig):
    """Config of an agent that is a program.

    In `command`, `env` and `files` these names are replaced: `$task` (the prompt), `$task_file` (a file with it),
    `$model`, `$base_url` (ends with /v1), `$root_url` (the same without /v1), `$mcp_url`, `$api_key` (a word, for
    programs that want one), `$workspace`, `$home`. `$$` is a dollar sign.
    """

    command: list[str]
    """The program and its arguments."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the program, besides PATH, HOME and the like."""
    files: dict[str, str] = Field(default_factory=dict)
    """Files that are written before it starts, by their paths: `$home/.codex/config.toml`."""
    files_with_tools: dict[str, str] = Field(default_factory=dict)
    """Files, in place of those above, for a task whose resources server offers tools over MCP."""
    args_with_tools: list[str] = Field(default_factory=list)
    """More arguments for such a task; they go before a `--` of the command, if it has one."""
    install: ProgramInstall = Field(default_factory=ProgramInstall)
    """The packages that the program comes in."""
    artifacts: list[str] = Field(default_factory=list)
    """Patterns of files below its home folder that the row keeps, such as the program's own log of the session."""

    time_limit_s: PositiveFloat = 1800.0
    """How long the program may run."""
    max_model_calls: PositiveInt | None = 500
    """How often it may ask its model; None: as often as it likes."""
    max_tokens: PositiveInt | None = None
    """How many tokens it may use, prompts included."""
    max_output_bytes: PositiveInt = 4 * 2**20
    """How much of what it prints is kept; 64 times as much ends it."""
    memory_mib: PositiveInt = 4096
    """How much memory it may use."""
    max_processes: PositiveInt = 512
    """How many processes it may have at once; further ones are refused."""
    max_disk_mib: PositiveInt = 2048
    """How much disk it may use."""
    max_parallel_programs: PositiveInt = 16
    """How many programs run at a time; further rollouts wait, without their time running."""

    network: Literal["model", "open"] = "model"
    """`model`: the program reaches its model and its tools, and nothing else. `open`: all that this machine does."""
    isolation: Literal["auto", "none"] = "auto"
    """`none`: no sandbox at all, for programs that you trust as you trust yourself."""
    read_only_paths: list[str] = Field(default_factory=list)
    """Folders of this machine that the program may see besides /usr and its own."""

    leave_out: list[str] = Field(
        default_factory=lambda: [".git/", "node_modules/", "__pycache__/", "*.pyc", ".pytest_cache/", ".venv/"]
    )
    """Patterns of files and folders/ that do not count as part of the workspace."""
    collect: list[str] = Field(default_factory=lambda: ["*"])
    """Patterns of changed files that the verifier is given in full."""
    max_collected_bytes: PositiveInt = 4 * 2**20
    """How many bytes of them, and of the diff, there is room for."""
    run_once: bool = True
    """One for all workers of a run: the gateway of the model server beside it records the calls."""
