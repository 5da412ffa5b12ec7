# SPDX-License-Identifier: Apache-2.0
"""Make an environment of GEM for a task: what runs in the process of an episode.

The library gives every reward. What is added: the model is shown the board that GEM hands out beside an observation;
a reply on which a scorer breaks down is worth 0, as one without an answer is; and what a model wrote is evaluated as
mathematics only, or run in a sandbox.
"""

import base64
import io
import unicodedata
from typing import Any

from nemo_gym.errors import GymError
from resources_servers.gem_gym import catalogue

_QUESTIONS, _MATHEMATICS = ("QaEnv",), ("MathEnv", "MathVisualEnv")


class DataUnavailable(GymError):
    """An environment could not load the data that it is made of."""


def make(task: dict[str, Any]) -> "GemEnvironment":
    """Return the environment that a row names in `environment_id`, made with its `environment_args`."""
    import gem

    environment_id = task.get("environment_id")
    if not isinstance(environment_id, str):
        raise catalogue.UnknownEnvironment(
            f"the row names no environment: `environment_id` is {environment_id!r}.\n"
            'hint: `"environment_id": "game:GuessTheNumber-v0-easy"`'
        )
    catalogue.check_environment(environment_id)
    # `use_mp` is for mathematics alone: answers are checked in this process, not in another one for each episode.
    args = {"use_mp": False, **catalogue.REPAIRED_ARGS.get(environment_id, {}), **(task.get("environment_args") or {})}
    try:
        made = gem.make(environment_id, **args)
    except (OSError, LookupError) as error:
        if (source := catalogue.find_data_source(environment_id)) is None:
            raise
        raise DataUnavailable(
            f"{environment_id!r} needs {source}, which could not be loaded: {_first_line(error)}\n"
            "hint: it is downloaded once and kept, so connect this machine, or load it here before; a dataset of the "
            'same fields in a folder does as well: `"environment_args": {"dataset_name": "/the/folder"}`'
        ) from error
    _contain(made)
    return GemEnvironment(made)


class GemEnvironment:
    """An environment of GEM."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self._environment.reset(seed=seed)
        return _show(observation, info), _without_shown(info)

    def step(self, text: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act; the library finds the action in the text."""
        kind = type(self._environment).__name__
        if kind in _MATHEMATICS and _could_run_code(text):
            return None, 0.0, True, True, {"correct": False}
        try:
            observation, reward, terminated, truncated, info = self._environment.step(text)
        except UnboundLocalError:
            # Without an answer the environment of questions runs into a name that it never set.
            if kind not in _QUESTIONS:
                raise
            return None, 0.0, True, True, {"correct": False}
        return _show(observation, info), reward, terminated, truncated, _without_shown(info)

    def close(self) -> None:
        """End what the environment has started."""
        if callable(end := getattr(self._environment, "close", None)):
            end()


def _could_run_code(text: str) -> bool:
    """Tell whether an answer reaches for what Python keeps inside: mathematics is read with sympy, which evaluates."""
    from gem.utils.parsing import extract_last_boxed_answer

    return "__" in unicodedata.normalize("NFKC", extract_last_boxed_answer(text) or "")


def _show(observation: Any, info: dict[str, Any]) -> Any:
    """Return what the model is told: GEM keeps the board, which every turn needs, apart from the observation."""
    if isinstance(observation, dict):
        return _show_pictures(observation)
    if not (suffix := info.get("suffix")):
        return f"{info.get('prefix', '')}{observation}"
    return f"{info.get('prefix', '')}{observation.rstrip()}\n{suffix}"


def _without_shown(info: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key not in ("prefix", "suffix")}


def _show_pictures(observation: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for picture in observation["images"]:
        picture.save(file := io.BytesIO(), format="PNG")
        url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
        parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    parts.append({"type": "input_text", "text": observation["problem"]})
    return [{"role": "user", "content": parts}]


def _contain(environment: Any) -> None:
    """Have what a model wrote scored where it can do no harm."""
    from resources_servers.reasoning_gym.inside import reasoning_gym_scoring

    kind = type(environment).__name__
    if kind == "ReasoningGymEnv":

        def score(answer: str | None, entry: dict[str, Any]) -> float:
            scored = reasoning_gym_scoring.score(environment.name, answer, entry)
            if "score" not in scored:
                raise ValueError(f"the scorer of {environment.name!r} fails on the task's own answer: {scored}")
            return float(scored["score"])

        environment.reward_fn = score
    elif kind == "CodeEnv":
        from resources_servers.gem_gym import contained_code

        contained_code.replace_runner()


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip(" *")), type(error).__name__)
