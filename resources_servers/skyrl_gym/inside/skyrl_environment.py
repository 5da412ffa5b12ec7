# SPDX-License-Identifier: Apache-2.0
"""Give `skyrl-gym` environments Gymnasium's interface, in an episode's process or in a sandbox.

In a sandbox each step is a separate call: `play_step` takes the state of the episode and returns the new one.
"""

import json
import multiprocessing
import os
import pickle
import sqlite3
import tempfile
from types import SimpleNamespace
from typing import Any

import skyrl_gym
from omegaconf import OmegaConf
from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.envs.lcb import livecodebench
from skyrl_gym.envs.search.env import SearchEnvConfig
from skyrl_gym.envs.sql.env import Text2SQLEnvConfig
from skyrl_gym.envs.sql.utils import execute_sql_wrapper_single

_NOT_EXTRAS = ("agent_ref", "env_class", "prompt", "seed", "db_script", "verifier_metadata")
_SQL_TIMEOUT_S = 30
_SEARCH_FAILED = tuple(
    f'\n<information>{{"result": "{said}'
    for said in ("Search error:", "Search request failed", "Error processing search results:", "Unknown API state")
)

State = dict[str, Any]
"""The progress of an episode: the attributes of the library's environment that change."""


class SkyrlEnvironment:
    """Wraps an environment of the library: `init` becomes `reset`, and `done` becomes `terminated`."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._prompt = task.get("prompt") or []
        extras = {key: field for key, field in task.items() if key not in _NOT_EXTRAS and not key.startswith("_ng_")}
        self._env: BaseTextEnv = skyrl_gym.make(task["env_class"], env_config=_make_env_config(task), extras=extras)

    def reset(self) -> tuple[list[dict[str, Any]] | None, dict[str, Any]]:
        """Start the episode; return what `init` adds to the prompt (nothing, in the library's own environments)."""
        messages, info = self._env.init(self._prompt)
        if messages[: len(self._prompt)] != self._prompt:
            raise ValueError(
                "the environment's `init` rewrites the prompt, but here the row decides it.\n"
                "hint: write rows with the prompt that `init` would make, and let `init` return it unchanged"
            )
        return messages[len(self._prompt) :] or None, info or {}

    def step(self, text: str) -> tuple[list[dict[str, Any]] | None, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        output = self._env.step(text)
        observations = output["observations"] or []
        info = dict(output["metadata"] or {})
        for message in observations:
            if message["content"].startswith(_SEARCH_FAILED):
                raise ConnectionError(f"the retriever in the config did not answer: {message['content'].strip()[:500]}")
        if output["done"]:
            info["metrics"] = self._env.get_metrics()
        return observations or None, output["reward"], output["done"], False, info

    def close(self) -> None:
        """Close the library's environment."""
        self._env.close()

    def get_state(self) -> State:
        """Return the progress of the episode."""
        return {"turns": self._env.turns, "chat_history": getattr(self._env, "chat_history", None)}

    def set_state(self, state: State) -> None:
        """Continue from the state of another environment of the same task."""
        vars(self._env).update({name: value for name, value in state.items() if value is not None})


make = SkyrlEnvironment


def _make_env_config(task: dict[str, Any]) -> Any:
    settings = task.get("_ng_env_config", {})  # added by the server, from its config
    if task["env_class"] == "search":
        return SearchEnvConfig(**settings)
    if task["env_class"] == "text2sql":
        return Text2SQLEnvConfig(**({"db_path": _build_database(task)} if "db_script" in task else settings))
    return OmegaConf.create(settings)


def _build_database(task: dict[str, Any]) -> str:
    """Write the row's own database where the library looks for it; return the root folder."""
    root = tempfile.mkdtemp()
    folder = os.path.join(root, "spider", "database", task["db_id"])
    os.makedirs(folder)
    connection = sqlite3.connect(os.path.join(folder, f"{task['db_id']}.sqlite"))
    connection.executescript(task["db_script"])
    connection.close()
    return root


# --- in a sandbox -----------------------------------------------------------------------------------------------------


class FileList:
    """A list that another process appends to.

    It replaces the list of a `multiprocessing.Manager`, in which the library passes on the test results of a program: a
    manager needs sockets, which a sandbox does not have.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the list

    def append(self, item: Any) -> None:
        """Add an item."""
        self._file.write(pickle.dumps(item))
        self._file.flush()

    def __len__(self) -> int:
        return self._file.seek(0, os.SEEK_END) > 0

    def __getitem__(self, index: int) -> Any:
        self._file.seek(0)
        return [pickle.load(self._file)][index]


livecodebench.multiprocessing = SimpleNamespace(
    Manager=lambda: SimpleNamespace(list=FileList), Process=multiprocessing.get_context("fork").Process
)


def begin(task: dict[str, Any]) -> dict[str, Any]:
    """Return the start of an episode, or `{"raised"}`; a row whose own SQL cannot be run is rejected."""
    try:
        environment = make(task)
        if task["env_class"] == "text2sql":
            _, _, found, *_ = execute_sql_wrapper_single(
                environment._env.db_file, environment._env.gold_sql, _SQL_TIMEOUT_S, ""
            )
            if found is None:
                raise ValueError(f"the row's own SQL cannot be run in its database: {environment._env.gold_sql}")
        observation, info = environment.reset()
    except Exception as error:  # whatever it raises goes to the caller
        return {"raised": f"{type(error).__name__}: {error}"}
    return {"observation": observation, "info": info, "tools": None, "state": environment.get_state()}


def play_step(task: dict[str, Any], state: State, text: str) -> dict[str, Any]:
    """Return the result of a step with the new state, or `{"raised"}`."""
    try:
        environment = make(task)
        environment.set_state(state)
        observation, reward, terminated, truncated, info = environment.step(text)
    except Exception as error:  # whatever it raises goes to the caller
        return {"raised": f"{type(error).__name__}: {error}"}
    return {
        "observation": observation,
        "reward": float(reward),
        "terminated": terminated,
        "truncated": truncated,
        "info": json.loads(json.dumps(info, default=repr)),
        "state": environment.get_state(),
    }
