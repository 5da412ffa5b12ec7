# SPDX-License-Identifier: Apache-2.0
"""Find verifiers 0.1 environments by name or path, load each once, and record what its reward functions raise.

The first environment loads the library.
"""

import contextlib
import functools
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nemo_gym.adapters.installed_packages import list_dependents, make_importable
from nemo_gym.errors import RolloutFailure

HERE = Path(__file__).parent
SAMPLES = HERE / "sample_environments"
_LOADING = threading.Lock()
_REWARD_ERRORS: ContextVar[list[str] | None] = ContextVar("verifiers_v0_reward_errors", default=None)


def load_environment(name: str, args_json: str) -> Any:
    """Return an environment, loaded once, by the name of its package or the path of its module or package.

    `args_json` has the arguments for its `load_environment`, as a JSON object.
    """
    with _LOADING:
        return _load(name, args_json)


@functools.cache
def _load(name: str, args_json: str) -> Any:
    import verifiers
    from verifiers.envs import environment as library

    # Every environment installs handlers for SIGINT and SIGTERM, which works only in the main thread and would replace
    # the server's. It is still torn down when the process ends: the library registers that separately.
    library.signal = SimpleNamespace(SIGINT=None, SIGTERM=None, signal=lambda number, handler: None)
    environment = verifiers.load_environment(find_module(name), **json.loads(args_json))
    _watch_rewards(environment.rubric)
    return environment


def find_module(name: str) -> str:
    """Return the name under which the library loads an environment."""
    return make_importable(name, lambda: [entry["id"] for entry in list_environments()])


def list_environments() -> list[dict[str, str]]:
    """Return the installed packages that depend on the library, and the samples in this folder."""
    found = [{"id": name, "description": text} for name, text in list_dependents("verifiers").items()]
    samples = (path for path in sorted(SAMPLES.glob("*.py")) if not path.name.startswith("_"))
    return found + [{"id": _name_sample(path), "description": _read_summary(path)} for path in samples]


@functools.cache
def read_examples(environment: Any, split: str) -> Any:
    """Return the dataset of a split: `train`, or `eval`, which is the training set if there is no other."""
    return environment.get_dataset() if split == "train" else environment.get_eval_dataset()


@contextlib.contextmanager
def note_reward_errors() -> Iterator[list[str]]:
    """Collect what reward functions raise in this context: the library turns it into a reward of 0."""
    errors: list[str] = []
    token = _REWARD_ERRORS.set(errors)
    try:
        yield errors
    finally:
        _REWARD_ERRORS.reset(token)


def weigh_metrics(rubric: Any, metrics: dict[str, float], reward: float) -> dict[str, float]:
    """Return the parts of a reward by function name; none if they do not add up to it."""
    parts: dict[str, float] = {}
    for one in _list_rubrics(rubric):
        for function, weight in zip(one.funcs, one.weights, strict=True):
            name = getattr(function, "__name__", "")
            if weight and name in metrics:
                parts[name] = parts.get(name, 0.0) + weight * metrics[name]
    return parts if abs(sum(parts.values()) - reward) < 1e-9 else {}


def require_example(examples: Any, index: int, environment: str, split: str) -> dict[str, Any]:
    """Return an example by its index."""
    if not 0 <= index < len(examples):
        raise RolloutFailure(
            "agent",
            f"the row asks for example {index} of {environment!r}, whose {split} split has {len(examples)}.\n"
            "hint: write the rows again with the installed version of the environment",
        )
    return dict(examples[index])


def _name_sample(path: Path) -> str:
    return f"{HERE.parent.name}/{HERE.name}/{SAMPLES.name}/{path.name}"


def _read_summary(path: Path) -> str:
    return path.read_text().partition('"""')[2].partition("\n")[0].partition('"""')[0]


def _list_rubrics(rubric: Any) -> list[Any]:
    """Return the rubrics that a rubric consists of."""
    inner = getattr(rubric, "rubrics", None)
    return [rubric] if inner is None else [one for part in inner for one in _list_rubrics(part)]


def _watch_rewards(rubric: Any) -> None:
    for one in _list_rubrics(rubric):
        one.funcs = [
            _watch(function) if weight else function for function, weight in zip(one.funcs, one.weights, strict=True)
        ]


def _watch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` so that what it raises is recorded."""

    def note(error: Exception) -> None:
        errors = _REWARD_ERRORS.get()
        if errors is not None:
            errors.append(f"{getattr(function, '__name__', function)}: {type(error).__name__}: {error}")

    async def wait(result: Any) -> Any:
        try:
            return await result
        except Exception as error:
            note(error)
            raise

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            note(error)
            raise
        return wait(result) if inspect.isawaitable(result) else result

    return watched
