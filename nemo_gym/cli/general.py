# SPDX-License-Identifier: Apache-2.0
"""`gym --version`: print versions and system information."""

import os
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from nemo_gym import PARENT_DIR, __version__
from nemo_gym._util.moved_names import find_names
from nemo_gym.cli import render
from nemo_gym.cli.legacy import entry_point

if TYPE_CHECKING:
    from nemo_gym.cli.settings import VersionConfig as VersionConfig
else:
    __getattr__ = find_names(__name__, {"nemo_gym.cli.settings": "VersionConfig"})

_KEY_DEPENDENCIES = ("openai", "ray")


version = entry_point("version")


def show_version(overrides: list[str]) -> int:
    """Print versions and system information."""
    facts = _collect_facts()
    if any(token.lstrip("+").lower() == "json=true" for token in overrides):
        render.json_data(facts)
        return 0
    system = facts["system"]
    lines = [
        f"NeMo Gym v{facts['nemo_gym']}",
        f"Python {facts['python']} ({facts['python_path']})",
        f"Installation: {facts['installation_path']}",
        "Key Dependencies:",
        *(f"  {name}: {version}" for name, version in facts["dependencies"].items()),
        "System:",
        f"  OS: {system['os']}",
        f"  Platform: {system['platform']}",
        f"  Architecture: {system['architecture']}",
        f"  Processor: {system['processor']}",
        f"  CPUs: {system['cpus']}",
        f"  Memory: {system['memory_gb']} GB",
    ]
    render.data("\n".join(lines))
    return 0


def _collect_facts() -> dict[str, Any]:
    import psutil  # only this command needs it

    return {
        "nemo_gym": __version__,
        "python": platform.python_version(),
        "python_path": sys.executable,
        "installation_path": str(PARENT_DIR),
        "dependencies": {name: _find_version(name) for name in _KEY_DEPENDENCIES},
        "system": {
            "os": f"{platform.system()} {platform.release()}",
            "platform": platform.platform(),
            "architecture": platform.machine(),
            "processor": platform.processor() or "unknown",
            "cpus": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 2**30, 2),
        },
    }


def _find_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
