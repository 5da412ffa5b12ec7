# SPDX-License-Identifier: Apache-2.0
"""Run the programs that a model writes for GEM's code environments in our sandbox.

GEM runs them as plain processes, or in a bubblewrap that only finds a Python contained in a single folder. GEM still
checks the program first, and decides when to retry it with more imports.
"""

import asyncio
import subprocess
from typing import Any

from nemo_gym.code_execution import CodePool, installed_packages

_TIMEOUT_S = 10


def replace_runner() -> None:
    """Make GEM run programs with `run_program`."""
    from gem.utils import sandbox

    sandbox.subprocess_run = run_program


def run_program(
    code: str, command: list[str], sandbox_type: str, stdin: str | None = None, timeout: int = _TIMEOUT_S
) -> tuple[bool, str, str]:
    """Run a program; return whether it succeeded, and its outputs. Raise TimeoutExpired if it takes too long."""
    result = asyncio.run(_run(code, stdin or "", timeout))
    if result.status == "timeout":
        raise subprocess.TimeoutExpired("python", timeout)
    return result.status == "ok", result.stdout, result.stderr.strip()


async def _run(code: str, stdin: str, timeout_s: float) -> Any:
    pool = CodePool(1, timeout_s=timeout_s, import_paths=installed_packages())
    try:
        return await pool.run(code, stdin=stdin)
    finally:
        await pool.aclose()
