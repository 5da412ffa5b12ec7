# SPDX-License-Identifier: Apache-2.0
"""Make the GEM environment of a task. This runs in the episode's process.

The library gives every reward. We add three things: the model sees the board, which GEM returns next to the
observation; a reply that makes a scorer crash scores 0, like one without an answer; and what the model writes is
evaluated only as mathematics, or run in a sandbox.
"""

import base64
import io
import unicodedata
from typing import Any

from nemo_gym.errors import GymError
from resources_servers.gem_gym import catalog

_QUESTIONS = ("QaEnv",)
_MATHEMATICS = ("MathEnv", "MathVisualEnv")


class DataUnavailable(GymError):
    """An environment could not load its data."""


def make(task: dict[str, Any]) -> "GemEnvironment":
    """Return the environment in a row's `environment_id`, made with its `environment_args`."""
    import gem

    environment_id = task.get("environment_id")
    if not isinstance(environment_id, str):
        raise catalog.UnknownEnvironment(
            f"the row names no environment: `environment_id` is {environment_id!r}.\n"
            'hint: `"environment_id": "game:GuessTheNumber-v0-easy"`'
        )
    catalog.check_environment(environment_id)
    # `use_mp` only affects mathematics: check answers in this process, not in another one per episode.
    args = {"use_mp": False, **catalog.REPAIRED_ARGS.get(environment_id, {}), **(task.get("environment_args") or {})}
    try:
        made = gem.make(environment_id, **args)
    except (OSError, LookupError) as error:
        if (source := catalog.find_data_source(environment_id)) is None:
            raise
        raise DataUnavailable(
            f"{environment_id!r} needs {source}, which could not be loaded: {_get_first_line(error)}\n"
            "hint: it is downloaded once and cached, so connect this machine or download it first; a folder with a "
            'dataset of the same fields works too: `"environment_args": {"dataset_name": "/the/folder"}`'
        ) from error
    _contain_scoring(made)
    return GemEnvironment(made)


class GemEnvironment:
    """A GEM environment."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self._environment.reset(seed=seed)
        return _show(observation, info), _drop_shown_parts(info)

    def step(self, text: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step; the library finds the action in the text."""
        kind = type(self._environment).__name__
        if kind in _MATHEMATICS and _could_run_code(text):
            return None, 0.0, True, True, {"correct": False}
        try:
            observation, reward, terminated, truncated, info = self._environment.step(text)
        except UnboundLocalError:
            # Without an answer, the question environment reads a variable that it never set.
            if kind not in _QUESTIONS:
                raise
            return None, 0.0, True, True, {"correct": False}
        return _show(observation, info), reward, terminated, truncated, _drop_shown_parts(info)

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        if callable(end := getattr(self._environment, "close", None)):
            end()


def _could_run_code(text: str) -> bool:
    """Return whether an answer uses Python's dunder names: sympy evaluates what it parses as mathematics."""
    from gem.utils.parsing import extract_last_boxed_answer

    return "__" in unicodedata.normalize("NFKC", extract_last_boxed_answer(text) or "")


def _show(observation: Any, info: dict[str, Any]) -> Any:
    """Return what the model sees: GEM keeps the board, which every turn needs, apart from the observation."""
    if isinstance(observation, dict):
        return _show_pictures(observation)
    if not (suffix := info.get("suffix")):
        return f"{info.get('prefix', '')}{observation}"
    return f"{info.get('prefix', '')}{observation.rstrip()}\n{suffix}"


def _drop_shown_parts(info: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key not in ("prefix", "suffix")}


def _show_pictures(observation: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for picture in observation["images"]:
        picture.save(file := io.BytesIO(), format="PNG")
        url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
        parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    parts.append({"type": "input_text", "text": observation["problem"]})
    return [{"role": "user", "content": parts}]


def _contain_scoring(environment: Any) -> None:
    """Make sure that scoring what the model wrote can do no harm."""
    from resources_servers.reasoning_gym.inside import reasoning_gym_scoring

    kind = type(environment).__name__
    if kind == "ReasoningGymEnv":

        def score(answer: str | None, entry: dict[str, Any]) -> float:
            scored = reasoning_gym_scoring.score(environment.name, answer, entry)
            if "score" not in scored:
                raise ValueError(f"the scorer of {environment.name!r} fails even on the task's own answer: {scored}")
            return float(scored["score"])

        environment.reward_fn = score
    elif kind == "CodeEnv":
        from resources_servers.gem_gym import contained_code

        contained_code.replace_runner()


def _get_first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip(" *")), type(error).__name__)
