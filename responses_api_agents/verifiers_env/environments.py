# SPDX-License-Identifier: Apache-2.0
"""Find verifiers v1 environments by taskset id or path, and keep them open for their rollouts.

The first environment loads the library.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any

from nemo_gym.adapters.installed_packages import list_dependents, make_importable
from nemo_gym.errors import RolloutFailure

HERE = Path(__file__).parent
SAMPLES = HERE / "sample_tasksets"


def list_environments() -> list[dict[str, str]]:
    """Return the tasksets of installed packages that depend on the library, and the samples in this folder."""
    found = [{"id": name, "description": text} for name, text in list_dependents("verifiers").items()]
    samples = (path.parent for path in sorted(SAMPLES.glob("*/__init__.py")))
    return found + [{"id": _name_sample(path), "description": _read_summary(path / "__init__.py")} for path in samples]


def build_environment(taskset: str, config: dict[str, Any], *, harness: str, runtime: str) -> Any:
    """Return an environment. `config` is the library's `env` block, apart from the other arguments.

    `harness` is used if neither the config nor the taskset's package names one. Agents run in `runtime` unless the
    config says otherwise: the library's own default is its vendor's cloud.
    """
    from verifiers.v1.utils import loaders

    known = [entry["id"] for entry in list_environments()]
    name = taskset if _is_built_in(taskset) else make_importable(taskset, lambda: known)
    block: dict[str, Any] = {**config, "taskset": {**(config.get("taskset") or {}), "id": name}}
    for role in _list_roles(name, config.get("id", "")):
        agent = dict(block.get(role) or {})
        agent.setdefault("runtime", {"type": runtime})
        if loaders.default_harness_id(name) == "bash":
            agent.setdefault("harness", {"id": harness})
        block[role] = agent
    return loaders.load_environment(loaders.resolve_env_config(block))


def find_task(environment: Any, index: int, name: str) -> Any:
    """Return a task by its index in the taskset."""
    found = next(itertools.islice(environment.taskset, index, None), None) if index >= 0 else None
    if found is None:
        raise RolloutFailure(
            "agent",
            f"the row asks for task {index} of {name!r}, which has no such task.\n"
            "hint: write the rows again with the installed version of the environment",
        )
    return found


class OpenEnvironment:
    """An environment whose servers run in the event loop that opened it."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self._is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.ensure_future(self._hold())

    async def wait_until_open(self) -> None:
        """Return once its servers are running; raise if they cannot start."""
        await asyncio.shield(self._is_open)

    async def _hold(self) -> None:
        # The same asyncio task must enter and leave, as the library's task groups require.
        try:
            async with self.environment.serving():
                # Each rollout has its own base URL, for which a shared interception would keep a client forever.
                # Without one, every agent run creates its own and closes it.
                self.environment._interception = None
                self._is_open.set_result(None)
                await asyncio.get_running_loop().create_future()
        except Exception as error:
            if self._is_open.done():
                raise
            self._is_open.set_exception(error)


def _is_built_in(taskset: str) -> bool:
    import importlib.util

    return "/" not in taskset and importlib.util.find_spec(f"verifiers.v1.tasksets.{taskset}") is not None


def _list_roles(taskset: str, environment_id: str) -> list[str]:
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.utils.loaders import env_config_type

    fields = env_config_type(taskset, environment_id).model_fields
    return [name for name, field in fields.items() if isinstance(field.default, AgentConfig)]


def _name_sample(path: Path) -> str:
    return f"{HERE.parent.name}/{HERE.name}/{SAMPLES.name}/{path.name}"


def _read_summary(path: Path) -> str:
    return path.read_text().partition('"""')[2].partition("\n")[0].partition('"""')[0]
