# SPDX-License-Identifier: Apache-2.0
"""The virtual environment of a server that needs a library of its own, built as the launcher builds it, and kept."""

import asyncio
from pathlib import Path

from nemo_gym import PARENT_DIR
from nemo_gym._config.defaults import running_head_server_deps
from nemo_gym._serving.venvs import VenvSettings, build_all, plan_venv

CACHE = Path(PARENT_DIR) / "cache"


def server_python(name: str, *packages: str) -> Path:
    """Return the interpreter of the resources server `name`, with the `packages` that an instance of it asks for."""
    settings = VenvSettings(
        cache_dir=CACHE, uv_cache_dir=CACHE / "uv", extra_requirements=tuple(running_head_server_deps())
    )
    plan = plan_venv(Path(PARENT_DIR) / "resources_servers" / name, settings, of_instance=packages)
    asyncio.run(build_all([plan], settings, lambda event: None))
    return plan.python
