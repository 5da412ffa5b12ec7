# SPDX-License-Identifier: Apache-2.0
"""Environments of Atropos: found by class path, opened once, asked for items by their place, and played.

The library is loaded with the first environment.
"""

import asyncio
import difflib
import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym.adapters.installed_packages import import_file
from nemo_gym.errors import GymError, RolloutFailure
from responses_api_agents.atropos_env.byte_tokenizer import NAME as BYTES
from responses_api_agents.atropos_env.byte_tokenizer import provide_tokenizer

HERE = Path(__file__).parent
SAMPLES = HERE / "sample_environments"


class UnknownEnvironment(GymError):
    """There is no environment at a class path."""


@dataclass
class Trajectories:
    """What an environment gave for an item."""

    groups: list[list[float]]
    """The scores of each group that it did not drop."""
    postponed: int
    """How many further items it would have put into the library's queue."""


@dataclass
class OpenEnvironment:
    """An environment that is set up, and the items it has given so far."""

    path: str
    env: Any
    _items: list[Any] = field(default_factory=list)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get_item(self, index: int) -> Any:
        """Return the item that `get_next_item` gives at its call number `index`, counted from 0."""
        async with self._asking:
            while len(self._items) <= index:
                item = await self.env.get_next_item()
                if item is None:
                    raise RolloutFailure(
                        "agent",
                        f"the row asks for item {index} of {self.path!r}, which gave {len(self._items)}.\n"
                        "hint: write the rows anew, with indices below that",
                    )
                self._items.append(item)
        return self._items[index]

    async def collect(self, item: Any) -> Trajectories:
        """Play an item as the library does: its own loop, its own scores."""
        try:
            given, postponed = await self.env.collect_trajectories(item)
            if given:
                given = await self.env.postprocess_histories(given)
        finally:
            await self.env.cleanup()
        groups = [group for group in (given if isinstance(given, list) else [given]) if group]
        if not groups:
            raise RolloutFailure(
                "verifier",
                f"the environment {self.path!r} gave no score for the item. Environments that are made for training "
                "drop groups from which nothing is learnt, such as those whose scores are all alike.\n"
                "hint: look for such a condition in its code, and for a setting of it for `environment_config`",
            )
        return Trajectories([_read_scores(group, self.path) for group in groups], len(postponed or ()))


async def open_environment(path: str, settings: dict[str, Any]) -> OpenEnvironment:
    """Make the environment of a class path and set it up; `settings` go before those of its `config_init`."""
    # In the event loop: no two modules are loaded at a time, and one that hangs is interrupted as other code is.
    env = make_environment(load_class(path), settings)
    await env.setup()
    return OpenEnvironment(path, env)


def make_environment(cls: type, settings: dict[str, Any]) -> Any:
    """Return an environment whose model calls go to the model of the rollout that makes them."""
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
            "hint: if it is its tokenizer that is not there, name another with `environment_config: {tokenizer_name: "
            "...}`: a folder, a name of the hub, or `bytes`, which needs no download",
        ) from error
    replace_managed_server(env.server, env.tokenizer)
    return env


def needs_groups(cls: type) -> bool:
    """Tell whether an environment sees the trajectories of an item together, rather than each by itself."""
    from atroposlib.envs.base import BaseEnv

    return any(
        getattr(cls, name) is not getattr(BaseEnv, name) for name in ("collect_trajectories", "postprocess_histories")
    )


def load_class(path: str) -> type:
    """Return the subclass of `BaseEnv` at `module:Class` or `folder/file.py:Class`."""
    from atroposlib.envs.base import BaseEnv

    place, _, name = path.rpartition(":")
    module = _import_file(place) if place.endswith(".py") else _import_module(place)
    cls = getattr(module, name, None) if module else None
    if isinstance(cls, type) and issubclass(cls, BaseEnv):
        return cls
    known = list_classes(module) if module else []
    near = [f"{place}:{one}" for one in known] or [entry["id"] for entry in list_environments()]
    raise UnknownEnvironment(
        f"there is no environment {path!r}: {'no such class in it' if module else 'no such module or file'}.\n"
        f"near it: {', '.join(difflib.get_close_matches(path, near, n=3, cutoff=0.0))}\n"
        "hint: name a subclass of BaseEnv as `module:Class` or `folder/file.py:Class`; its package goes into the block "
        "of the server, `requirements: [package]`"
    )


def list_classes(module: ModuleType) -> list[str]:
    """Return the names of the environments that a module defines."""
    from atroposlib.envs.base import BaseEnv

    found = (one for one in vars(module).values() if isinstance(one, type) and issubclass(one, BaseEnv))
    return [one.__name__ for one in found if one.__module__ == module.__name__]


def list_environments() -> list[dict[str, str]]:
    """Return the samples of this folder: the library itself ships no environment."""
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


def _import_file(place: str) -> ModuleType | None:
    path = _resolve_under_cwd_or_install(place).resolve()
    if not path.exists():
        return None
    name = f"atropos_environment_{re.sub(r'[^0-9A-Za-z]', '_', str(path))}"
    if name not in sys.modules:
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))  # such a file is meant to be run, and imports what lies beside it
        import_file(name, path)
    return sys.modules[name]


def _read_scores(group: Any, path: str) -> list[float]:
    scores: Sequence[Any] | None = group.get("scores")
    try:
        return (
            [float(score) for score in scores] if scores is not None and len(scores) else _refuse_scores(path, scores)
        )
    except (TypeError, ValueError):
        return _refuse_scores(path, scores)


def _refuse_scores(path: str, scores: Any) -> list[float]:
    raise RolloutFailure(
        "verifier",
        f"the environment {path!r} gave {str(scores)[:200]} as its scores, where numbers are needed.\n"
        "hint: look at the `scores` of what its collect_trajectories returns",
    )
