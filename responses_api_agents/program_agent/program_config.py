# SPDX-License-Identifier: Apache-2.0
"""The config of a program agent: how to install and run the program, its limits, and what to keep of its work."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from nemo_gym.programs import ProgramInstall
from responses_api_agents.simple_agent.app import ModelAgentConfig


class ProgramAgentConfig(ModelAgentConfig):
    """Config of an agent that runs a program.

    These placeholders are replaced in `command`, `env` and `files`: `$task` (the prompt), `$task_file` (a file with the
    prompt), `$model`, `$base_url` (ends with /v1), `$root_url` (the same without /v1), `$mcp_url`, `$api_key` (a dummy
    for programs that require one), `$workspace`, `$home`. `$$` is a dollar sign.
    """

    command: list[str]
    """The program and its arguments."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the program, in addition to PATH, HOME and the like."""
    files: dict[str, str] = Field(default_factory=dict)
    """Files to write before the program starts, by path: `$home/.codex/config.toml`."""
    files_with_tools: dict[str, str] = Field(default_factory=dict)
    """Files to add, or to replace those above, if the resources server offers tools over MCP."""
    args_with_tools: list[str] = Field(default_factory=list)
    """Extra arguments in that case; they go before a `--` in the command, if there is one."""
    install: ProgramInstall = Field(default_factory=ProgramInstall)
    """The packages that provide the program."""
    artifacts: list[str] = Field(default_factory=list)
    """Patterns of files below its home folder to keep in the row, such as the program's own session log."""

    time_limit_s: PositiveFloat = 1800.0
    """How long the program may run."""
    max_model_calls: PositiveInt | None = 500
    """How many model calls it may make; None for no limit."""
    max_tokens: PositiveInt | None = None
    """How many tokens it may use, prompts included."""
    max_output_bytes: PositiveInt = 4 * 2**20
    """How much of its output is kept; the program is ended if it prints 64 times as much."""
    memory_mib: PositiveInt = 4096
    """How much memory it may use."""
    max_processes: PositiveInt = 512
    """How many processes it may have at once; the program is ended if it has more."""
    max_disk_mib: PositiveInt = 2048
    """How much disk it may use."""
    max_parallel_programs: PositiveInt = 16
    """How many programs run at a time; waiting does not count towards `time_limit_s`."""

    network: Literal["model", "open"] = "model"
    """`model`: the program reaches only its model and its tools. `open`: it reaches whatever this machine can."""
    isolation: Literal["auto", "none"] = "auto"
    """`none`: no sandbox at all, for programs that you fully trust."""
    read_only_paths: list[str] = Field(default_factory=list)
    """Folders of this machine that the program may read, in addition to /usr and its own."""

    leave_out: list[str] = Field(
        default_factory=lambda: [".git/", "node_modules/", "__pycache__/", "*.pyc", ".pytest_cache/", ".venv/"]
    )
    """Patterns of files and folders/ that are not part of the workspace."""
    collect: list[str] = Field(default_factory=lambda: ["*"])
    """Patterns of changed files to pass to the verifier in full."""
    max_collected_bytes: PositiveInt = 4 * 2**20
    """The limit for these files, and for the diff."""
    max_workspace_files: PositiveInt = 20_000
    """How many files, folders and links of the workspace the verifier gets; the rest is left out and named."""
    max_workspace_depth: Annotated[int, Field(ge=1, le=256)] = 64
    """How many folders in one another it gets."""
    collect_timeout_s: PositiveFloat = 120.0
    """How long copying and comparing the workspace may take; this is checked between files."""
    program_fault_reward: float | None = None
    """The reward of a program that did something wrong: exit code, limit, budget, malformed call. None: the verifier
    scores what it left, as it does for others."""
    run_once: bool = True
    """One server for all workers of a run: the model server next to it records the calls."""
