# SPDX-License-Identifier: Apache-2.0
"""Make, reset, step and close one environment, in the process of its episode.

Answers are JSON, so that the caller needs none of the classes of the environment's library. What the environment raises
is an answer too.
"""

import asyncio
import contextlib
import inspect
import math
import random
import resource
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from nemo_gym._isolation.inside.process_tree import kill_descendants

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
_TRACEBACK_LIMIT = 1500
_KILL_PATIENCE_S = 2.0
_FIELDS = ("observation", "reward", "terminated", "truncated", "info")


class _Process:
    """The state of this process."""

    environment: Any = None
    loop: asyncio.AbstractEventLoop | None = None
    initial_size_bytes: int | None = None


def reset(make: Callable[[dict[str, Any]], Any], task: dict[str, Any], seed: int, memory_bytes: int) -> bytes:
    """Make and reset the environment of a task; return `observation`, `info` and `tools` (None if it has none)."""
    _limit_memory(memory_bytes)

    def begin() -> dict[str, Any]:
        # Many games draw from the global generators, whatever seed they are given.
        random.seed(seed)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(seed % 2**32)
        _Process.environment = environment = _finish(make(task))
        parameters = inspect.signature(environment.reset).parameters.values()
        if any(each.name == "seed" or each.kind is each.VAR_KEYWORD for each in parameters):
            observation = _finish(environment.reset(seed=seed))
        else:
            observation = _finish(environment.reset())
        info: Any = {}
        if isinstance(observation, tuple):
            observation, info = observation
        return {"observation": observation, "info": info, "tools": _finish(getattr(environment, "tools", None))}

    return _answer(begin)


def step(*action: Any) -> bytes:
    """Take a step; return `observation`, `reward`, `terminated`, `truncated` and `info`."""

    def act() -> dict[str, Any]:
        result = _finish(_Process.environment.step(*action))
        if not isinstance(result, tuple) or len(result) != len(_FIELDS):
            raise TypeError(f"`step` must return {', '.join(_FIELDS)}, not {result!r:.200}")
        outcome = dict(zip(_FIELDS, result, strict=True))
        outcome["reward"] = _read_reward(outcome["reward"])
        outcome["terminated"] = bool(outcome["terminated"])
        outcome["truncated"] = bool(outcome["truncated"])
        return outcome

    return _answer(act)


def close() -> int:
    """Close the environment; return how many bytes this process has grown by since its first episode."""
    environment = _Process.environment
    _Process.environment = None
    if callable(end := getattr(environment, "close", None)):
        with contextlib.suppress(Exception):  # the episode is over and its reward is known
            _finish(end())
    if sys.platform == "linux":
        # Whatever the environment has started ends with the episode: this process may play another one.
        kill_descendants(_KILL_PATIENCE_S)
    return _read_size_bytes() - (_Process.initial_size_bytes or 0)


def _answer(act: Callable[[], dict[str, Any]]) -> bytes:
    try:
        return orjson.dumps(act(), default=_describe, option=_OPTIONS)
    except MemoryError:
        _Process.environment = None
        return orjson.dumps({"out_of_memory": True})
    except Exception as error:  # whatever it raises goes to the caller
        frames = "".join(traceback.format_exception(error)).rstrip()
        return orjson.dumps({"raised": f"{type(error).__name__}: {error}", "traceback": frames[-_TRACEBACK_LIMIT:]})


def _finish(value: Any) -> Any:
    """Return `value`, awaited if it is awaitable."""
    if not inspect.isawaitable(value):
        return value
    if _Process.loop is None:
        _Process.loop = asyncio.new_event_loop()
    return _Process.loop.run_until_complete(value)


def _read_reward(value: Any) -> float:
    try:
        # Numbers of numpy and the like are numbers too, but a text that reads as one is a mistake.
        if isinstance(value, str | bytes):
            raise TypeError
        reward = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"a step's reward must be a number, not {value!r:.200}") from None
    if not math.isfinite(reward):
        raise ValueError(f"a step's reward must be a finite number, not {reward}")
    return reward


def _describe(value: Any) -> Any:
    """Return a JSON-compatible stand-in for a value that JSON cannot express."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | Sequence):
        return list(value)
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    return repr(value)


# --- memory -----------------------------------------------------------------------------------------------------------


def _limit_memory(memory_bytes: int) -> None:
    """Let this process grow by at most `memory_bytes`; what its template has loaded does not count."""
    if _Process.initial_size_bytes is None:
        _Process.initial_size_bytes = size = _read_size_bytes()
        if size:
            # Limit writable memory, not the address space: libraries reserve far more of that than they use.
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            bound = size + memory_bytes
            if hard != resource.RLIM_INFINITY:
                bound = min(bound, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))


def _read_size_bytes() -> int:
    """Return the size of this process's writable memory; 0 where the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except OSError:
        return 0
