# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with packages from the index, each for one client."""

import asyncio
import os
import sys
from pathlib import Path


async def install(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with `packages`; return its Python."""
    python = folder / "bin/python"
    await run("uv", "venv", "--quiet", "--python", sys.executable, folder)
    await run("uv", "pip", "install", "--quiet", "--python", python, *packages)
    return python


async def run(*command: str | Path) -> str:
    """Run a command that must succeed; return what it printed."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    running = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await running.communicate()
    assert running.returncode == 0, f"{command}\n{out.decode()[-3000:]}\n{err.decode()[-5000:]}"
    return out.decode()
