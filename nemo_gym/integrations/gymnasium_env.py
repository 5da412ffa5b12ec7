# SPDX-License-Identifier: Apache-2.0
"""Use a resources server as an environment of Farama's gymnasium, made for 1.4.0.

    env = make_env("blackjack", "resources_servers/blackjack/data/example.jsonl")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("<action>stand</action>")

Observations and actions are texts. If the task offers tools, a JSON action `{"tool": NAME, "arguments": {...}}` calls
one; any other text is the model's reply, which a server that verifies takes as the answer. An action without a reward
of its own returns 0.0. A failure of the server raises; it is never a reward.
"""

import functools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym._util.off_the_loop import LoopThread
from nemo_gym.integrations.episodes import (
    EpisodeError,
    EpisodeServer,
    RowCursor,
    ServerEpisode,
    read_action,
    render_messages,
)
from nemo_gym.integrations.libraries import import_library
from nemo_gym.integrations.live import LiveGym
from nemo_gym.integrations.playing import open_rollout_loop, read_tasks
from nemo_gym.integrations.scoring import connect

GYMNASIUM_VERSION = "1.4.0"
"""The gymnasium version that this module was written for and tested with."""


def make_env(
    server: str,
    rows: str | Sequence[Mapping[str, Any]] = (),
    *,
    head_server: str | None = None,
    config_paths: Sequence[str] = (),
    overrides: Sequence[str] = (),
) -> Any:
    """Return a `gymnasium.Env` that plays in the resources server `server`; raise MissingLibrary without gymnasium.

    `reset` takes the next of `rows` (a JSONL file or a sequence of rows), the row numbered `seed`, modulo their count,
    or the one in `options={"row": ...}`. Its `info` has the prompt as chat `messages` and the task's `tools`.

    By default the server is already running, and is found through the head server at `head_server` (`host:port`) or the
    one in this process's config. With `config_paths` and `overrides`, as for `gym env start`, servers are started in
    this process, shared by all its environments, and stopped when the last of these is closed.
    """
    return build_env_class()(server, rows, head_server=head_server, config_paths=config_paths, overrides=overrides)


@functools.cache
def build_env_class() -> type[Any]:
    """Return the environment class; raise MissingLibrary without gymnasium."""
    gymnasium = import_library("gymnasium", "Env", package="gymnasium", version=GYMNASIUM_VERSION)

    class ServerEnv(gymnasium.Env):  # type: ignore[name-defined]
        """Episodes in one resources server."""

        def __init__(
            self,
            server: str,
            rows: str | Sequence[Mapping[str, Any]] = (),
            *,
            head_server: str | None = None,
            config_paths: Sequence[str] = (),
            overrides: Sequence[str] = (),
        ) -> None:
            self.observation_space = _make_text_space()
            self.action_space = _make_text_space()
            if isinstance(rows, str):
                rows = read_tasks(rows)
            self._rows = RowCursor(rows)
            self._loop = _open_shared_loop(os.getpid())
            self._gym: LiveGym | None = None
            if config_paths:
                self._gym = self._loop.wait(_join_servers(config_paths, overrides))
                client = self._gym.client
            else:
                client = self._loop.wait(connect(head_server))
            self._server = EpisodeServer(client, server)
            self._episode: ServerEpisode | None = None

        def reset(
            self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            super().reset(seed=seed)
            if seed is not None:
                self._rows.seek(seed)
            self._end_episode()
            row = (options or {}).get("row") or self._rows.take()
            self._episode = self._loop.wait(self._server.begin(row))
            start = self._episode.start
            return render_messages(start.messages), {**start.info, "messages": start.messages, "tools": start.tools}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            episode = self._episode
            if episode is None:
                raise EpisodeError("no episode has started.\nhint: call `reset` first")
            step = self._loop.wait(episode.act(read_action(action, offers_tools=episode.offers_tools)))
            return step.observation, step.reward or 0.0, step.terminated, step.truncated, step.info

        def close(self) -> None:
            self._end_episode()
            gym = self._gym
            self._gym = None
            if gym is not None:
                self._loop.wait(_leave_servers(gym))

        def _end_episode(self) -> None:
            episode = self._episode
            self._episode = None
            if episode is not None:
                self._loop.wait(episode.close())

    return ServerEnv


def _make_text_space() -> Any:
    return _build_space_class()()


@functools.cache
def _build_space_class() -> type[Any]:
    spaces = import_library("gymnasium.spaces", "Text", package="gymnasium", version=GYMNASIUM_VERSION)

    class AnyText(spaces.Text):  # type: ignore[name-defined]
        """All texts. Samples are short and plain."""

        def __init__(self) -> None:
            super().__init__(max_length=32, min_length=0)

        def contains(self, x: Any) -> bool:
            return isinstance(x, str)

        def __reduce__(self) -> tuple[Any, ...]:
            return _make_text_space, (), self.__dict__  # a class defined in a function cannot be pickled by name

    return AnyText


@functools.cache
def _open_shared_loop(pid: int) -> LoopThread:
    """Return the event loop of process `pid`. A forked process needs its own: threads do not survive a fork."""
    return open_rollout_loop("nemo-gym-env")


_env_counts = Counter[LiveGym]()
"""How many environments use the servers started in this process, which stop with the last of them."""


async def _join_servers(config_paths: Sequence[str], overrides: Sequence[str]) -> LiveGym:
    gym = await LiveGym.of_process(config_paths, overrides)
    _env_counts[gym] += 1
    return gym


async def _leave_servers(gym: LiveGym) -> None:
    _env_counts[gym] -= 1
    if not _env_counts[gym]:
        await gym.close()
