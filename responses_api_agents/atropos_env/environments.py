# SPDX-License-Identifier: Apache-2.0
"""Find Atropos environments by class path, set each up once, get its items by index, and play them.

The first environment loads the library.
"""

import asyncio
import contextlib
import difflib
import importlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym.adapters.installed_packages import import_file
from nemo_gym.errors import GymError, RolloutFailure
from responses_api_agents.atropos_env.byte_tokenizer import NAME as BYTES, provide_tokenizer

HERE = Path(__file__).parent
SAMPLES = HERE / "sample_environments"


class UnknownEnvironment(GymError):
    """There is no environment at this class path."""


@dataclass
class Trajectories:
    """What an environment returned for an item."""

    groups: list[list[float]]
    """The scores of each group that the environment did not drop."""
    postponed: int
    """How many items the environment would have put back into the library's queue."""


@dataclass
class OpenEnvironment:
    """An environment that is set up, and the items it has returned so far."""

    path: str
    env: Any
    _items: list[Any] = field(default_factory=list)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get_item(self, index: int) -> Any:
        """Return the result of call number `index` of `get_next_item`, counted from 0."""
        async with self._asking:
            while len(self._items) <= index:
                item = await self.env.get_next_item()
                if item is None:
                    raise RolloutFailure(
                        "agent",
                        f"the row asks for item {index} of {self.path!r}, which has only {len(self._items)}.\n"
                        "hint: write the rows again, with indices below that",
                    )
                self._items.append(item)
        return self._items[index]

    async def collect(self, item: Any) -> Trajectories:
        """Play an item as the library does, with its own loop and scores."""
        try:
            result, postponed = await self.env.collect_trajectories(item)
            if result:
                result = await self.env.postprocess_histories(result)
        finally:
            await self.env.cleanup()
        groups = [group for group in (result if isinstance(result, list) else [result]) if group]
        if not groups:
            raise RolloutFailure(
                "verifier",
                f"the environment {self.path!r} returned no score for the item. Environments made for training drop "
                "groups that teach nothing, such as those whose scores are all the same.\n"
                "hint: look in its code for such a condition, and for a setting of it for `environment_config`",
            )
        return Trajectories([_read_scores(group, self.path) for group in groups], len(postponed or ()))


async def open_environment(path: str, settings: dict[str, Any]) -> OpenEnvironment:
    """Make and set up the environment at a class path; `settings` override those of its `config_init`."""
    # Load it in the event loop: so modules load one at a time, and one that hangs is interrupted like other code.
    env = make_environment(load_class(path), settings)
    await env.setup()
    return OpenEnvironment(path, env)


def make_environment(cls: type, settings: dict[str, Any]) -> Any:
    """Return an environment whose model calls go to the model of the calling rollout."""
    from atroposlib.envs.server_handling.server_baseline import APIServerConfig

    from responses_api_agents.atropos_env.model_calls import RolloutServer, replace_managed_server

    config, servers = cls.config_init()
    own = {} if needs_groups(cls) else {"group_size": 1}
    chosen = {**config.model_dump(), **own, "use_wandb": False, **settings}
    if chosen["tokenizer_name"] == BYTES:
        chosen["tokenizer_name"] = str(provide_tokenizer())
    count = len(servers) if isinstance(servers, list) else 1
    played = type(cls.__name__, (cls,), {"__module__": cls.__module__, "server_cls": RolloutServer})
    try:
        env = played(config=type(config)(**chosen), server_configs=[APIServerConfig(health_check=False)] * count)
    except (OSError, ValueError) as error:
        raise RolloutFailure(
            "agent",
            f"the environment {cls.__name__!r} could not be made: {error}\n"
            "hint: if its tokenizer is missing, name another with `environment_config: {tokenizer_name: ...}`: a "
            "folder, a name on the hub, or `bytes`, which needs no download",
        ) from error
    replace_managed_server(env.server, env.tokenizer)
    return env


def needs_groups(cls: type) -> bool:
    """Return whether an environment handles the trajectories of an item together rather than one by one."""
    from atroposlib.envs.base import BaseEnv

    return any(
        getattr(cls, name) is not getattr(BaseEnv, name) for name in ("collect_trajectories", "postprocess_histories")
    )


def load_class(path: str) -> type:
    """Return the subclass of `BaseEnv` at `module:Class` or `folder/file.py:Class`."""
    from atroposlib.envs.base import BaseEnv

    source, _, name = path.rpartition(":")
    module = _import_file(source) if source.endswith(".py") else _import_module(source)
    cls = getattr(module, name, None) if module else None
    if isinstance(cls, type) and issubclass(cls, BaseEnv):
        return cls
    classes = list_classes(module) if module else []
    known = [f"{source}:{one}" for one in classes] or [entry["id"] for entry in list_environments()]
    raise UnknownEnvironment(
        f"there is no environment {path!r}: {'no such class in it' if module else 'no such module or file'}.\n"
        f"closest: {', '.join(difflib.get_close_matches(path, known, n=3, cutoff=0.0))}\n"
        "hint: name a subclass of BaseEnv as `module:Class` or `folder/file.py:Class`, and add its package to the "
        "server's config: `requirements: [package]`"
    )


def list_classes(module: ModuleType) -> list[str]:
    """Return the names of the environment classes that a module defines."""
    from atroposlib.envs.base import BaseEnv

    found = (one for one in vars(module).values() if isinstance(one, type) and issubclass(one, BaseEnv))
    return [one.__name__ for one in found if one.__module__ == module.__name__]


def list_environments() -> list[dict[str, str]]:
    """Return the samples in this folder: the library itself ships no environments."""
    listed = []
    for path in sorted(SAMPLES.glob("*.py")):
        text = path.read_text()
        summary = text.partition('"""')[2].partition('"""')[0].partition("\n")[0]
        names = re.findall(r"^class (\w+)\(BaseEnv\)", text, re.MULTILINE)
        listed += [{"id": f"{_locate(path)}:{name}", "description": summary} for name in names]
    return listed


def _locate(path: Path) -> str:
    return path.relative_to(HERE.parent.parent).as_posix()


def _import_module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name) if name else None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def _import_file(source: str) -> ModuleType | None:
    path = _resolve_under_cwd_or_install(source).resolve()
    if not path.exists():
        return None
    name = f"atropos_environment_{re.sub(r'[^0-9A-Za-z]', '_', str(path))}"
    if name not in sys.modules:
        if str(path.parent) not in sys.path:
            sys.path.append(
                str(path.parent)
            )  # such a file is meant to be run as a script, and imports modules next to it
        import_file(name, path)
    return sys.modules[name]


def _read_scores(group: Any, path: str) -> list[float]:
    scores = group.get("scores")
    with contextlib.suppress(TypeError, ValueError):
        if numbers := [float(score) for score in scores]:
            return numbers
    raise RolloutFailure(
        "verifier",
        f"the environment {path!r} returned {str(scores)[:200]} as its scores, which must be numbers.\n"
        "hint: look at the `scores` that its collect_trajectories returns",
    )
