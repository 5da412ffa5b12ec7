# SPDX-License-Identifier: Apache-2.0
"""Play a Gymnasium environment in words: observations become text, and replies become actions.

Only the episode processes load the library.
"""

import re
from collections.abc import Mapping
from typing import Any

from resources_servers.gymnasium_text.action_words import read_action
from resources_servers.gymnasium_text.known_environments import find_known

_HIGHLIGHT = re.compile(r"\x1b\[(?:\d+;)*4\d(?:;\d+)*m(.*?)\x1b\[0m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_PLACES = ("red (R)", "green (G)", "yellow (Y)", "blue (B)", "in the taxi")


def make(task: dict[str, Any]) -> "TextEnvironment":
    """Return the environment given by the row's `env_id` and `env_kwargs`."""
    import gymnasium

    env_id = task["env_id"]
    settings = task.get("env_kwargs") or {}
    environment = gymnasium.make(env_id, **settings)
    if "ansi" in (environment.metadata.get("render_modes") or ()) and "render_mode" not in settings:
        environment.close()
        environment = gymnasium.make(env_id, render_mode="ansi", **settings)
    return TextEnvironment(environment, env_id, task.get("actions"), task.get("observation"))


class TextEnvironment:
    """Wraps a Gymnasium environment."""

    def __init__(self, environment: Any, env_id: str, actions: Any, template: str | None) -> None:
        """`actions` lists names, or maps names to actions; `template` describes an observation."""
        self._environment = environment
        self._env_id = env_id
        self._template = template
        self._actions = _declare_actions(environment.action_space, actions or find_known(env_id).actions)

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the episode. The observation also lists the actions."""
        observation, info = self._environment.reset(seed=seed)
        return "\n".join([self._describe(observation), *self._list_actions()]), info

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take a step. A reply without a clear action gets an answer, but no step is taken."""
        name = text.strip() if self._actions is None else read_action(text, list(self._actions))
        if name is None:
            answer = "\n".join(["No single action could be read from that.", *self._list_actions()])
            return answer, 0.0, False, False, {"unreadable": True}
        action = name if self._actions is None else self._actions[name]
        observation, reward, terminated, truncated, info = self._environment.step(action)
        return self._describe(observation), reward, terminated, truncated, {**info, "action": name}

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _list_actions(self) -> list[str]:
        return [] if self._actions is None else [f"Actions: {', '.join(self._actions)}"]

    def _describe(self, observation: Any) -> str:
        """Return an observation in words: from the row's template, as rendered, or as plain values."""
        if self._template is not None:
            values = observation if isinstance(observation, tuple) else (observation,)
            named = observation if isinstance(observation, Mapping) else {}
            return self._template.format(*values, **named)
        if self._env_id.startswith("Blackjack-"):
            own, dealer, ace = observation
            return f"You have {own}{', with an ace that counts 11' if ace else ''}. The dealer shows {dealer}."
        if self._environment.render_mode != "ansi":
            return observation if isinstance(observation, str) else f"Observation: {_to_plain(observation)}"
        board = _ESCAPE.sub("", _HIGHLIGHT.sub(r"[\1]", self._environment.render())).strip("\n")
        if self._env_id.startswith("Taxi-"):
            *_, passenger, destination = self._environment.unwrapped.decode(observation)
            board += f"\nPassenger: {_PLACES[passenger]}. Destination: {_PLACES[destination]}."
        return board


def _declare_actions(space: Any, declared: Any) -> dict[str, Any] | None:
    """Return the actions by name; None if any text is an action. Raise ValueError if they do not fit the space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Text) and not declared:
        return None
    if isinstance(space, spaces.Discrete) and not isinstance(declared, Mapping):
        numbers = range(int(space.start), int(space.start + space.n))
        declared = dict(zip(declared or map(str, numbers), numbers, strict=True))
    if not isinstance(declared, Mapping):
        raise ValueError(
            f"actions of the space {space} need names.\n"
            'hint: declare them in the row: "actions": {"left": [-1.0], "right": [1.0]}'
        )
    actions = {name: _to_action(space, value) for name, value in declared.items()}
    if wrong := [name for name, action in actions.items() if not space.contains(action)]:
        raise ValueError(
            f"the row's actions {', '.join(map(repr, wrong))} are not in the space {space}.\n"
            "hint: correct `actions` in the row"
        )
    return actions


def _to_action(space: Any, value: Any) -> Any:
    """Return a JSON value as an action; a list may stand for an array."""
    import numpy

    return numpy.asarray(value, dtype=space.dtype) if isinstance(value, list) and space.shape else value


def _to_plain(observation: Any) -> Any:
    """Return an observation with arrays as plain Python values."""
    if isinstance(observation, Mapping):
        return {key: _to_plain(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_to_plain, observation))
    return observation.tolist() if hasattr(observation, "tolist") else observation
