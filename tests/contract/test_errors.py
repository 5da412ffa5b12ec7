# SPDX-License-Identifier: Apache-2.0
"""Errors cross process borders and reach users: every class of the package pickles, and every one is accounted for."""

import contextlib
import copy
import importlib
import inspect
import pickle
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import nemo_gym
from nemo_gym import errors
from nemo_gym.errors import ConfigError, ConfigProblems, GymError, RolloutFailure, ToolCrashed

# Steer control flow inside their package and never reach a caller, as classes with a leading underscore do too.
INTERNAL = {
    "nemo_gym._bench.report.LeftOut",
    "nemo_gym._bench.verifying.Unmeasured",
    "nemo_gym._transport.http1_connection.NotHttp",
    "nemo_gym._transport.http1_connection.TooLarge",
    "nemo_gym._config.overrides.NotPlain",
    "nemo_gym._data.dataset_rows.BadRow",
    "nemo_gym._isolation.inside.watching.ServerGone",
    "nemo_gym._servers.mcp.protocol.RpcError",
    "nemo_gym._servers.mcp.schema.NotAnObject",
    "nemo_gym._servers.processes.event_loop.SignalInterrupt",
    "nemo_gym._servers.http.guard.BodyTooLarge",
    "nemo_gym._training.chat_messages.NotExpressible",
    "nemo_gym._util.json_values.UnusableValue",
    "nemo_gym.adapters.library_loop.LibraryBlocked",
    "nemo_gym.errors.ServerBlocked",
}
# What arguments of these names look like; anything else is told by its annotation.
SAMPLES: dict[str, Any] = {
    "last_lines": ("one line", "another"),
    "late": {"weather": ("one line", "another")},
    "problems": [ConfigError("first"), ConfigError("second")],
    "response_content": b'{"detail": "no"}',
    "url": "http://127.0.0.1:1/run",
    "status": 503,
}
BY_ANNOTATION: dict[str, Any] = {"str": "text", "int": 3, "float": 1.5, "bool": True, "bytes": b"raw", "None": None}


def modules() -> Iterator[Any]:
    """Import every module that may define an error, which has a class with a base; others load large libraries."""
    for found in pkgutil.walk_packages(nemo_gym.__path__, "nemo_gym."):
        source = found.module_finder.find_spec(found.name).loader.get_source(found.name)
        if re.search(r"^\s*class \w+\(", source, re.M) and not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # a module of an extra that is not installed
                yield importlib.import_module(found.name)


def error_classes() -> list[type[BaseException]]:
    classes = {
        value
        for module in modules()
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__.startswith("nemo_gym")
    }
    return sorted(classes, key=full_name)


def full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def sample_arguments(cls: type[BaseException]) -> tuple[Any, ...]:
    if "__init__" not in vars(cls) and not any("__init__" in vars(base) for base in own_bases(cls)):
        return ("what happened.\nhint: what to do",)
    parameters = list(inspect.signature(cls).parameters.values())
    return tuple(SAMPLES.get(p.name, BY_ANNOTATION.get(_annotation(p), "text")) for p in parameters)


def own_bases(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.startswith("nemo_gym")]


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return (annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))).split(" ")[
        0
    ]


CLASSES = error_classes()


def same(one: BaseException, other: BaseException) -> bool:
    def plain(error: BaseException) -> Any:
        return {key: repr(value) for key, value in vars(error).items() if key not in ("request_info", "history")}

    return type(one) is type(other) and str(one) == str(other) and plain(one) == plain(other)


@pytest.mark.parametrize("cls", CLASSES, ids=full_name)
def test_an_error_survives_pickling_with_its_text_and_attributes(cls: type[BaseException]) -> None:
    arguments = sample_arguments(cls)
    error = cls(*arguments)
    assert len(error.args) == len(arguments)
    assert [repr(value) for value in error.args] == [repr(value) for value in arguments], "args == signature"
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert same(pickle.loads(pickle.dumps(error, protocol)), error)
    assert same(copy.copy(error), error)
    assert str(error)


@pytest.mark.parametrize("cls", CLASSES, ids=full_name)
def test_an_error_is_the_users_or_is_listed_as_internal(cls: type[BaseException]) -> None:
    assert issubclass(cls, GymError) or cls.__name__.startswith("_") or full_name(cls) in INTERNAL


def test_internal_errors_are_still_there() -> None:
    assert {full_name(cls) for cls in CLASSES} >= INTERNAL


def test_the_tree_at_the_top_of_the_module_names_every_class_in_it() -> None:
    drawn = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, BaseException):
            assert name in drawn


def test_config_errors_are_what_callers_already_catch() -> None:
    from nemo_gym import config_types

    for name in vars(config_types):
        value = getattr(config_types, name)
        if inspect.isclass(value) and issubclass(value, ConfigError) and value is not ConfigError:
            expected = FileNotFoundError if name == "ConfigPathNotFoundError" else ValueError
            assert issubclass(value, expected), name


def test_several_problems_read_as_one_text() -> None:
    error = pickle.loads(pickle.dumps(ConfigProblems([ConfigError("one"), ConfigError("two")])))
    assert "one" in str(error)
    assert "two" in str(error)
    assert [type(problem) for problem in error.problems] == [ConfigError, ConfigError]


def test_a_failure_keeps_its_cause() -> None:
    error = pickle.loads(pickle.dumps(RolloutFailure("timeout", "no answer", retryable=True)))
    assert (error.kind, error.message, error.retryable) == ("timeout", "no answer", True)


def test_a_crashed_tool_keeps_its_name() -> None:
    error = pickle.loads(pickle.dumps(ToolCrashed("look", 500, "boom")))
    assert (error.kind, error.path, error.message) == ("tool_crashed", "/look", "the tool 'look' answered 500: boom")
